//! Specs and requests that are valid and mean harm: each is answered or refused, soon and without a panic.
//!
//! Test builds check overflow and prove every answer, so nothing here can be silently wrong.

use std::time::{Duration, Instant};

use kvplan::{BlockList, Descriptors, LocalPlan, Op, PairError, PairOptions, PairPlan, Refusal, Request, RequestError};
use kvspec::family::Budget;
use kvspec::{
    Axis, BlockId, CacheSpec, ContextShard, Fingerprint, Group, GroupId, Kind, Layer, MemKind, Part, PoolId, Role,
    Shard, Sharding, Storage, StorageIndex, TokensPerState, Topology, Usage, ValidSpec,
};

/// Far above what anything here takes on a quiet machine (a second or so), far below what a loop over what a spec
/// claims would take.
const SOON: Duration = Duration::from_secs(30);

/// Runs something that must not take long.
fn soon<T>(what: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = what();
    let taken = start.elapsed();
    assert!(taken < SOON, "took {taken:?}");
    result
}

fn group(pool: u32, block_tokens: u64, num_blocks: u64) -> Group {
    Group { pool: PoolId(pool), block_tokens, num_blocks, usage: Usage::Tokens }
}

/// A replicated part with one unit.
fn part(offset: u64, block_stride: u64, tokens: &[(u64, u64)], content: u64) -> Part {
    Part {
        name: "latent".into(),
        storage: StorageIndex(0),
        offset,
        block_stride,
        sharding: Sharding::Replicated,
        units: Axis { count: 1, stride: 0 },
        tokens: tokens.iter().map(|&(count, stride)| Axis { count, stride }).collect(),
        content,
        tokens_per_state: TokensPerState::ONE,
        format: String::new(),
    }
}

fn layer(name: usize, group: u32, parts: Vec<Part>) -> Layer {
    let name = format!("layer.{name}").into();
    Layer { name, group: GroupId(group), kind: Kind::Opaque, role: Role::Target, transfer: true, parts }
}

/// A spec of one storage that takes nearly the whole address space.
fn raw(groups: Vec<Group>, layers: Vec<Layer>) -> CacheSpec {
    CacheSpec {
        version: 1,
        fingerprint: Fingerprint::default(),
        topology: Topology::default(),
        storages: vec![Storage { base: 0, len: u64::MAX, mem: MemKind::Dram, shared: false }],
        groups,
        layers,
    }
}

fn valid(groups: Vec<Group>, layers: Vec<Layer>) -> ValidSpec {
    soon(|| raw(groups, layers).validate()).expect("the spec is valid")
}

/// One layer of one part.
fn one(group: Group, part: Part) -> ValidSpec {
    valid(vec![group], vec![layer(0, 0, vec![part])])
}

fn list(group: u32, first: u64, blocks: &[u32]) -> BlockList {
    BlockList { group: GroupId(group), first: Some(first), blocks: blocks.iter().copied().map(BlockId).collect() }
}

fn pair(local: &ValidSpec, remote: &ValidSpec, op: Op, max_gap: u64) -> Result<PairPlan, PairError> {
    let options = PairOptions { op, max_gap, ..PairOptions::default() };
    soon(|| PairPlan::new(local, remote, &options))
}

fn ask(plan: &PairPlan, local: &[BlockList], remote: &[BlockList]) -> Result<Descriptors, RequestError> {
    let request =
        Request { op: plan.options().op, local: local.to_vec(), remote: remote.to_vec(), ..Request::default() };
    let mut out = Descriptors::new();
    soon(|| plan.descriptors(&request, &mut out))?;
    Ok(out)
}

/// Plans both directions with and without gaps, explains, and asks for the lists.
fn plan_all(local: &ValidSpec, remote: &ValidSpec, lists: &[BlockList]) -> Vec<Result<usize, String>> {
    plan_with(&[0, u64::MAX], local, remote, lists)
}

fn plan_with(gaps: &[u64], local: &ValidSpec, remote: &ValidSpec, lists: &[BlockList]) -> Vec<Result<usize, String>> {
    let mut results = Vec::new();
    for op in [Op::Read, Op::Write] {
        for &max_gap in gaps {
            let planned = pair(local, remote, op, max_gap).map_err(|error| error.to_string()).and_then(|plan| {
                soon(|| assert!(!plan.explain().to_string().is_empty()));
                ask(&plan, lists, lists).map_err(|error| error.to_string())
            });
            results.push(planned.map(|answer| answer.as_slice().len()));
        }
    }
    soon(|| assert_eq!(LocalPlan::new(remote).memory_ranges().len(), 1));
    results
}

