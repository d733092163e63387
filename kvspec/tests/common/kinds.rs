//! One example of every kind, with the group that it belongs in.

use kvspec::kinds::*;
use kvspec::{Blocks, Role, TokensPerState};

/// A kind, by what it describes.
pub(crate) struct Example {
    pub(crate) name: &'static str,
    pub(crate) page: Page,
    /// Blocks of 64 tokens, or of state, with two layers of the kind.
    pub(crate) blocks: Blocks,
}

/// Every kind.
pub(crate) fn every_kind() -> Vec<Example> {
    let two = |blocks: Blocks, kind: &dyn Describe, role| {
        let page = kind.describe().unwrap();
        let blocks = blocks.layer_as("layers.0", page.clone(), role).layer_that_stays("layers.1", page.clone(), role);
        (page, blocks)
    };
    pages(two).into_iter().map(|(name, (page, blocks))| Example { name, page, blocks }).collect()
}

fn pages<T>(two: impl Fn(Blocks, &dyn Describe, Role) -> T) -> Vec<(&'static str, T)> {
    let tokens = || Blocks::tokens(64);
    let attention = || Attention::new(8, 64, Element::BF16);
    let target = Role::Target;
    let states = TokensPerState::new;
    let mamba2 = |groups| Mamba2::new(16, 8, groups, 32, 4);
    let delta = || GatedDeltaNet::new(4, 16, 8, 32, 4).state_element(Element::BF16);
    vec![
        ("MHA", two(tokens(), &attention(), target)),
        ("MQA", two(tokens(), &Attention::new(1, 64, Element::F16), target)),
        ("attention in halves", two(tokens(), &attention().packing(KvPacking::Halves), target)),
        ("attention apart", two(tokens(), &attention().packing(KvPacking::Apart), target)),
        ("unequal K and V", two(tokens(), &attention().value_head_size(24), target)),
        ("attention in kernel blocks", two(tokens().kernel_tokens(16), &attention(), target)),
        ("fp8 attention", two(tokens(), &Attention::new(8, 64, Element::FP8_E4M3), target)),
        ("sliding window", two(tokens(), &SlidingWindow(attention()), target)),
        ("chunked local", two(tokens(), &ChunkedLocal(attention()), target)),
        ("sliding-window MLA", two(tokens(), &SlidingWindowMla(Mla::opaque(584, "v4").page_align(576)), target)),
        ("MLA", two(tokens(), &Mla::bf16(), target)),
        ("fp8 MLA", two(tokens(), &Mla::fp8(), target)),
        ("MLA in kernel blocks", two(tokens().kernel_tokens(32), &Mla::bf16(), target)),
        (
            "compressed MLA",
            two(tokens(), &Mla::opaque(584, "c4").tokens_per_state(states(4, 1)).page_align(576), target),
        ),
        ("several states a token", two(tokens(), &Mla::opaque(36, "q").tokens_per_state(states(1, 4)), target)),
        ("indexer", two(tokens(), &Indexer::fp8(), Role::Indexer)),
        ("pooled indexer", two(tokens(), &Indexer::fp8().tokens_per_state(states(4, 1)), Role::Indexer)),
        ("ring", two(Blocks::state(), &Ring::new(16, 256, "bf16").heads(2), target)),
        ("sharded ring", two(Blocks::state(), &Ring::new(16, 256, "bf16").sharded_heads(4), target)),
        ("Mamba1", two(Blocks::state(), &Mamba1::new(64, 16, 4), target)),
        ("Mamba2", two(Blocks::state(), &mamba2(8), target)),
        ("Mamba2 of one group", two(Blocks::state(), &mamba2(1), target)),
        ("Mamba2 by whole groups", two(Blocks::state(), &mamba2(2).whole_groups(), target)),
        ("Mamba2, rows first", two(Blocks::state(), &mamba2(8).conv_order(ConvOrder::RowsFirst), target)),
        ("delta net", two(Blocks::state(), &delta(), target)),
        ("delta net, rows first", two(Blocks::state(), &delta().conv_order(ConvOrder::RowsFirst), target)),
        ("replicated state", two(Blocks::state(), &Mamba1::new(256, 1, 4).replicated(), target)),
        ("INT8 with scales in the row", two(tokens(), &TokenHeadQuant::new(8, 64, Element::INT8, 4), target)),
        ("INT4 with scales in the row", two(tokens(), &TokenHeadQuant::new(8, 64, Element::INT4, 2), target)),
        ("NVFP4", two(tokens(), &Nvfp4::new(8, 64).value_head_size(32), target)),
        ("block scales apart", two(tokens(), &BlockScaled::new(attention(), Element::F32, 2), target)),
        (
            "scales for 16 tokens",
            two(tokens(), &BlockScaled::new(attention(), Element::F32, 1).tokens_per_scale(states(16, 1)), target),
        ),
        ("opaque row a request", two(Blocks::state(), &Opaque::per_request(4096, "sampler"), Role::Scratch)),
        ("opaque row a token", two(tokens(), &Opaque::per_token(16, "mrope"), target)),
        ("draft", two(tokens(), &attention(), Role::Draft)),
    ]
}
