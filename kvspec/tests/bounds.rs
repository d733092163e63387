//! Specs that are small and mean harm: what it costs to refuse them, in time, memory and text.

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use kvspec::family::Budget;
use kvspec::*;

/// Counts the bytes that each thread holds, and the most that it held.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let held = HELD.with(|held| {
        held.set(held.get() + bytes);
        held.get()
    });
    MOST.with(|most| most.set(most.get().max(held)));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        count(memory.size() as isize);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(memory) }
    }

    // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
    unsafe fn dealloc(&self, at: *mut u8, memory: Memory) {
        count(-(memory.size() as isize));
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(at, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn part(name: &str, offset: u64, block_stride: u64, tokens: Vec<Axis>, content: u64) -> Part {
    Part {
        name: name.into(),
        storage: StorageIndex(0),
        offset,
        block_stride,
        sharding: Sharding::Replicated,
        units: Axis { count: 1, stride: 0 },
        tokens,
        content,
        tokens_per_state: TokensPerState::ONE,
        format: String::new(),
    }
}

fn layer(name: &str, parts: Vec<Part>) -> Layer {
    let name = name.into();
    Layer { name, group: GroupId(0), kind: Kind::Opaque, role: Role::Target, transfer: true, parts }
}

fn spec(layers: Vec<Layer>) -> CacheSpec {
    CacheSpec {
        version: SPEC_VERSION,
        fingerprint: Fingerprint::default(),
        topology: Topology::default(),
        storages: vec![Storage { base: 0, len: u64::MAX, mem: MemKind::Dram, shared: false }],
        groups: vec![Group { pool: PoolId(0), block_tokens: 1, num_blocks: 1, usage: Usage::State }],
        layers,
    }
}

/// What is found, as text, and what it took; the spec itself is not counted.
fn refused(spec: CacheSpec, budget: Budget) -> (Findings, String, Duration) {
    let held = HELD.with(Cell::get);
    MOST.with(|most| most.set(held));
    let start = Instant::now();
    let Err(SpecError::Invalid(findings)) = spec.validate_within(&mut { budget }) else { panic!("it is valid") };
    let text = format!("{findings}\n{findings:?}");
    let taken = start.elapsed();
    let more = MOST.with(Cell::get) - held;
    assert!(more < 16 << 20, "{more} bytes for a text of {}", text.len());
    assert!(text.len() < 1 << 20, "a text of {} bytes", text.len());
    (findings, text, taken)
}

/// Far above what the budget allows, far below what it did take.
const SOON: Duration = Duration::from_millis(700);

#[test]
fn long_names_are_findings_and_are_quoted_in_short() {
    let name = "n".repeat(400_000);
    let axes = vec![Axis { count: 0, stride: 0 }; 1000];
    let (findings, text, _) = refused(spec(vec![layer(&name, vec![part("p", 0, 0, axes, 1)])]), Budget::CONNECT);
    assert!(
        matches!(
            &findings[..],
            [
                Finding::TextTooLong { len: 400_000, limit: 256, .. },
                Finding::TooManyAxes { given: 1000, limit: 64, .. }
            ]
        ),
        "{findings:?}"
    );
    assert!(text.contains("layers[0].name has 400000 bytes, and at most 256 are allowed"), "{text}");
    assert!(text.contains("nnn… ".trim_end()) && text.len() < 2000, "{text}");
}

#[test]
fn many_findings_are_counted_and_not_listed() {
    let name = |i: usize| format!("{i}{}", "x".repeat(300));
    let layers = (0..5000).map(|i| layer(&name(i), vec![part("p", 0, 0, vec![Axis { count: 0, stride: 0 }; 60], 0)]));
    let (findings, text, _) = refused(spec(layers.collect()), Budget::CONNECT);
    // A name, and 61 counts, of each layer.
    assert_eq!(findings.len(), 101);
    assert_eq!(findings[100], Finding::More { more: 5000 * 62 - 100 });
    assert!(text.starts_with("310000 findings\n  - layers[0].name"), "{}", &text[..100]);
    assert!(text.contains("\n  - and 309900 more"));
}

#[test]
fn many_parts_in_one_place_under_a_long_name_make_a_short_text() {
    let name = "n".repeat(4_000_000);
    let parts = (0..16).map(|i| part(&i.to_string(), 0, 8, vec![], 8)).collect();
    let (findings, ..) = refused(spec(vec![layer(&name, parts)]), Budget::CONNECT);
    // The name, and each pair of parts.
    assert_eq!(findings.len(), 101);
    assert!(matches!(findings[100], Finding::MoreOverlaps { listed: 99 }), "{:?}", findings[100]);
}

#[test]
fn fingerprints_and_formats_have_bounds() {
    let mut long = spec(vec![layer("a", vec![part("p", 0, 8, vec![], 8)])]);
    long.fingerprint.model = "m".repeat(5000);
    long.fingerprint.extra.insert("e".repeat(100_000), "v".repeat(100_000));
    long.layers[0].parts[0].format = "f".repeat(257);
    let (findings, text, _) = refused(long, Budget::CONNECT);
    assert_eq!(findings.len(), 4, "{text}");
    for said in ["fingerprint.model has 5000", "fingerprint.extra.eee", "layers[0].parts[0].format has 257 bytes"] {
        assert!(text.contains(said), "{text}");
    }
    assert!(text.len() < 3000, "{text}");
}

/// Loops of a million steps whose strides have nothing in common, so that next to nothing tells them apart.
fn hard(i: u64) -> Vec<Axis> {
    let strides = [5_702_887_000_003, 9_227_465_000_019, 3_524_578_000_057];
    strides.map(|stride| Axis { count: 1_000_000, stride: stride / 2 + i * 1_000_003 }).to_vec()
}

#[test]
fn loops_that_do_not_nest_are_refused_within_the_budget() {
    let (findings, text, taken) =
        refused(spec(vec![layer("a", vec![part("p", 0, 1 << 62, hard(0), 1)])]), Budget::CONNECT);
    println!("{taken:?}: {text}");
    assert!(matches!(findings[0], Finding::Undecided { .. }), "{text}");
    assert!(taken < SOON, "{taken:?}");
}

#[test]
fn many_hard_parts_share_one_budget() {
    let parts = (0..400).map(|i| part(&i.to_string(), i, 1 << 62, hard(i), 1));
    let (_, _, taken) = refused(spec(vec![layer("a", parts.collect())]), Budget::CONNECT);
    println!("{taken:?}");
    assert!(taken < SOON, "{taken:?}");
}

#[test]
fn parts_of_many_axes_are_not_searched() {
    let axes: Vec<Axis> = (0..54_000).map(|i| Axis { count: 2, stride: i * 7 + 1 }).collect();
    let parts = (0..95).map(|i| part(&i.to_string(), i, 1, axes.clone(), 1)).collect();
    let (findings, _, taken) = refused(spec(vec![layer("a", parts)]), Budget::CONNECT);
    assert_eq!(findings.len(), 95);
    assert!(taken < SOON, "{taken:?}");
}

#[test]
fn a_spec_that_is_too_much_to_check_is_refused_before_it_is_looked_at() {
    let layers = (0..20_000).map(|i| layer(&i.to_string(), vec![part("p", 64 * i, 64, vec![], 8)])).collect();
    let (findings, text, _) = refused(spec(layers), Budget(1000));
    assert_eq!(&findings[..], [Finding::TooMuchWork { parts: 20_000, steps: 1000 }]);
    assert!(text.contains("more than the 1000 steps"), "{text}");
}

#[test]
fn pairs_of_every_kind_are_refused_within_the_budget() {
    // Parts of two groups of one pool whose strides differ, of two pools, and of one group, none of which nest.
    for pools in [[0, 0], [0, 1]] {
        let mut many = spec(Vec::new());
        many.groups = pools.map(|pool| Group { pool: PoolId(pool), num_blocks: 1 << 30, ..many.groups[0] }).to_vec();
        many.layers = (0..3000)
            .map(|i: u64| {
                let mut layer =
                    layer(&i.to_string(), vec![part("p", i * 3, 1_000_000_003 + i * 2, hard(i)[1..].to_vec(), 1)]);
                layer.group = GroupId(u32::from(i % 2 == 1));
                layer
            })
            .collect();
        let start = Instant::now();
        assert!(many.validate_within(&mut { Budget::CONNECT }).is_err());
        println!("{pools:?}: {:?}", start.elapsed());
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }
}
