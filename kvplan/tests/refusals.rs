//! Every refusal and every request error, each by the one fault that causes it.

use std::collections::HashSet;
use std::mem::discriminant;

use kvplan::{Align, BlockList, Descriptors, Layers, Op, PairOptions, PairPlan, Refusal, Request, RequestError, Side};
use kvspec::{
    Axis, BlockId, CacheSpec, ContextShard, Fingerprint, Group, GroupId, Kind, Layer, MemKind, Part, PoolId, Role,
    SPEC_VERSION, Sharding, Storage, StorageIndex, TokensPerState, Topology, Usage,
};

const NUM_HEADS: u64 = 8;
const TOKENS: u64 = 64;
const CELL: u64 = 16;
const NUM_BLOCKS: u64 = 8;

fn part(name: &str, total: u64, content: u64) -> Part {
    Part {
        name: name.into(),
        storage: StorageIndex(0),
        offset: 0,
        block_stride: total * content,
        sharding: Sharding::Sharded { total, first: None },
        units: Axis { count: total, stride: content },
        tokens: Vec::new(),
        content,
        tokens_per_state: TokensPerState::ONE,
        format: String::new(),
    }
}

fn layer(name: &str, group: u32, kind: Kind, part: Part) -> Layer {
    Layer { name: name.into(), group: GroupId(group), kind, role: Role::Target, transfer: true, parts: vec![part] }
}

/// Runs that a plan may hold: 128 MiB at 288 bytes each.
const MAX_RUNS: u64 = 466_033;

/// `tokens` tokens a block, cell by cell: heads outermost, or tokens outermost.
fn lay_out(part: &mut Part, tokens: u64, head_major: bool) {
    let (head, token) = if head_major { (tokens * CELL, CELL) } else { (CELL, NUM_HEADS * CELL) };
    part.units.stride = head;
    part.tokens = vec![Axis { count: tokens, stride: token }];
    part.block_stride = NUM_HEADS * tokens * CELL;
}

/// An attention layer of 8 heads, head-major, and a layer of request state of 4 units, in storages of their own.
fn base() -> CacheSpec {
    let storage = |base| Storage { base, len: 1 << 36, mem: MemKind::Dram, shared: false };
    let mut kv = part("kv", NUM_HEADS, CELL);
    lay_out(&mut kv, TOKENS, true);
    let state = Part { storage: StorageIndex(1), ..part("state", 4, 32) };
    let group = |pool, block_tokens, usage| Group { pool: PoolId(pool), block_tokens, num_blocks: NUM_BLOCKS, usage };
    CacheSpec {
        version: SPEC_VERSION,
        fingerprint: Fingerprint { model: "org/model".into(), ..Default::default() },
        topology: Topology::default(),
        storages: vec![storage(1 << 40), storage(1 << 41)],
        groups: vec![group(0, TOKENS, Usage::Tokens), group(1, 1, Usage::State)],
        layers: vec![layer("attn", 0, Kind::Attention, kv), layer("ssm", 1, Kind::Ssm, state)],
    }
}

fn refusals(local: CacheSpec, remote: CacheSpec, options: PairOptions) -> Vec<Refusal> {
    let (local, remote) = (local.validate().unwrap(), remote.validate().unwrap());
    PairPlan::new(&local, &remote, &options).map(|_| Vec::new()).unwrap_or_else(|error| error.refusals)
}

/// What the two sides and the options become, from [`base`].
type Fault = fn(&mut CacheSpec, &mut CacheSpec, &mut PairOptions);

fn drop_state(spec: &mut CacheSpec) {
    spec.layers.truncate(1);
    spec.groups.truncate(1);
}

/// Blocks of this many tokens, heads outermost here and tokens outermost at the peer.
fn cross(local: &mut CacheSpec, remote: &mut CacheSpec, tokens: u64) {
    for (spec, head_major) in [(local, true), (remote, false)] {
        spec.groups[0].block_tokens = tokens;
        lay_out(&mut spec.layers[0].parts[0], tokens, head_major);
    }
}

