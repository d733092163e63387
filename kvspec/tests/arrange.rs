//! Arranged pools: the geometry of known engines, and nothing wasted or overlapping in any of them.

use kvspec::arrange::ArrangeError;
use kvspec::kinds::*;
use kvspec::*;
use proptest::prelude::*;

fn arrange(tp: Shard, pools: impl IntoIterator<Item = Pool>) -> CacheSpec {
    let fingerprint = Fingerprint { model: "org/model".to_owned(), ..Fingerprint::default() };
    let topology = Topology { tp, ..Topology::default() };
    let arrange = pools.into_iter().fold(Arrange::new(fingerprint, topology), Arrange::pool);
    let spec = arrange.build().unwrap().spec;
    spec.clone().validate().unwrap();
    spec
}

/// `(offset, block stride, unit stride, token counts and strides)` of a part.
type Place = (u64, u64, u64, Vec<(u64, u64)>);

fn place(spec: &CacheSpec, layer: &str, part: &str) -> Place {
    let layer = spec.layers.iter().find(|found| found.name.as_str() == layer).unwrap();
    let part = layer.parts.iter().find(|found| found.name.as_str() == part).unwrap();
    let tokens = part.tokens.iter().map(|axis| (axis.count, axis.stride)).collect();
    (part.offset, part.block_stride, part.units.stride, tokens)
}

const HALF: Shard = Shard { rank: 0, size: 2 };
const WHOLE: Shard = Shard { rank: 0, size: 1 };

/// Two layers of 8 KV heads of 128, K and V packed, 16 tokens a block, 8 blocks, on one rank of two.
fn gqa(layout: Layout) -> CacheSpec {
    let attention = Attention::new(8, 128, Element::BF16);
    let blocks = Blocks::tokens(16).layer("0", attention.clone()).layer("1", attention);
    arrange(HALF, [Pool::new(layout, 8).blocks(blocks)])
}

#[test]
fn the_six_layouts_of_gqa_are_those_that_engines_use() {
    for (layout, first, second) in [
        (Layout::Lbhnc, (0, 32_768, 8192, 512), 262_144),
        (Layout::Lbnhc, (0, 32_768, 512, 2048), 262_144),
        (Layout::Lhbnc, (0, 8192, 65_536, 512), 262_144),
        (Layout::Blhnc, (0, 65_536, 8192, 512), 32_768),
        (Layout::Blnhc, (0, 65_536, 512, 2048), 32_768),
        (Layout::Bhlnc, (0, 65_536, 16_384, 512), 8192),
    ] {
        let spec = gqa(layout);
        let (offset, block, unit, token) = first;
        assert_eq!(place(&spec, "0", "k"), (offset, block, unit, vec![(16, token)]), "{layout}");
        assert_eq!(place(&spec, "0", "v").0, 256, "{layout}");
        assert_eq!(place(&spec, "1", "k"), (second, block, unit, vec![(16, token)]), "{layout}");
        assert_eq!(spec.storages[0].len, 524_288, "{layout}");
    }
}

#[test]
fn unequal_keys_and_values_share_rows() {
    let attention = Attention::new(8, 192, Element::BF16).value_head_size(128);
    let spec = arrange(HALF, [Pool::new(Layout::Lbhnc, 8).blocks(Blocks::tokens(16).layer("0", attention))]);
    assert_eq!(place(&spec, "0", "k"), (0, 40_960, 10_240, vec![(16, 640)]));
    assert_eq!(place(&spec, "0", "v"), (384, 40_960, 10_240, vec![(16, 640)]));
}

#[test]
fn nvfp4_pages_hold_all_heads_data_before_all_heads_scales() {
    let pool = |layout| {
        let nvfp4 = Nvfp4::new(8, 128);
        arrange(WHOLE, [Pool::new(layout, 8).blocks(Blocks::tokens(16).layer("0", nvfp4.clone()).layer("1", nvfp4))])
    };
    let rows = pool(Layout::Blhnc);
    assert_eq!(place(&rows, "1", "k"), (18_432, 36_864, 1024, vec![(16, 64)]));
    assert_eq!(place(&rows, "1", "k_scale"), (26_624, 36_864, 128, vec![(16, 8)]));
    assert_eq!(place(&rows, "1", "v"), (27_648, 36_864, 1024, vec![(16, 64)]));
    assert_eq!(place(&rows, "1", "v_scale"), (35_840, 36_864, 128, vec![(16, 8)]));
    let token_major = pool(Layout::Lbnhc);
    assert_eq!(place(&token_major, "0", "k"), (0, 18_432, 64, vec![(16, 512)]));
    assert_eq!(place(&token_major, "0", "v_scale"), (17_408, 18_432, 8, vec![(16, 64)]));
}

