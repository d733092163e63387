//! Specs that C makes of kinds, layouts and tensors equal those that Rust makes of them.

mod support;

use std::path::Path;
use std::process::Command;

use kvspec::kinds::{
    Attention, BlockScaled, ChunkedLocal, ConvOrder, Element, GatedDeltaNet, Indexer, KvPacking, Mamba1, Mamba2, Mla,
    Nvfp4, Opaque, Ring, SlidingWindow, SlidingWindowMla, TokenHeadQuant,
};
use kvspec::{
    Arrange, Blocks, CacheSpec, Fingerprint, FromTensors, Group, GroupId, LayerTensors, Layout, MemKind, Pool, PoolId,
    Role, Shard, Tensor, TokensPerState, Topology, Usage,
};
use support::{Link, build_c, run, under_valgrind, work_dir};

fn worker() -> (Fingerprint, Topology) {
    let fingerprint = Fingerprint { model: "org/model".to_owned(), ..Fingerprint::default() };
    (fingerprint, Topology { tp: Shard { rank: 1, size: 4 }, ..Topology::default() })
}

fn arranged() -> CacheSpec {
    let (fingerprint, topology) = worker();
    let gqa = Attention::new(8, 128, Element::BF16);
    let window = Attention::new(8, 128, Element::F16).value_head_size(64).packing(KvPacking::Halves).format("half");
    let rows = Blocks::tokens(64)
        .kernel_tokens(16)
        .layer("mla.fp8", Mla::fp8())
        .layer("mla.bf16", SlidingWindowMla(Mla::bf16()))
        .layer_as("indexer", Indexer::fp8(), Role::Indexer)
        .layer_as("gqa", gqa.clone(), Role::Draft)
        .layer_that_stays("window", SlidingWindow(window), Role::Scratch);
    let mamba2 = Mamba2::new(64, 64, 8, 128, 4).whole_groups();
    let gdn = GatedDeltaNet::new(16, 128, 32, 128, 4);
    let state = Blocks::state()
        .layer("mamba1", Mamba1::new(8192, 16, 4))
        .layer("mamba2", mamba2.conv_element(Element::F32).state_element(Element::F16).conv_order(ConvOrder::RowsFirst))
        .layer(
            "gdn",
            gdn.conv_element(Element::F32).state_element(Element::F16).conv_order(ConvOrder::RowsFirst).replicated(),
        )
        .layer("ring", Ring::new(32, 512, "bf16").sharded_heads(8))
        .layer("aux", Opaque::per_request(100, "aux"));
    let scaled = BlockScaled::new(Attention::new(8, 128, Element::FP8_E4M3), Element::F32, 1);
    let layers = Blocks::tokens(32)
        .layer("nvfp4", Nvfp4::new(8, 128))
        .layer("int4", TokenHeadQuant::new(8, 128, Element::INT4, 4))
        .layer("scaled", scaled.tokens_per_scale(TokensPerState { num: 16, den: 1 }))
        .layer("chunk", ChunkedLocal(gqa.packing(KvPacking::Apart)))
        .layer(
            "compressed",
            Mla::opaque(584, "own").tokens_per_state(TokensPerState { num: 4, den: 1 }).page_align(576),
        )
        .layer("bytes", Opaque::per_token(7, ""));
    let arranged = Arrange::new(fingerprint, topology)
        .pool(Pool::new(Layout::Blhnc, 16).mem(MemKind::Vram(2)).row_align(4096).blocks(rows))
        .pool(Pool::new(Layout::Lbnhc, 4).page_align(64).blocks(state))
        .pool(Pool::new(Layout::Lbhnc, 8).shared().blocks(layers))
        .build()
        .expect("an arrangement");
    let mut next = 1 << 32;
    let mut base = |len| {
        next += len;
        next - len
    };
    let bases: Vec<u64> = arranged.storage_lens().into_iter().map(&mut base).collect();
    arranged.at(&bases).expect("a base for each storage")
}

fn from_tensors() -> CacheSpec {
    let (fingerprint, topology) = worker();
    let latent = Tensor::new(0x10_0000, [100, 64, 576], [73_728, 1152, 2], 2, "BNC");
    let half = |ptr, part| {
        let tensor = Tensor::new(ptr, [100, 2, 64, 128], [32_768, 16_384, 256, 2], 2, "BHNC");
        tensor.mem(MemKind::Vram(1)).holds([part])
    };
    let gqa = Attention::new(8, 128, Element::BF16).packing(KvPacking::Apart);
    let draft = LayerTensors::new("draft.0", GroupId(0), gqa).role(Role::Draft);
    FromTensors::new(fingerprint, topology)
        .group(Group { pool: PoolId(0), block_tokens: 64, num_blocks: 100, usage: Usage::Tokens })
        .layer(LayerTensors::new("layers.0", GroupId(0), Mla::bf16()).tensor(latent))
        .layer(draft.tensor(half(0x4000_0000, "k")).tensor(half(0x4100_0000, "v")))
        .build()
        .expect("a spec")
}

#[test]
fn kinds_layouts_and_tensors_mean_the_same_in_c_and_in_rust() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/kinds.c");
    let program = build_c(&source, &work_dir("kinds"), Link::Shared);
    let output = String::from_utf8(run(&mut Command::new(&program)).stdout).expect("UTF-8");
    let specs: Vec<CacheSpec> = output
        .split("----\n")
        .filter(|json| !json.is_empty())
        .map(|json| CacheSpec::from_json(json).unwrap())
        .collect();
    assert_eq!(specs.len(), 2);
    assert_eq!(specs[0], arranged());
    assert_eq!(specs[1], from_tensors());
    under_valgrind(&program);
}