#[test]
fn a_block_of_a_trillion_tokens_is_one_descriptor() {
    let dense = one(group(0, 1 << 40, 3), part(7, 1 << 44, &[(1 << 40, 16)], 16));
    let split = one(group(0, 1 << 40, 3), part(0, 1 << 45, &[(1 << 20, 1 << 24), (1 << 20, 16)], 16));
    for result in plan_all(&dense, &split, &[list(0, 0, &[0, 2])]) {
        assert_eq!(result, Ok(2));
    }
}

#[test]
fn a_trillion_tokens_that_do_not_touch_are_refused() {
    let sparse = one(group(0, 1 << 40, 3), part(0, 1 << 45, &[(1 << 40, 32)], 16));
    let refused = pair(&sparse, &sparse, Op::Read, 0).expect_err("2^40 runs a block");
    assert!(matches!(refused.refusals[..], [Refusal::TooManyRuns { runs, .. }] if runs == 1 << 40), "{refused}");
    for result in plan_all(&sparse, &sparse, &[list(0, 0, &[0])]) {
        assert!(result.is_err(), "{result:?}");
    }
}

#[test]
fn block_sizes_that_hardly_ever_meet_are_refused() {
    let of = |tokens| one(group(0, tokens, 2), part(0, u64::MAX / 2, &[(tokens, 1)], 1));
    let pairs = [(u64::MAX / 2, u64::MAX / 2 - 1), (u64::from(u32::MAX), (1 << 32) - 2), (64, (1 << 40) + 1)];
    for (here, there) in pairs {
        for op in [Op::Read, Op::Write] {
            let refused = pair(&of(here), &of(there), op, u64::MAX).expect_err("no common structure");
            assert!(matches!(refused.refusals[..], [Refusal::Irregular { .. }]), "{refused}");
        }
    }
}

#[test]
fn many_groups_of_awkward_block_sizes_share_one_bound() {
    // Each pair of groups alone would be planned; a peer can repeat it for every layer.
    let (here, there) = (64, (1 << 18) + 1);
    let of = |tokens: u64| {
        let groups = (0..40).map(|pool| group(pool, tokens, 2)).collect();
        let layers =
            (0..40u32).map(|i| layer(i as usize, i, vec![part(u64::from(i) << 40, 1 << 30, &[(tokens, 1)], 1)]));
        valid(groups, layers.collect())
    };
    let refused = pair(&of(here), &of(there), Op::Read, 0).expect_err("millions of meetings");
    assert!(!refused.refusals.is_empty());
}

#[test]
fn the_last_block_id_and_the_last_byte_of_an_address_space_are_planned() {
    let num_blocks = u64::from(u32::MAX);
    let stride = u64::MAX / num_blocks;
    let spec = one(group(0, 1, num_blocks), part(u64::MAX - (num_blocks - 1) * stride - 3, stride, &[], 3));
    let planned = plan_all(&spec, &spec, &[list(0, 0, &[u32::MAX - 1, 0, 1])]);
    // Blocks 0 and 1 are neighbours: their gap is bridged where it may be.
    assert_eq!(planned, [Ok(3), Ok(2), Ok(3), Ok(2)]);
}

#[test]
fn one_block_may_have_any_stride() {
    for stride in [0, 1, u64::MAX] {
        let odd = Part { units: Axis { count: 1, stride: u64::MAX }, ..part(5, stride, &[(4, 40), (1, u64::MAX)], 8) };
        let odd = one(group(0, 4, 1), odd);
        let even = one(group(0, 4, 2), part(0, 64, &[(4, 8)], 8));
        for result in plan_all(&odd, &even, &[list(0, 0, &[0])]) {
            assert_eq!(result, Ok(4));
        }
    }
}