#[test]
fn state_slots_are_padded_to_the_attention_page_that_they_overlay() {
    let attention = Attention::new(8, 128, Element::BF16);
    let mamba = Mamba1::new(512, 16, 4);
    let state = |layers: [&str; 2]| Blocks::state().layer(layers[0], mamba.clone()).layer(layers[1], mamba.clone());
    let pool = Pool::new(Layout::Lbhnc, 12)
        .blocks(state(["0", "4"]))
        .blocks(state(["1", "5"]))
        .blocks(Blocks::tokens(16).layer("3", attention.clone()).layer("7", attention));
    let spec = arrange(HALF, [pool]);
    assert_eq!(place(&spec, "0", "conv.x"), (0, 32_768, 6, vec![]));
    assert_eq!(place(&spec, "0", "ssm"), (1536, 32_768, 64, vec![]));
    assert_eq!(place(&spec, "5", "ssm"), (394_752, 32_768, 64, vec![]));
    assert_eq!(place(&spec, "7", "k"), (393_216, 32_768, 8192, vec![(16, 512)]));
    assert_eq!(spec.storages[0].len, 786_432);
}

#[test]
fn groups_of_a_row_overlay_each_other_from_byte_0() {
    let delta = GatedDeltaNet::new(2, 128, 4, 64, 4).state_element(Element::BF16);
    let compressed = Mla::opaque(256, "bf16").tokens_per_state(TokensPerState::new(16, 1));
    let pool = Pool::new(Layout::Blhnc, 12)
        .blocks(Blocks::state().layer("0", delta.clone()).layer("1", delta))
        .blocks(Blocks::tokens(64).layer("attn", Attention::new(2, 128, Element::BF16)).layer("compressed", compressed))
        .blocks(Blocks::state().layer("r0", Ring::new(16, 256, "bf16")).layer("r1", Ring::new(16, 256, "bf16")));
    let spec = arrange(WHOLE, [pool.row_align(4096)]);
    let row = 143_360;
    assert_eq!(place(&spec, "1", "conv.q"), (70_144, row, 6, vec![]));
    assert_eq!(place(&spec, "attn", "k"), (0, row, 32_768, vec![(64, 512)]));
    assert_eq!(place(&spec, "compressed", "latent"), (65_536, row, 1024, vec![(4, 256)]));
    assert_eq!(place(&spec, "r1", "ring"), (4096, row, 4096, vec![(16, 256)]));
    assert_eq!(spec.storages[0].len, 12 * row);
    assert_eq!(spec.groups.iter().map(|group| group.pool).collect::<Vec<_>>(), [PoolId(0); 3]);
}

#[test]
fn kernel_blocks_lie_inside_blocks() {
    let pool = Pool::new(Layout::Lbnhc, 14).blocks(Blocks::tokens(256).kernel_tokens(64).layer("0", Mla::bf16()));
    let spec = arrange(WHOLE, [pool]);
    assert_eq!(place(&spec, "0", "latent"), (0, 294_912, 1152, vec![(4, 73_728), (64, 1152)]));
    // K and V in halves make a page of each kernel block.
    let halves = Attention::new(2, 64, Element::BF16).packing(KvPacking::Halves);
    let spec =
        arrange(WHOLE, [Pool::new(Layout::Lbhnc, 4).blocks(Blocks::tokens(32).kernel_tokens(16).layer("0", halves))]);
    assert_eq!(place(&spec, "0", "v"), (4096, 16_384, 2048, vec![(2, 8192), (16, 128)]));
}

#[test]
fn compressed_pages_are_padded_to_their_alignment() {
    let window = SlidingWindowMla(Mla::opaque(584, "v4").page_align(576));
    let pool = Pool::new(Layout::Blhnc, 40).blocks(Blocks::tokens(64).layer("0", window.clone()).layer("2", window));
    let spec = arrange(WHOLE, [pool]);
    assert_eq!(place(&spec, "2", "latent"), (37_440, 74_880, 37_376, vec![(64, 584)]));
}

