//! The worked examples of the design: MLA of 1,152 B a token and 64 tokens a block, GQA with K and V packed in 512 B a
//! head and token, block sizes that differ, and a Mamba2 state. Local blocks 5, 6, 9 read remote blocks 1, 2, 8 unless
//! an example says otherwise.

use kvplan::{BlockList, Descriptors, Layers, Op, PairOptions, PairPlan, Refusal, Request};
use kvspec::{
    Axis, BlockId, CacheSpec, Fingerprint, Group, GroupId, Kind, Layer, LayerIndex, MemKind, Part, PoolId, Role,
    SPEC_VERSION, Shard, Sharding, Storage, StorageIndex, Topology, Usage, ValidSpec,
};

const TOKENS: u64 = 64;
const NUM_BLOCKS: u64 = 64;
const PAGE: u64 = 73_728;

fn part(name: &str, offset: u64, block_stride: u64, tokens: (u64, u64), content: u64) -> Part {
    Part {
        name: name.into(),
        storage: StorageIndex(0),
        offset,
        block_stride,
        sharding: Sharding::Replicated,
        units: Axis { count: 1, stride: content },
        tokens: vec![Axis { count: tokens.0, stride: tokens.1 }],
        content,
        tokens_per_state: Default::default(),
        format: String::new(),
    }
}

fn layer(name: &str, kind: Kind, parts: Vec<Part>) -> Layer {
    Layer { name: name.into(), group: GroupId(0), kind, role: Role::Target, transfer: true, parts }
}

fn spec(tp: (u32, u32), block_tokens: u64, usage: Usage, layers: Vec<Layer>) -> ValidSpec {
    CacheSpec {
        version: SPEC_VERSION,
        fingerprint: Fingerprint { model: "worked".into(), ..Default::default() },
        topology: Topology { tp: Shard { rank: tp.0, size: tp.1 }, ..Default::default() },
        storages: vec![Storage { base: 1 << 32, len: 1 << 30, mem: MemKind::Dram, shared: false }],
        groups: vec![Group { pool: PoolId(0), block_tokens, num_blocks: NUM_BLOCKS, usage }],
        layers,
    }
    .validate()
    .unwrap()
}

/// Three MLA layers; block-outermost rows of three pages, or layer-outermost pages.
fn mla(block_tokens: u64, block_outermost: bool) -> ValidSpec {
    let page = block_tokens * 1152;
    let layers = (0..3).map(|i| {
        let (offset, stride) = if block_outermost { (i * page, 3 * page) } else { (i * NUM_BLOCKS * page, page) };
        layer(&format!("layers.{i}"), Kind::Mla, vec![part("latent", offset, stride, (block_tokens, 1152), 1152)])
    });
    spec((0, 1), block_tokens, Usage::Tokens, layers.collect())
}

/// One attention layer of 8 heads, K and V packed, head-major or token-major.
fn gqa(tp: (u32, u32), head_major: bool) -> ValidSpec {
    let heads = u64::from(8 / tp.1);
    let (token, head) = if head_major { (512, TOKENS * 512) } else { (heads * 512, 512) };
    let kv = Part {
        sharding: Sharding::Sharded { total: 8, first: None },
        units: Axis { count: heads, stride: head },
        ..part("kv", 0, heads * TOKENS * 512, (TOKENS, token), 512)
    };
    spec(tp, TOKENS, Usage::Tokens, vec![layer("layers.0", Kind::Attention, vec![kv])])
}

fn options(max_gap: u64) -> PairOptions {
    PairOptions { max_gap, ..Default::default() }
}

fn list(first: u64, blocks: &[u32]) -> Vec<BlockList> {
    vec![BlockList { group: GroupId(0), first: Some(first), blocks: blocks.iter().copied().map(BlockId).collect() }]
}

/// (local offset, remote offset, length) of every descriptor, and the ranges to zero.
type Moves = (Vec<(u64, u64, u64)>, Vec<(u64, u64)>);

fn moves(local: &ValidSpec, remote: &ValidSpec, l: Vec<BlockList>, r: Vec<BlockList>) -> Moves {
    let plan = PairPlan::new(local, remote, &options(0)).unwrap();
    let request = Request { op: Op::Read, local: l, remote: r, ..Request::default() };
    let mut answer = Descriptors::new();
    plan.descriptors(&request, &mut answer).unwrap();
    plan.verify(&request, &answer).unwrap();
    (
        answer.as_slice().iter().map(|d| (d.local_offset, d.remote_offset, d.len)).collect(),
        answer.zero().iter().map(|z| (z.offset, z.len)).collect(),
    )
}