#[test]
fn a_hundred_thousand_layers_are_planned_whichever_way_they_lie() {
    let apart = |i: u64| part(i << 20, 96, &[(4, 16)], 8);
    let in_rows = |i: u64| part(i * 96, 96 * 100_000, &[(4, 16)], 8);
    let touching = |i: u64| part(i * 64, 64 * 100_000, &[(4, 16)], 16);
    let of = |place: &dyn Fn(u64) -> Part| {
        let layers = (0..100_000u32).map(|i| layer(i as usize, 0, vec![place(u64::from(i))]));
        valid(vec![group(0, 4, 9)], layers.collect())
    };
    for (here, there) in [(&apart as &dyn Fn(u64) -> Part, &apart as &dyn Fn(u64) -> Part), (&apart, &in_rows)] {
        for result in plan_with(&[u64::MAX], &of(here), &of(there), &[list(0, 0, &[3])]) {
            assert!(matches!(result, Ok(100_000 | 400_000)), "{result:?}");
        }
    }
    for result in plan_with(&[0], &of(&touching), &of(&touching), &[list(0, 0, &[3])]) {
        assert_eq!(result, Ok(1));
    }
}

#[test]
fn a_hundred_thousand_groups_with_a_list_each_are_planned() {
    let groups = (0..100_000).map(|pool| group(pool, 4, 2)).collect();
    let layers = (0..100_000u32).map(|i| layer(i as usize, i, vec![part(u64::from(i) * 64, 32, &[(4, 8)], 8)]));
    let many = valid(groups, layers.collect());
    let single = one(group(0, 4, 2), part(0, 32, &[(4, 8)], 8));
    let lists: Vec<BlockList> = (0..100_000).map(|group| list(group, 0, &[1])).collect();
    let stage = |spec: &ValidSpec| {
        let mut raw = CacheSpec::clone(spec);
        raw.topology.pp = Shard { rank: 0, size: 2 };
        raw.validate().expect("a stage of two")
    };
    let plan = pair(&stage(&single), &stage(&many), Op::Read, u64::MAX).expect("they share a layer");
    let answer = ask(&plan, &[list(0, 0, &[1])], &lists).expect("all lists are right");
    assert_eq!(answer.as_slice().len(), 1);
    let mut twice = lists;
    twice.push(list(99_999, 0, &[0]));
    let refused = ask(&plan, &[list(0, 0, &[1])], &twice).expect_err("a group has two lists");
    assert!(matches!(refused, RequestError::GroupTwice { group: GroupId(99_999), .. }), "{refused}");
}

#[test]
fn parts_with_units_far_outside_the_block_take_little_memory() {
    // Each of these parts claims 65,536 pages of its own.
    let parts = (0..500u64).map(|i| Part {
        name: format!("part.{i}").into(),
        units: Axis { count: 1 << 16, stride: 1 << 30 },
        ..part(i << 16, 256, &[], 8)
    });
    let spec = valid(vec![group(0, 1, 4)], vec![layer(0, 0, parts.collect())]);
    for result in plan_all(&spec, &spec, &[list(0, 0, &[1])]) {
        assert!(result.expect_err("32 million runs a block").contains("runs"));
    }
}

#[test]
fn a_trillion_units_outside_the_block_are_refused() {
    let many = Part { units: Axis { count: 1 << 40, stride: 1 << 20 }, ..part(0, 256, &[], 8) };
    let spec = one(group(0, 1, 4), many);
    for result in plan_all(&spec, &spec, &[list(0, 0, &[1])]) {
        assert!(result.expect_err("2^40 runs a block").contains("runs"));
    }
}

#[test]
fn deep_token_factors_are_planned() {
    let tokens = 1u64 << 40;
    let ones = |mut factors: Vec<(u64, u64)>| {
        // As many axes as a part may have.
        factors.resize(64, (1, u64::MAX));
        factors
    };
    // 40 factors of 2, each with a byte of padding after its two halves; against 63 factors of 1 and a dense one.
    let mut stride = 1;
    let mut halves = Vec::new();
    for _ in 0..18 {
        halves.insert(0, (2, stride));
        stride = stride * 2 + 1;
    }
    let padded = one(group(0, 1 << 18, 2), part(0, stride, &halves, 1));
    let dense = one(group(0, 1 << 18, 2), part(0, 1 << 18, &ones(vec![(1 << 18, 1)]), 1));
    for result in plan_all(&padded, &dense, &[list(0, 0, &[1])]) {
        assert_eq!(result, Ok(1 << 17));
    }
    let powers = (0..40).rev().map(|i| (2, 1 << i)).collect();
    let folded = one(group(0, tokens, 2), part(0, tokens, &ones(powers), 1));
    let flat = one(group(0, tokens, 2), part(0, tokens, &[(tokens, 1)], 1));
    for result in plan_all(&folded, &flat, &[list(0, 0, &[1])]) {
        assert_eq!(result, Ok(1));
    }
}