#[test]
fn rows_come_before_units_in_a_rows_first_convolution() {
    let mamba = Mamba2::new(8, 4, 2, 8, 4).conv_order(ConvOrder::RowsFirst);
    let spec = arrange(HALF, [Pool::new(Layout::Lbhnc, 3).blocks(Blocks::state().layer("0", mamba))]);
    // A rank has 16 channels of x and 8 each of b and c: rows of 64 bytes.
    assert_eq!(place(&spec, "0", "conv.x"), (0, 4 * 128 + 192, 2, vec![(3, 64)]));
    assert_eq!(place(&spec, "0", "conv.c"), (48, 4 * 128 + 192, 2, vec![(3, 64)]));
    assert_eq!(place(&spec, "0", "ssm"), (192, 4 * 128 + 192, 128, vec![]));
}

#[test]
fn pools_memories_and_buffers_have_storages_of_their_own() {
    let host = Pool::new(Layout::Lbnhc, 10).blocks(Blocks::tokens(64).layer("0.latent", Mla::bf16())).shared();
    let scaled = BlockScaled::new(Attention::new(4, 64, Element::FP8_E4M3), Element::F32, 1);
    let device = Pool::new(Layout::Blhnc, 20)
        .mem(MemKind::Vram(3))
        .page_align(512)
        .blocks(Blocks::tokens(64).layer("0.index", Indexer::fp8()).layer("draft", scaled));
    let spec = arrange(HALF, [host, device]);
    let storages: Vec<_> = spec.storages.iter().map(|storage| (storage.mem, storage.shared, storage.len)).collect();
    let vram = MemKind::Vram(3);
    // Rows of the index page, padded to 8704, and two heads of 64 K and 64 V bytes; then a page of scales each.
    let expected = [
        (MemKind::Dram, true, 737_280),
        (vram, false, 20 * (8704 + 16_384)),
        (vram, false, 20 * 512),
        (vram, false, 20 * 512),
    ];
    assert_eq!(storages, expected);
    assert_eq!(spec.groups[1].pool, PoolId(1));
}

#[test]
fn what_cannot_be_placed_is_refused_by_layer_and_numbers() {
    let build = |pool: Pool| match Arrange::new(Fingerprint::default(), Topology::default()).pool(pool).build() {
        Err(SpecError::Arrange(error)) => error,
        other => panic!("{other:?}"),
    };
    let pool = |blocks| Pool::new(Layout::Bhlnc, 4).blocks(blocks);
    let error = build(pool(Blocks::tokens(64).kernel_tokens(48).layer("a", Mla::bf16())));
    assert_eq!(error.to_string(), "layer a: kernel_tokens 48 does not divide block_tokens 64");
    let compressed = Mla::bf16().tokens_per_state(TokensPerState::new(3, 1));
    let error = build(pool(Blocks::tokens(64).layer("a", compressed)));
    assert!(matches!(error, ArrangeError::PartialState { tokens: 64, .. }), "{error}");
    let error = build(pool(Blocks::state().layer("a", Mla::bf16())));
    assert!(matches!(error, ArrangeError::Usage { kind: Usage::Tokens, group: Usage::State, .. }), "{error}");
    let error = build(pool(Blocks::tokens(1).layer("a", Attention::new(1, 1, Element::INT4))));
    assert_eq!(error.to_string(), "layer a: part k: 1 elements of 4 bits are not a whole number of bytes");
    let error = build(pool(Blocks::tokens(1).layer("a", Mla::bf16().page_align(0))));
    assert!(matches!(error, ArrangeError::ZeroAlign { .. }), "{error}");
    for layout in Layout::ALL {
        for (num_blocks, tokens, row) in
            [(1, 1 << 40, 1 << 40), (u64::MAX, 2, 2), (1, 2, u64::MAX), (1 << 20, 1 << 20, 1 << 30)]
        {
            let blocks = Blocks::tokens(tokens).layer("a", Mla::opaque(row, "")).layer("b", Mla::opaque(row, ""));
            let error = build(Pool::new(layout, num_blocks).row_align(64).page_align(64).blocks(blocks));
            assert!(matches!(error, ArrangeError::TooLarge { .. }), "{layout}: {error}");
        }
    }
    let mut page = Attention::new(8, 64, Element::BF16).describe().unwrap();
    page.sections[0].parts[1].units = Units::Replicated(3);
    let error = build(pool(Blocks::tokens(1).layer("a", page.clone())));
    assert_eq!(error.to_string(), "layer a: parts k and v lie in one row but have 8 and 3 units");
    page.sections[0].parts.clear();
    let error = build(pool(Blocks::tokens(1).layer("a", page)));
    assert!(matches!(error, ArrangeError::EmptySection { section: 0, .. }), "{error}");
}

