//! Property tests: random transfers, judged by what every destination byte must hold.
//!
//! `KVPLAN_CASES` sets the number of cases of each property.

mod deployments;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use deployments::{DEPLOYMENTS, PAIRS, Scope, tapes};
use kvplan::{Align, BlockList, Op};
use kvspec::{BlockId, CacheSpec, GroupId, LayerName};
use kvtests::judge::Rows;
use kvtests::run::{Refused, judge_all, plan, plan_with};
use kvtests::transfer::{Moved, Transfer, Worker};
use kvtests::twin;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use serde_json::json;

/// Cases of a property: a default, or what the environment asks for.
fn num_cases(default: u32) -> u32 {
    std::env::var("KVPLAN_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

/// Runs the property on random cases; a failing one is shrunk and written down as JSON.
fn run(name: &str, cases: u32, scope: Scope, property: impl Fn(&Transfer) -> Result<(), String>) {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let result = TestRunner::new(config).run(&tapes(), |tapes| {
        let transfer = deployments::transfer(&tapes, scope);
        let verdict = catch_unwind(AssertUnwindSafe(|| property(&transfer)));
        verdict.unwrap_or_else(|panic| Err(message(&panic))).map_err(|error| {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
            let text = serde_json::to_string(&transfer).unwrap_or_else(|error| error.to_string());
            // A case that cannot be written is still reported.
            let _ = std::fs::write(&path, text);
            TestCaseError::fail(format!("{error}\ncase: {}", path.display()))
        })
    });
    if let Err(TestError::Fail(reason, _)) = result {
        panic!("{name}: {reason}");
    }
    assert!(result.is_ok(), "{name}: {result:?}");
}

/// What a panic said: debug builds of the planner prove every plan, and panic when they cannot.
fn message(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a message"))
}

fn total_bytes(transfer: &Transfer) -> u64 {
    let workers = transfer.sources.iter().chain(&transfer.destinations);
    workers.flat_map(|worker| &worker.spec.storages).map(|storage| storage.len).sum()
}

/// The transfer is planned right, or refused where it must be.
fn is_right(transfer: &Transfer) -> Result<(), String> {
    let naive = twin::plan(transfer);
    let planned = plan(transfer);
    let naive = match naive {
        // The lists of replicas contradict each other: nobody can say what is right.
        Err(reason) if reason.starts_with("replicas") => return Ok(()),
        Err(reason) => {
            return match planned {
                Err(Refused::Request(_)) => Ok(()),
                other => Err(format!("must be refused ({reason}), but {:?}", other.map(|_| "planned"))),
            };
        }
        Ok(naive) => naive,
    };
    let answers = planned.map_err(|error| error.to_string())?;
    judge_all(transfer, &answers, total_bytes(transfer) < 300_000)?;
    for (destination, (naive, answers)) in naive.iter().zip(&answers).enumerate() {
        // Plans look at all blocks of a row together: bytes of others over some of them make it unsafe as a whole.
        let spec = &transfer.destinations[destination].spec;
        let crossed = Rows::of(spec).cross(spec);
        for (source, (naive, answer)) in naive.iter().zip(answers).enumerate() {
            let place = || format!("destination {destination}, source {source}");
            if transfer.max_gap == 0 && sorted(naive) != sorted(answer) {
                return Err(format!("{}: the naive planner says\n{naive:?}\nand not\n{answer:?}", place()));
            }
            if answer.copies.len() > naive.copies.len() && !crossed {
                let counts = (naive.copies.len(), answer.copies.len());
                return Err(format!("{}: {counts:?}: the naive planner says\n{naive:?}\nand not\n{answer:?}", place()));
            }
            check_order(transfer.op, answer).map_err(|error| format!("{}: {error}", place()))?;
        }
    }
    Ok(())
}

fn sorted(moved: &Moved) -> Moved {
    let mut moved = moved.clone();
    moved.copies.sort_unstable_by_key(|copy| (copy.dst, copy.src));
    moved
}

/// Descriptors of a lane are sorted by local place: with one lane, all are.
fn check_order(op: Op, answer: &Moved) -> Result<(), String> {
    let local = |index: usize| match op {
        Op::Read => answer.copies[index].dst,
        Op::Write => answer.copies[index].src,
    };
    let descents = (1..answer.copies.len()).filter(|&index| local(index) < local(index - 1)).count();
    // At most two groups a side and usage, and two kinds of memory: no more than 32 lanes.
    if descents < 32 { Ok(()) } else { Err(format!("{descents} descents in the order of local places")) }
}

#[test]
fn prop_a_pair_delivers_every_byte_once_and_touches_nothing_else() {
    run("pairs", num_cases(3_000), PAIRS, is_right);
}

#[test]
fn prop_deployments_deliver_every_byte_once_and_touch_nothing_else() {
    run("deployments", num_cases(2_000), DEPLOYMENTS, is_right);
}

/// A random case that went wrong once: cells of two layers alternate, and a stranger before their second units makes
/// those two rows, of which the later begins within the earlier.
#[test]
fn rows_that_lie_over_each_other_are_not_bridged() {
    let layer = |name, group, offset, tokens, units| {
        let part = json!({
            "name": "bytes", "storage": 0, "offset": offset, "block_stride": 8, "sharding": "replicated",
            "units": { "count": units, "stride": 16 }, "tokens": [{ "count": tokens, "stride": 3 }], "content": 1,
        });
        json!({ "name": name, "group": group, "kind": "opaque", "role": "target", "parts": [part] })
    };
    let group = json!({ "pool": 0, "block_tokens": 1, "num_blocks": 1, "usage": "state" });
    let spec: CacheSpec = serde_json::from_value(json!({
        "version": 1,
        "fingerprint": { "model": "m" },
        "storages": [{ "base": 4096, "len": 33, "mem": "dram" }],
        "groups": [group, group],
        "layers": [layer("a", 0, 0, 3, 2), layer("b", 0, 1, 3, 2), layer("stranger", 1, 15, 1, 1)],
    }))
    .unwrap();
    let worker = || {
        let blocks = vec![BlockId(0)];
        Worker { spec: spec.clone(), lists: vec![BlockList { group: GroupId(0), first: None, blocks }] }
    };
    let transfer = Transfer { op: Op::Read, sources: vec![worker()], destinations: vec![worker()], max_gap: 16 };
    is_right(&transfer).unwrap();
}

/// A random case that went wrong once: rows of nine units at the destination, and of one unit each at the source, where
/// the units lie as far apart as blocks. What touches at the end of a unit goes on in the next row of the source.
#[test]
fn a_gap_is_bridged_in_the_row_that_the_bytes_before_it_end_in() {
    for content in [1, 2] {
        let worker = |block_stride: u64, num_blocks: u64, len: u64| {
            let part = json!({
                "name": "bytes", "storage": 0, "offset": 0, "block_stride": block_stride, "sharding": "replicated",
                "units": { "count": 9, "stride": 6 + 2 * content },
                "tokens": [{ "count": 2, "stride": 6 + content }], "content": content,
            });
            let spec: CacheSpec = serde_json::from_value(json!({
                "version": 1,
                "fingerprint": { "model": "m" },
                "storages": [{ "base": 4096, "len": len, "mem": "dram" }],
                "groups": [{ "pool": 0, "block_tokens": 2, "num_blocks": num_blocks }],
                "layers": [{ "name": "a", "group": 0, "kind": "opaque", "role": "target", "parts": [part] }],
            }))
            .unwrap();
            Worker { spec, lists: vec![BlockList { group: GroupId(0), first: None, blocks: vec![BlockId(0)] }] }
        };
        let unit = 6 + 2 * content;
        for op in [Op::Read, Op::Write] {
            let sources = vec![worker(unit, 1, 200)];
            let destinations = vec![worker(9 * unit, 2, 200)];
            let transfer = Transfer { op, sources, destinations, max_gap: u64::MAX };
            is_right(&transfer).unwrap();
        }
    }
}

/// What a run of random cases exercised.
#[derive(Debug, Default)]
struct Seen {
    refused: u64,
    nothing: u64,
    planned: u64,
    bridged: u64,
    zeroed: u64,
    writes: u64,
    context_parallel: u64,
    interleaved: u64,
    pipelined: u64,
    block_sizes_differ: u64,
    lanes: u64,
    strangers: u64,
    longest: usize,
}

#[test]
fn the_generator_reaches_every_kind_of_case() {
    let seen = std::cell::RefCell::new(Seen::default());
    run("reach", 600, DEPLOYMENTS, |transfer| {
        let planned = plan(transfer);
        let mut seen = seen.borrow_mut();
        let Ok(answers) = planned else {
            seen.refused += 1;
            return Ok(());
        };
        let all = || answers.iter().flatten();
        let copies: usize = all().map(|answer| answer.copies.len()).sum();
        let count = |condition: bool| u64::from(condition);
        seen.nothing += count(copies == 0);
        seen.planned += count(copies > 0);
        seen.bridged += count(all().any(|answer| answer.padding_bytes > 0));
        seen.zeroed += count(all().any(|answer| !answer.zero.is_empty()));
        seen.writes += count(transfer.op == Op::Write);
        let (from, to) = (&transfer.sources[0].spec, &transfer.destinations[0].spec);
        seen.context_parallel += count(from.topology.dcp.size > 1 && to.topology.dcp.size > 1);
        seen.interleaved += count(from.topology.dcp.interleave.is_some() || to.topology.dcp.interleave.is_some());
        seen.pipelined += count(from.topology.pp.size > 1 || to.topology.pp.size > 1);
        seen.block_sizes_differ += count(from.groups[0].block_tokens != to.groups[0].block_tokens);
        seen.lanes += count(from.groups.len() != to.groups.len());
        let layers = from.layers.iter().chain(&to.layers);
        seen.strangers += count(layers.into_iter().any(|layer| layer.name.as_str().starts_with("stranger")));
        seen.longest = seen.longest.max(copies);
        Ok(())
    });
    let seen = seen.into_inner();
    println!("{seen:?}");
    assert!(seen.refused < 200 && seen.nothing < 200, "most cases must move something: {seen:?}");
    let rare = [seen.refused, seen.bridged, seen.zeroed, seen.context_parallel, seen.interleaved, seen.pipelined];
    assert!(rare.iter().all(|&times| times >= 10), "every kind of case must come up: {seen:?}");
    assert!(seen.writes > 100 && seen.block_sizes_differ > 100 && seen.lanes > 20, "{seen:?}");
}

/// Lists that begin at 0 need not say so, since one prompt fills them all; and where they are said to end together, they
/// are placed where they were, or the request is refused.
fn places_need_not_be_said(transfer: &Transfer) -> Result<(), String> {
    let planned = plan(transfer);
    let mut unsaid = transfer.clone();
    let lists = |transfer: &mut Transfer, change: fn(&mut Option<u64>)| {
        let workers = transfer.sources.iter_mut().chain(&mut transfer.destinations);
        workers.flat_map(|worker| &mut worker.lists).for_each(|list| change(&mut list.first));
    };
    lists(&mut unsaid, |first| *first = first.filter(|first| *first > 0));
    if plan(&unsaid) != planned {
        return Err(format!("{:?} and not {planned:?}", plan(&unsaid)));
    }
    let tails = plan_with(&unsaid, None, Some(Align::Tail));
    match (&tails, &planned) {
        (Ok(tails), Ok(planned)) if tails != planned => Err(format!("{tails:?} and not {planned:?}")),
        _ => Ok(()),
    }
}

#[test]
fn prop_lists_of_one_prompt_need_not_say_where_they_begin() {
    run("places", num_cases(1_000), DEPLOYMENTS, places_need_not_be_said);
}

/// A transfer of which only every `step`-th layer travels, and their names.
fn with_every(transfer: &Transfer, step: usize) -> (Transfer, Vec<LayerName>) {
    let mut transfer = transfer.clone();
    let specs = || transfer.sources.iter().chain(&transfer.destinations).map(|worker| &worker.spec);
    let mut names: Vec<LayerName> =
        specs().flat_map(|spec| spec.layers.iter().map(|layer| layer.name.clone())).collect();
    names.sort_unstable();
    names.dedup();
    let kept: Vec<LayerName> = names.into_iter().step_by(step).collect();
    for worker in transfer.sources.iter_mut().chain(&mut transfer.destinations) {
        for layer in &mut worker.spec.layers {
            layer.transfer &= kept.contains(&layer.name);
        }
    }
    (transfer, kept)
}

/// Some layers move as though the others stayed where they are, which is judged byte by byte, and every layer moves
/// with one of the selections that they are split into.
fn selections_are_right(transfer: &Transfer) -> Result<(), String> {
    let whole = plan(transfer);
    for step in [1, 2, 3] {
        let (others_stay, kept) = with_every(transfer, step);
        let selected = plan_with(transfer, Some(&kept), None);
        let expected = if step == 1 { whole.clone() } else { plan(&others_stay) };
        let (Ok(selected), Ok(expected)) = (&selected, &expected) else {
            // A group of which nothing moves is not looked at.
            if selected.is_ok() == expected.is_ok() || whole.is_err() {
                continue;
            }
            return Err(format!("step {step}: {:?} and not {:?}", selected.err(), expected.err()));
        };
        if selected != expected {
            return Err(format!("step {step}: selected\n{selected:?}\nand without the others\n{expected:?}"));
        }
        if total_bytes(transfer) < 300_000 {
            judge_all(&others_stay, selected, true)?;
        }
    }
    Ok(())
}

#[test]
fn prop_some_layers_move_as_though_the_others_stayed() {
    run("selections", num_cases(1_000), DEPLOYMENTS, selections_are_right);
}