#[test]
fn kernel_blocks_that_do_not_divide_each_other_are_planned_or_refused() {
    let of = |outer: u64, inner: u64| {
        one(group(0, outer * inner, 2), part(0, 1 << 50, &[(outer, inner * 2 + 1), (inner, 2)], 1))
    };
    let planned = plan_all(&of(97, 101), &of(101, 97), &[list(0, 0, &[1])]);
    // A byte a state, or with the padding between states bridged, a piece for each change of kernel block.
    assert_eq!(planned, [Ok(97 * 101), Ok(97 + 101 - 1), Ok(97 * 101), Ok(97 + 101 - 1)]);
    let (a, b) = ((1 << 20) + 7, (1 << 20) + 9);
    let refused = plan_all(&of(a, b), &of(b, a), &[list(0, 0, &[1])]);
    assert!(refused.iter().all(|result| result.as_ref().is_err_and(|error| error.contains("runs"))), "{refused:?}");
}

#[test]
fn lists_that_begin_at_the_end_of_time_are_refused_or_answered() {
    let spec = one(group(0, 16, 4), part(0, 64, &[(16, 4)], 4));
    let plan = pair(&spec, &spec, Op::Read, 0).expect("equal specs pair");
    let last = u64::MAX / 16 - 1;
    for first in [u64::MAX, u64::MAX - 1, last + 1, last] {
        for (here, there) in
            [(&[1u32, 2][..], &[0u32, 3][..]), (&[1], &[0]), (&[], &[]), (&[], &[1]), (&[u32::MAX], &[1])]
        {
            let answer = ask(&plan, &[list(0, first, here)], &[list(0, first, there)]);
            let fits = u128::from(first) * 16 + 16 * here.len().max(there.len()) as u128 <= u128::from(u64::MAX);
            assert_eq!(answer.is_ok(), fits, "{first} {here:?}: {answer:?}");
        }
    }
    let state = Group { usage: Usage::State, ..group(0, 0, 4) };
    let state = one(state, part(0, 64, &[(16, 4)], 4));
    let plan = pair(&state, &state, Op::Write, 0).expect("equal specs pair");
    let answer = ask(&plan, &[list(0, u64::MAX - 1, &[1])], &[list(0, u64::MAX - 1, &[2])]).expect("a slot is a slot");
    assert_eq!(answer.as_slice().len(), 1);
    ask(&plan, &[list(0, u64::MAX, &[1])], &[list(0, 0, &[2])]).expect_err("its end has no index");
}

#[test]
fn lists_of_holes_move_nothing_and_a_hole_at_the_source_is_refused() {
    let spec = one(group(0, 16, 4), part(0, 64, &[(16, 4)], 4));
    let holes = vec![u32::MAX; 1_000_000];
    for op in [Op::Read, Op::Write] {
        let plan = pair(&spec, &spec, op, u64::MAX).expect("equal specs pair");
        let answer = ask(&plan, &[list(0, 0, &holes)], &[list(0, 0, &holes)]).expect("nothing is asked for");
        assert!(answer.as_slice().is_empty() && answer.zero().is_empty());
        let (destination, source) = ([list(0, 0, &[3])], [list(0, 0, &holes)]);
        let (here, there) = if op == Op::Read { (&destination, &source) } else { (&source, &destination) };
        let refused = ask(&plan, here, there).expect_err("the source holds nothing there");
        assert!(matches!(refused, RequestError::SourceHole { index: 0, .. }), "{refused}");
    }
}

#[test]
fn odd_interleaves_are_planned() {
    let rank = |rank: u32, size: u32, interleave: Option<u64>, tokens: u64| {
        let mut spec = raw(vec![group(0, tokens, 8)], vec![layer(0, 0, vec![part(0, tokens, &[(tokens, 1)], 1)])]);
        spec.topology.tp = Shard { rank, size };
        spec.topology.dcp = ContextShard { rank, size, interleave };
        spec.validate().expect("the interleave divides the block")
    };
    for (here, there) in [
        (rank(2, 3, Some(7), 21), rank(4, 5, Some(3), 12)),
        (rank(0, 1, Some(1), 64), rank(1, 2, None, 48)),
        (rank(60_000, 65_521, Some(1), 2), rank(0, 1, Some(1), 2)),
        (rank(65_535, 65_536, Some(3), 9), rank(3, 4, Some(1 << 40), 1 << 40)),
    ] {
        for op in [Op::Read, Op::Write] {
            match pair(&here, &there, op, u64::MAX) {
                Ok(plan) => {
                    let blocks = [list(0, 0, &[0, 1, 2, 3, 4, 5, 6, 7])];
                    // What lies beyond the other list is refused; neither may take long.
                    if let Err(refused) = ask(&plan, &blocks, &blocks) {
                        assert!(matches!(refused, RequestError::NotCovered { .. }), "{refused}");
                    }
                }
                Err(refused) => assert!(matches!(refused.refusals[..], [Refusal::Irregular { .. }]), "{refused}"),
            }
        }
    }
}