fn usual(local: &ValidSpec, remote: &ValidSpec) -> Vec<(u64, u64, u64)> {
    moves(local, remote, list(0, &[5, 6, 9]), list(0, &[1, 2, 8])).0
}

#[test]
fn example_1_whole_rows_move_as_one_descriptor_and_neighbours_merge() {
    let row = 3 * PAGE;
    let found = usual(&mla(64, true), &mla(64, true));
    assert_eq!(found, [(5 * row, row, 442_368), (9 * row, 8 * row, 221_184)]);
}

#[test]
fn example_1_some_layers_of_a_row_move_as_one_descriptor_a_block() {
    let row = 3 * PAGE;
    let worker = mla(64, true);
    let plan = PairPlan::new(&worker, &worker, &options(0)).unwrap();
    let asked = |layers: Layers| {
        let (local, remote) = (list(0, &[5, 6, 9]), list(0, &[1, 2, 8]));
        let request = Request { op: Op::Read, local, remote, layers, ..Request::default() };
        let mut answer = Descriptors::new();
        plan.descriptors(&request, &mut answer).unwrap();
        plan.verify(&request, &answer).unwrap();
        answer
    };
    let moves = |answer: &Descriptors| -> Vec<_> {
        answer.as_slice().iter().map(|d| (d.local_offset, d.remote_offset, d.len)).collect()
    };
    let named = |names: &[&str]| Layers::Named(names.iter().map(|&name| name.into()).collect());
    let names: Vec<&str> = worker.layers.iter().map(|layer| layer.name.as_str()).collect();

    // The last two of three layers: two pages that touch, apart from block to block.
    let two: Vec<_> = [(5, 1), (6, 2), (9, 8)].map(|(l, r)| (l * row + PAGE, r * row + PAGE, 2 * PAGE)).into();
    for layers in [Layers::Range(1..3), named(&names[1..]), named(&[names[2], names[1], names[2]])] {
        let answer = asked(layers);
        assert_eq!(moves(&answer), two);
        let some = answer.some_layers().expect("some layers");
        assert_eq!(
            (&some.moved[..], &some.of[..]),
            (&[LayerIndex(1), LayerIndex(2)][..], &[0, 1, 2].map(LayerIndex)[..])
        );
    }
    // The first and the last touch from block 5 to block 6 alone.
    assert_eq!(asked(named(&[names[0], names[2]])).as_slice().len(), 5);
    // All of them are the row again, however they are asked for, and none are nothing.
    let all = moves(&asked(Layers::All));
    assert_eq!(all, [(5 * row, row, 2 * row), (9 * row, 8 * row, row)]);
    assert_eq!((moves(&asked(Layers::Range(0..3))), moves(&asked(named(&names)))), (all.clone(), all));
    assert!(asked(Layers::Range(2..2)).as_slice().is_empty() && asked(named(&[])).as_slice().is_empty());
}

#[test]
fn example_2_a_row_is_split_for_a_layer_outermost_peer() {
    let found = usual(&mla(64, false), &mla(64, true));
    assert_eq!(found.len(), 9);
    assert!(found.iter().all(|&(_, _, len)| len == PAGE));
    let first_pages: Vec<u64> = found.iter().step_by(3).map(|&(_, remote, _)| remote % (3 * PAGE)).collect();
    assert_eq!(first_pages, [0, PAGE, 2 * PAGE]);
}

#[test]
fn example_3_a_head_major_slice_is_one_descriptor_a_block() {
    let found = usual(&gqa((1, 4), true), &gqa((0, 1), true));
    let at = |l: u64, r: u64| (l * 65_536, r * 262_144 + 65_536, 65_536);
    assert_eq!(found, [at(5, 1), at(6, 2), at(9, 8)]);
}