fn faults() -> Vec<(Fault, Refusal)> {
    let attn = || ("attn".into(), "kv".into());
    let state = || ("ssm".into(), "state".into());
    let mut table: Vec<(Fault, Refusal)> = Vec::new();
    table.push((
        |_, remote, _| remote.fingerprint.model = "org/other".into(),
        Refusal::Fingerprint { field: "model".into(), local: "org/model".into(), remote: "org/other".into() },
    ));
    table.push((
        |_, remote, _| drop_state(remote),
        Refusal::LayerMissing { layer: "ssm".into(), missing_at: Side::Remote },
    ));
    table.push((
        |_, remote, _| remote.layers[1].transfer = false,
        Refusal::Transfer { layer: "ssm".into(), local: true, remote: false },
    ));
    table.push((
        |_, remote, _| remote.groups[1].usage = Usage::Tokens,
        Refusal::Usage { layer: "ssm".into(), local: Usage::State, remote: Usage::Tokens },
    ));
    table.push((
        |_, remote, _| {
            let more = Part { name: "more".into(), offset: 1 << 20, ..remote.layers[1].parts[0].clone() };
            remote.layers[1].parts.push(more);
        },
        Refusal::PartMissing { layer: "ssm".into(), part: "more".into(), missing_at: Side::Local },
    ));
    let (layer, part) = attn();
    table.push((
        |_, remote, _| remote.layers[0].parts[0].content = 8,
        Refusal::Content { layer, part, local: 16, remote: 8 },
    ));
    let (layer, part) = attn();
    table.push((
        |local, remote, _| {
            local.layers[0].parts[0].format = "bf16".into();
            remote.layers[0].parts[0].format = "f16".into();
        },
        Refusal::Format { layer, part, local: "bf16".into(), remote: "f16".into() },
    ));
    let (layer, part) = attn();
    table.push((
        |_, remote, _| {
            let part = &mut remote.layers[0].parts[0];
            lay_out(part, TOKENS / 4, true);
            part.tokens_per_state = TokensPerState::new(4, 1);
        },
        Refusal::TokensPerState { layer, part, local: TokensPerState::ONE, remote: TokensPerState::new(4, 1) },
    ));
    let (layer, part) = attn();
    table.push((
        |_, remote, _| remote.layers[0].parts[0].sharding = Sharding::Replicated,
        Refusal::Sharding { layer, part, local: "sharded in 8 units".into(), remote: "replicated in 8 units".into() },
    ));
    let (layer, part) = state();
    table.push((
        |_, remote, _| {
            let part = &mut remote.layers[1].parts[0];
            part.tokens = vec![Axis { count: 3, stride: 128 }];
            part.block_stride = 3 * 128;
        },
        Refusal::StateSlots { layer, part, local: 1, remote: 3 },
    ));
    table.extend(faults_of_geometry());
    table
}

fn faults_of_geometry() -> Vec<(Fault, Refusal)> {
    let attn = || ("attn".into(), "kv".into());
    let mut table: Vec<(Fault, Refusal)> = Vec::new();
    let (layer, part) = attn();
    // The peer's two context-parallel ranks take turns every 6 tokens; a state covers 4.
    table.push((
        |local, remote, _| {
            remote.topology.tp.size = 2;
            remote.topology.dcp = ContextShard { rank: 0, size: 2, interleave: Some(6) };
            for spec in [local, remote] {
                drop_state(spec);
                spec.groups[0].block_tokens = 12;
                lay_out(&mut spec.layers[0].parts[0], 3, true);
                spec.layers[0].parts[0].sharding = Sharding::Replicated;
                spec.layers[0].parts[0].tokens_per_state = TokensPerState::new(4, 1);
            }
        },
        Refusal::CutInsideState { layer, part, tokens_per_state: TokensPerState::new(4, 1), token: 0 },
    ));
    // Two primes above 2^20: the blocks' edges meet again after more than 2^20 of them.
    table.push((
        |local, remote, _| {
            for (spec, tokens) in [(local, 1_048_583), (remote, 1_048_589)] {
                spec.groups[0].block_tokens = tokens;
                lay_out(&mut spec.layers[0].parts[0], tokens, true);
            }
        },
        Refusal::Irregular { layer: "attn".into(), local: 1_048_583, remote: 1_048_589 },
    ));
    table.push((
        |local, remote, _| cross(local, remote, 1 << 20),
        Refusal::TooManyRuns { layer: "attn".into(), runs: 8 << 20, before: 0, limit: MAX_RUNS },
    ));
    let (layer, part) = attn();
    table.push((
        |local, remote, options| {
            cross(local, remote, TOKENS);
            options.min_run = CELL + 1;
        },
        Refusal::ShortRuns { layer, part, run: CELL, min_run: CELL + 1 },
    ));
    table
}