#[test]
fn addresses_are_given_for_each_storage() {
    let pool = Pool::new(Layout::Lbhnc, 4).blocks(Blocks::tokens(1).layer("a", Mla::bf16()));
    let arranged = Arrange::new(Fingerprint::default(), Topology::default()).pool(pool).build().unwrap();
    assert_eq!(arranged.clone().at(&[4096]).unwrap().storages[0].base, 4096);
    let error = arranged.at(&[]).unwrap_err();
    assert_eq!(error.to_string(), "0 addresses were given for 1 storages");
}

fn token_kind() -> impl Strategy<Value = Page> {
    let attention = (1..5u64, 1..9u64, 1..9u64, 0..3usize).prop_map(|(heads, head, value, packing)| {
        let packing = [KvPacking::Packed, KvPacking::Halves, KvPacking::Apart][packing];
        Attention::new(heads, head, Element::BF16).value_head_size(value).packing(packing).describe().unwrap()
    });
    let mla = (1..40u64, 0..3usize).prop_map(|(row, states)| {
        let states = [TokensPerState::ONE, TokensPerState::new(2, 1), TokensPerState::new(1, 2)][states];
        Mla::opaque(row, "x").tokens_per_state(states).describe().unwrap()
    });
    let nvfp4 = (1..5u64, 1..3u64).prop_map(|(heads, size)| Nvfp4::new(heads, size * 16).describe().unwrap());
    prop_oneof![attention, mla, nvfp4]
}

fn state_kind() -> impl Strategy<Value = Page> {
    let mamba = (1..5u64, 1..4u64, 1..4u64, any::<bool>()).prop_map(|(heads, size, groups, rows)| {
        let order = if rows { ConvOrder::RowsFirst } else { ConvOrder::ChannelsFirst };
        Mamba2::new(heads, size, groups, 4, 4).conv_order(order).describe().unwrap()
    });
    let ring = (1..9u64, 1..9u64, 1..4u64)
        .prop_map(|(len, row, heads)| Ring::new(len, row, "x").sharded_heads(heads).describe().unwrap());
    prop_oneof![mamba, ring]
}

fn blocks() -> impl Strategy<Value = Vec<(bool, Vec<Page>)>> {
    let tokens = prop::collection::vec(token_kind(), 1..4).prop_map(|pages| (true, pages));
    let state = prop::collection::vec(state_kind(), 1..4).prop_map(|pages| (false, pages));
    prop::collection::vec(prop_oneof![tokens, state], 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn prop_every_arranged_pool_is_valid_and_wastes_nothing(
        groups in blocks(),
        layout in prop::sample::select(Layout::ALL.to_vec()),
        (size, rank) in (1..5u32, 0..5u32),
        num_blocks in 1..6u64,
        kernel in prop::sample::select(vec![2u64, 4, 8]),
        (row_align, page_align) in prop_oneof![Just((1u64, 1u64)), (1..70u64, 1..20u64)],
    ) {
        let mut pool = Pool::new(layout, num_blocks).row_align(row_align).page_align(page_align);
        for (index, (tokens, pages)) in groups.iter().enumerate() {
            let mut blocks = if *tokens { Blocks::tokens(8).kernel_tokens(kernel) } else { Blocks::state() };
            for (layer, page) in pages.iter().enumerate() {
                blocks = blocks.layer(format!("{index}.{layer}"), page.clone());
            }
            pool = pool.blocks(blocks);
        }
        let tp = Shard { rank: rank % size, size };
        let spec = arrange(tp, [pool]);
        if groups.len() == 1 && (row_align, page_align) == (1, 1) {
            let cells: u64 = spec.layers.iter().flat_map(|layer| &layer.parts).map(|part| {
                part.content * part.units.count * part.tokens.iter().map(|axis| axis.count).product::<u64>()
            }).sum();
            let bytes: u64 = spec.storages.iter().map(|storage| storage.len).sum();
            prop_assert_eq!(bytes, cells * num_blocks);
        }
    }
}