#[test]
fn lists_of_groups_that_met_nobody_are_checked_and_ignored() {
    let stage = |names: &[usize]| {
        let groups = names.iter().map(|_| group(0, 4, 4)).collect();
        let layers =
            names.iter().zip(0u32..).map(|(&name, i)| layer(name, i, vec![part(u64::from(i) * 256, 32, &[(4, 8)], 8)]));
        let mut spec = raw(groups, layers.collect());
        spec.topology.pp = Shard { rank: 0, size: 2 };
        spec.validate().expect("the spec is valid")
    };
    let plan = pair(&stage(&[0, 1]), &stage(&[1, 2]), Op::Read, 0).expect("they share a layer");
    let answer = ask(&plan, &[list(0, 9, &[0, 1])], &[list(1, u64::MAX / 4, &[])]).expect("nothing in common");
    assert!(answer.as_slice().is_empty() && answer.zero().is_empty());
    let refused = ask(&plan, &[list(0, 0, &[4])], &[]).expect_err("there is no block 4");
    assert!(matches!(refused, RequestError::BlockOutOfRange { block: BlockId(4), .. }), "{refused}");
    let refused = ask(&plan, &[list(2, 0, &[])], &[]).expect_err("there is no group 2");
    assert!(matches!(refused, RequestError::UnknownGroup { .. }), "{refused}");
    let refused = ask(&plan, &[list(u32::MAX, 0, &[])], &[]).expect_err("there is no such group");
    assert!(matches!(refused, RequestError::UnknownGroup { .. }), "{refused}");
}

#[test]
fn explaining_a_row_with_a_gap_after_every_token_is_quick() {
    let spec = one(group(0, 1 << 18, 2), part(0, 1 << 24, &[(1 << 18, 16)], 8));
    let plan = pair(&spec, &spec, Op::Read, 0).expect("262,144 runs a block are allowed");
    let explanation = soon(|| plan.explain());
    assert_eq!(explanation.lanes[0].cuts[0].descriptors, 1 << 18);
    assert!(explanation.to_string().contains("8 bytes of padding"));
}

#[test]
fn states_that_span_two_runs_of_an_interleave_are_proved() {
    // Three states for four tokens, and runs of two tokens: a state lies across runs, which follow each other where
    // one rank holds them all. Found by the fuzz target `plan`.
    let of = |tokens: u64, factors: &[(u64, u64)], interleave| {
        let part = Part { tokens_per_state: TokensPerState::new(4, 3), ..part(0, 64, factors, 1) };
        let mut spec = raw(vec![group(0, tokens, 3)], vec![layer(0, 0, vec![part])]);
        spec.topology.dcp.interleave = interleave;
        spec.validate().expect("the spec is valid")
    };
    let (here, there) = (of(12, &[(3, 3), (3, 1)], None), of(8, &[(6, 1)], Some(2)));
    let plan = pair(&here, &there, Op::Read, 1).expect("blocks of 12 and 8 tokens meet at multiples of 4");
    let answer = ask(&plan, &[list(0, 0, &[0])], &[list(0, 0, &[0, 1, 2])]).expect("the lists are right");
    assert_eq!((answer.num_bytes(), answer.padding_bytes()), (9, 0));
}

/// A stage of one rank of a deployment of 65,536, with layers that differ in what decides who reads them.
fn many_ranks(num_layers: u64, alike: bool, rank: u32, size: u32) -> ValidSpec {
    let layers = (0..num_layers).zip(0..).map(|(i, name)| {
        let total = if alike { 8 } else { 8 + i };
        let place = part(i << 30, 4096, &[], 8);
        let owned = kvspec::owned_units(total, Shard { rank, size });
        let units = Axis { count: owned.end - owned.start, stride: 8 };
        layer(name, 0, vec![Part { sharding: Sharding::Sharded { total, first: None }, units, ..place }])
    });
    let mut spec = raw(vec![group(0, 1, 4)], layers.collect());
    spec.topology.tp = Shard { rank, size };
    soon(|| spec.validate()).expect("the spec is valid")
}