#[test]
fn every_fault_is_refused_by_its_own_variant_with_its_numbers() {
    assert_eq!(refusals(base(), base(), PairOptions::default()), [], "without a fault the pair is planned");
    let mut variants = HashSet::new();
    for (fault, expected) in faults() {
        let (mut local, mut remote, mut options) = (base(), base(), PairOptions::default());
        fault(&mut local, &mut remote, &mut options);
        assert_eq!(refusals(local, remote, options), std::slice::from_ref(&expected));
        assert!(variants.insert(discriminant(&expected)), "{expected:?} is in the table twice");
    }
    // All but `RowBroken`, whose test is below.
    assert_eq!(variants.len(), 14);
}

#[test]
fn a_broken_row_names_the_layer_and_the_number_of_descriptors() {
    let (mut local, mut remote) = (base(), base());
    cross(&mut local, &mut remote, TOKENS);
    let options = PairOptions { require_whole_rows: true, ..Default::default() };
    let found = refusals(local, remote, options);
    assert!(
        matches!(&found[..], [Refusal::RowBroken { layer, descriptors: 512, .. }] if layer.as_str() == "attn"),
        "{found:?}"
    );
}

#[test]
fn several_faults_of_one_pair_are_all_told_in_order() {
    let (mut local, mut remote) = (base(), base());
    local.fingerprint.extra.insert("backend".into(), "a".into());
    remote.fingerprint.revision = "r2".into();
    let extra = Layer { name: "only.here".into(), ..local.layers[0].clone() };
    local.layers.insert(0, Layer { parts: vec![Part { offset: 1 << 30, ..extra.parts[0].clone() }], ..extra });
    let kv = &mut remote.layers[0].parts[0];
    (kv.content, kv.format) = (8, "fp8".into());
    remote.layers[1].parts[0].tokens = vec![Axis { count: 2, stride: 128 }];
    remote.layers[1].parts[0].block_stride = 256;
    let there = Layer { name: "only.there".into(), ..remote.layers[0].clone() };
    remote.layers.push(Layer { parts: vec![Part { offset: 1 << 30, ..there.parts[0].clone() }], ..there });

    let fingerprint = |field: &str, local: &str, remote: &str| Refusal::Fingerprint {
        field: field.into(),
        local: local.into(),
        remote: remote.into(),
    };
    let missing = |layer: &str, missing_at| Refusal::LayerMissing { layer: layer.into(), missing_at };
    let expected = [
        fingerprint("revision", "", "r2"),
        fingerprint("extra.backend", "a", ""),
        missing("only.here", Side::Remote),
        Refusal::Content { layer: "attn".into(), part: "kv".into(), local: 16, remote: 8 },
        Refusal::Format { layer: "attn".into(), part: "kv".into(), local: String::new(), remote: "fp8".into() },
        Refusal::StateSlots { layer: "ssm".into(), part: "state".into(), local: 1, remote: 2 },
        missing("only.there", Side::Local),
    ];
    assert_eq!(refusals(local, remote, PairOptions::default()), expected);
}

#[test]
fn every_refusal_says_what_to_change() {
    for (_, refusal) in faults() {
        let message = refusal.to_string();
        let (fact, remedy) = message.split_once("; ").unwrap_or((&message, ""));
        assert!(!fact.is_empty() && remedy.len() > 10, "no remedy in: {message}");
    }
}

fn list(group: u32, first: u64, blocks: &[u32]) -> BlockList {
    BlockList { group: GroupId(group), first: Some(first), blocks: blocks.iter().copied().map(BlockId).collect() }
}