#[test]
fn example_4_a_token_major_slice_is_a_descriptor_a_token_and_min_run_refuses_it() {
    let (local, remote) = (gqa((1, 4), false), gqa((0, 1), false));
    let found = usual(&local, &remote);
    assert_eq!(found.len(), 3 * 64);
    assert_eq!(found[1], (5 * 65_536 + 1024, 262_144 + 1024 + 4096, 1024));
    assert!(PairPlan::new(&local, &remote, &PairOptions { min_run: 1024, ..options(0) }).is_ok());
    let refused = PairPlan::new(&local, &remote, &PairOptions { min_run: 1025, ..options(0) }).unwrap_err();
    assert!(matches!(&refused.refusals[..], [Refusal::ShortRuns { run: 1024, min_run: 1025, .. }]));
}

/// Three MLA layers and the draft's 8 heads packed into one row.
fn packed_draft(tp: (u32, u32)) -> ValidSpec {
    let heads = u64::from(8 / tp.1);
    let stride = 3 * PAGE + heads * 32_768;
    let latent = |i: u64| vec![part("latent", i * PAGE, stride, (64, 1152), 1152)];
    let kv = Part {
        sharding: Sharding::Sharded { total: 8, first: None },
        units: Axis { count: heads, stride: 32_768 },
        ..part("kv", 3 * PAGE, stride, (64, 512), 512)
    };
    let mut layers: Vec<Layer> = (0..3).map(|i| layer(&format!("layers.{i}"), Kind::Mla, latent(i))).collect();
    layers.push(Layer { role: Role::Draft, ..layer("draft.0", Kind::Attention, vec![kv]) });
    spec(tp, 64, Usage::Tokens, layers)
}

#[test]
fn example_5_a_packed_draft_travels_with_the_row_or_as_its_slice() {
    let (local_row, remote_row) = (286_720, 483_328);
    let found = usual(&packed_draft((0, 4)), &packed_draft((0, 1)));
    assert_eq!(found[0], (5 * local_row, remote_row, 286_720));
    assert_eq!(found.len(), 3);
    let found = usual(&packed_draft((1, 4)), &packed_draft((0, 1)));
    assert_eq!(found.len(), 6);
    assert_eq!(found[0], (5 * local_row, remote_row, 221_184));
    assert_eq!(found[1], (5 * local_row + 221_184, remote_row + 286_720, 65_536));
}

#[test]
fn example_6_smaller_local_blocks_are_cut_from_larger_remote_ones() {
    let local_blocks = list(1, &[20, 21, 22, 23, 30]);
    let (rows, zero) = moves(&mla(16, true), &mla(64, true), local_blocks.clone(), list(0, &[1, 2]));
    assert_eq!((rows.len(), zero.len()), (14, 0));
    let (pages, _) = moves(&mla(16, false), &mla(64, false), local_blocks, list(0, &[1, 2]));
    assert_eq!(pages.len(), 6);
}

#[test]
fn example_6_what_a_larger_local_block_lacks_is_zeroed() {
    let (found, zero) = moves(&mla(64, true), &mla(16, true), list(0, &[3, 4]), list(0, &[20, 21, 22, 23, 30]));
    assert_eq!(found.len(), 15);
    assert_eq!(zero.iter().map(|&(_, len)| len).collect::<Vec<_>>(), [55_296; 3]);
}

fn mamba2(tp: (u32, u32)) -> ValidSpec {
    let n = u64::from(tp.1);
    let mut at = 0;
    let mut state = |name: &str, total: u64, content: u64| {
        let units = total / n;
        let part = Part {
            sharding: Sharding::Sharded { total, first: None },
            units: Axis { count: units, stride: content },
            tokens: vec![],
            ..part(name, at, 4_000_000, (1, 0), content)
        };
        at += units * content;
        part
    };
    let parts =
        vec![state("conv.x", 4096, 6), state("conv.b", 1024, 6), state("conv.c", 1024, 6), state("ssm", 64, 32_768)];
    spec(tp, 1, Usage::State, vec![layer("layers.0", Kind::Ssm, parts)])
}

#[test]
fn example_7_each_sub_projection_of_a_state_is_sliced_by_itself() {
    let (found, _) = moves(&mamba2((1, 2)), &mamba2((0, 1)), list(0, &[0]), list(0, &[0]));
    let expected =
        [(0, 12_288, 12_288), (12_288, 27_648, 3_072), (15_360, 33_792, 3_072), (18_432, 1_085_440, 1_048_576)];
    assert_eq!(found, expected);
}