#[test]
fn readers_are_counted_once_for_layers_that_are_alike() {
    let start = Instant::now();
    let (source, peer) = (many_ranks(200, true, 0, 1), many_ranks(200, true, 5, 65_536));
    // One rank has everything, so that each of the others reads from it.
    assert_eq!(kvplan::readers(&source, std::slice::from_ref(&peer)), 65_536);
    // Layers that all differ are too dear: no reader is left out.
    let (source, peer) = (many_ranks(400, false, 0, 2), many_ranks(400, false, 5, 65_536));
    assert_eq!(kvplan::readers(&source, &[peer]), 65_536);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn a_layer_of_thirty_thousand_parts_is_paired_soon() {
    let parts = (0..30_000u64).map(|i| Part { name: format!("part.{i}").into(), ..part(i * 64, 1 << 24, &[], 8) });
    let spec = valid(vec![group(0, 1, 4)], vec![layer(0, 0, parts.collect())]);
    let start = Instant::now();
    let plan = pair(&spec, &spec, Op::Read, 0).expect("equal specs pair");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(kvplan::sources(&spec, plan.remote(), "layer.0").len(), 30_000);
    kvplan::Deployment::new([spec]).expect("one rank");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn what_keeps_two_workers_apart_is_counted_and_not_listed() {
    let of = |content| {
        let layers = (0..5000).map(|i| layer(i, 0, vec![part((i as u64) << 20, 64, &[], content)]));
        valid(vec![group(0, 1, 4)], layers.collect())
    };
    let refused = pair(&of(8), &of(9), Op::Read, 0).expect_err("contents differ");
    assert_eq!((refused.refusals.len(), &refused.refusals[100]), (101, &Refusal::More { more: 4900 }));
    assert!(refused.to_string().len() < 40_000);
}

#[test]
fn schedules_without_meetings_share_a_bound() {
    // Ranks of context parallelism whose runs never meet, in hundreds of pairs of groups.
    let of = |rank, interleave: u64| {
        let tokens = interleave << 10;
        let groups = (0..300).map(|pool| group(pool, tokens, 2)).collect();
        let layers =
            (0..300u32).map(|i| layer(i as usize, i, vec![part(u64::from(i) << 40, 1 << 30, &[(tokens, 1)], 1)]));
        let mut spec = raw(groups, layers.collect());
        spec.topology.tp = Shard { rank, size: 512 };
        spec.topology.dcp = ContextShard { rank, size: 512, interleave: Some(interleave) };
        spec.validate().expect("the interleave divides the block")
    };
    let start = Instant::now();
    let _ = pair(&of(0, 6), &of(300, 7), Op::Read, 0);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn connecting_has_one_budget() {
    // All that one block may be: hundreds of thousands of runs.
    let spec = one(group(0, 1 << 18, 2), part(0, 1 << 24, &[(1 << 18, 16)], 8));
    let options = PairOptions { max_gap: u64::MAX, ..PairOptions::default() };
    let mut budget = Budget::CONNECT;
    let start = Instant::now();
    let remote = CacheSpec::clone(&spec).validate_within(&mut budget).expect("it is valid");
    let planned = PairPlan::new_within(&spec, &remote, &options, &mut budget);
    println!("{:?}, {budget:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    let refused = planned.expect_err("it would take too long");
    assert!(matches!(refused.refusals[..], [Refusal::TooMuchWork { .. }]), "{refused}");
    // What engines have takes next to nothing of it.
    let layers = (0..1000).map(|i| layer(i, 0, vec![part(i as u64 * 4096, 4096 * 1000, &[(64, 64)], 64)]));
    let usual = valid(vec![group(0, 64, 1000)], layers.collect());
    let mut budget = Budget::CONNECT;
    let remote = CacheSpec::clone(&usual).validate_within(&mut budget).expect("it is valid");
    PairPlan::new_within(&usual, &remote, &options, &mut budget).expect("equal specs pair");
    println!("{budget:?}");
    assert!(budget.0 > Budget::CONNECT.0 / 2, "{budget:?}");
}