#[test]
fn every_faulty_request_is_refused_by_its_own_variant_with_its_numbers() {
    let spec = base().validate().unwrap();
    let plan = PairPlan::new(&spec, &spec, &PairOptions::default()).unwrap();
    let attn = |first, blocks: &[u32]| vec![list(0, first, blocks)];
    let hole = BlockId::HOLE.0;
    let table: Vec<(Op, Vec<BlockList>, Vec<BlockList>, RequestError)> = vec![
        (Op::Write, vec![], vec![], RequestError::Direction { request: Op::Write, plan: Op::Read }),
        (
            Op::Read,
            attn(0, &[1]),
            vec![list(2, 0, &[1])],
            RequestError::UnknownGroup { side: Side::Remote, group: GroupId(2), num_groups: 2 },
        ),
        (
            Op::Read,
            vec![list(0, 0, &[1]), list(1, 0, &[1]), list(0, 1, &[2])],
            attn(0, &[1]),
            RequestError::GroupTwice { side: Side::Local, group: GroupId(0) },
        ),
        (
            Op::Read,
            attn(0, &[7, 8]),
            attn(0, &[1, 2]),
            RequestError::BlockOutOfRange { side: Side::Local, group: GroupId(0), block: BlockId(8), num_blocks: 8 },
        ),
        (
            Op::Read,
            attn(0, &[3, 4, 3]),
            attn(0, &[1, 2, 3]),
            RequestError::BlockTwice {
                side: Side::Local,
                block: BlockId(3),
                pool: PoolId(0),
                first: GroupId(0),
                second: GroupId(0),
            },
        ),
        (
            Op::Read,
            attn(1 << 58, &[1]),
            attn(0, &[1]),
            RequestError::PositionOverflow { side: Side::Local, group: GroupId(0), first: 1 << 58, len: 1 },
        ),
        (
            Op::Read,
            attn(0, &[5, 6]),
            attn(1, &[1]),
            RequestError::NotCovered {
                group: GroupId(0),
                index: 0,
                block: BlockId(5),
                source_group: GroupId(0),
                source_first: 1,
                source_end: 2,
            },
        ),
        (
            Op::Read,
            attn(0, &[5, 6]),
            attn(0, &[1, hole]),
            RequestError::SourceHole {
                group: GroupId(0),
                index: 1,
                block: BlockId(6),
                source_group: GroupId(0),
                source_index: 1,
            },
        ),
    ];
    let mut variants = HashSet::new();
    let mut answer = Descriptors::new();
    for (op, local, remote, expected) in table {
        plan.descriptors(
            &Request { op: Op::Read, local: attn(0, &[5]), remote: attn(0, &[1]), ..Request::default() },
            &mut answer,
        )
        .unwrap();
        let refused = plan.descriptors(&Request { op, local, remote, ..Request::default() }, &mut answer);
        assert_eq!(refused, Err(expected.clone()));
        assert!(answer.as_slice().is_empty() && answer.zero().is_empty(), "the buffer is empty after {expected}");
        assert!(variants.insert(discriminant(&expected)), "{expected:?} is in the table twice");
    }
    assert_eq!(variants.len(), 8);
}

#[test]
fn lists_of_other_lengths_are_refused_until_the_request_says_where_they_begin() {
    let spec = base().validate().unwrap();
    let plan = PairPlan::new(&spec, &spec, &PairOptions::default()).unwrap();
    let ask = |json: &str| {
        let request = Request::from_json(json).unwrap();
        let mut answer = Descriptors::new();
        let answered = plan.descriptors(&request, &mut answer);
        assert_eq!(plan.verify(&request, &answer).map_err(|_| ()), answered.clone().map_err(|_| ()), "{json}");
        answered.map(|()| {
            answer.as_slice().iter().map(|d| d.remote_offset / (NUM_HEADS * TOKENS * CELL)).collect::<Vec<_>>()
        })
    };
    let lists = |first: &str, rest: &str| {
        format!(
            r#"{{"op": "read", "local": [{{"group": 0, {first}"blocks": [0]}}],
                 "remote": [{{"group": 0, "blocks": [7, 5, 3]}}]{rest}}}"#
        )
    };
    let misaligned =
        RequestError::Misaligned { local_group: GroupId(0), local_len: 1, remote_group: GroupId(0), remote_len: 3 };
    assert_eq!(ask(&lists("", "")), Err(misaligned));
    assert_eq!(ask(&lists(r#""first": 0, "#, "")), Ok(vec![7]));
    assert_eq!(ask(&lists(r#""first": 2, "#, "")), Ok(vec![3]));
    assert_eq!(ask(&lists("", r#", "align": "head""#)), Ok(vec![7]));
    assert_eq!(ask(&lists("", r#", "align": "tail""#)), Ok(vec![3]));
    assert_eq!(ask(&lists(r#""first": 1, "#, r#", "align": "tail""#)).ok(), None, "three blocks do not end at two");
    assert!(Request::from_json(&lists("", r#", "align": "middle""#)).is_err());
    // State counts slots.
    let slots = r#"{"op": "read", "local": [{"group": 1, "blocks": [0]}], "remote": [{"group": 1, "blocks": [7, 5]}]}"#;
    assert!(matches!(ask(slots), Err(RequestError::Misaligned { local_group: GroupId(1), .. })));
}

#[test]
fn a_list_has_one_place_or_none() {
    // Blocks of 16 tokens do not say how full a last block of 64 is.
    let mut coarse = base();
    drop_state(&mut coarse);
    let mut fine = coarse.clone();
    fine.groups[0].block_tokens = TOKENS / 4;
    lay_out(&mut fine.layers[0].parts[0], TOKENS / 4, true);
    let (coarse, fine) = (coarse.validate().unwrap(), fine.validate().unwrap());
    let plan = PairPlan::new(&fine, &coarse, &PairOptions::default()).unwrap();
    let unsaid = |blocks: &[u32]| vec![BlockList { first: None, ..list(0, 0, blocks) }];
    let request =
        Request { local: unsaid(&[0, 1]), remote: unsaid(&[0, 1, 2]), align: Some(Align::Tail), ..Request::default() };
    let no_tail =
        RequestError::NoTail { local_group: GroupId(0), local_len: 2, remote_group: GroupId(0), remote_len: 3 };
    assert_eq!(plan.descriptors(&request, &mut Descriptors::new()), Err(no_tail));

    // One group here meets two there, of which one lists a whole prompt and the other its tail.
    let mut here = base();
    drop_state(&mut here);
    let other = Layer { name: "other".into(), ..here.layers[0].clone() };
    here.layers.push(Layer { parts: vec![Part { offset: 1 << 30, ..other.parts[0].clone() }], ..other });
    let mut there = here.clone();
    there.groups.push(Group { pool: PoolId(1), ..there.groups[0] });
    there.layers[1].group = GroupId(1);
    let (here, there) = (here.validate().unwrap(), there.validate().unwrap());
    let plan = PairPlan::new(&here, &there, &PairOptions::default()).unwrap();
    let of = |group, blocks: &[u32]| BlockList { first: None, ..list(group, 0, blocks) };
    let remote = vec![of(0, &[0, 1, 2]), of(1, &[4])];
    let request = Request { local: unsaid(&[0]), remote, align: Some(Align::Tail), ..Request::default() };
    let two = RequestError::TwoPlaces { side: Side::Local, group: GroupId(0), first: 2, other: 0 };
    assert_eq!(plan.descriptors(&request, &mut Descriptors::new()), Err(two));
}

#[test]
fn layers_that_cannot_be_moved_by_themselves_are_refused_with_what_stands_against_it() {
    let (mut local, mut remote) = (base(), base());
    cross(&mut local, &mut remote, TOKENS);
    let (local, remote) = (local.validate().unwrap(), remote.validate().unwrap());
    let plan = |options| PairPlan::new(&local, &remote, &options).unwrap();
    let ask = |plan: &PairPlan, layers| {
        let request = Request { layers, ..Request::default() };
        let mut answer = Descriptors::new();
        let answered = plan.descriptors(&request, &mut answer);
        let proven = plan.verify(&request, &answer);
        assert_eq!(proven.is_ok(), answered.is_ok(), "{proven:?}");
        answered
    };
    let any = plan(PairOptions::default());
    let unknown = ask(&any, Layers::Named(vec!["attn".into(), "attm".into()]));
    assert_eq!(unknown, Err(RequestError::UnknownLayer { layer: "attm".into() }));
    for (from, to) in [(0, 3), (3, 3), (2, 1), (0, u32::MAX)] {
        let beyond = ask(&any, Layers::Range(from..to));
        assert_eq!(beyond, Err(RequestError::LayerRange { from, to, num_layers: 2 }));
    }
    assert_eq!(ask(&any, Layers::Range(2..2)), Ok(()));
}

#[test]
fn the_options_of_a_plan_hold_for_some_of_its_layers_too() {
    // Two layers whose cells alternate: together a token is one run, apart it is two.
    let mut spec = base();
    drop_state(&mut spec);
    let kv = &mut spec.layers[0].parts[0];
    *kv = part("kv", 1, CELL);
    (kv.tokens, kv.block_stride) = (vec![Axis { count: TOKENS, stride: 2 * CELL }], 2 * CELL * TOKENS);
    let other =
        Layer { name: "other".into(), parts: vec![Part { offset: CELL, ..kv.clone() }], ..spec.layers[0].clone() };
    spec.layers.push(other);
    let spec = spec.validate().unwrap();
    let ask = |options| {
        let plan = PairPlan::new(&spec, &spec, &options).unwrap();
        let request = Request { layers: Layers::Range(1..2), ..Request::default() };
        match plan.descriptors(&request, &mut Descriptors::new()) {
            Err(RequestError::Selection { refusal }) => *refusal,
            other => panic!("{other:?}"),
        }
    };
    let short = Refusal::ShortRuns { layer: "other".into(), part: "kv".into(), run: CELL, min_run: CELL + 1 };
    assert_eq!(ask(PairOptions { min_run: CELL + 1, ..Default::default() }), short);
    let broken = ask(PairOptions { require_whole_rows: true, ..Default::default() });
    assert!(matches!(broken, Refusal::RowBroken { descriptors: TOKENS, .. }), "{broken:?}");
}
