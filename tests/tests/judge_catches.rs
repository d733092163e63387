//! The judge must reject: right answers, made wrong in one place each.

use kvplan::Op;
use kvspec::{
    Axis, CacheSpec, Fingerprint, Group, GroupId, Kind, Layer, MemKind, Part, PoolId, Role, SPEC_VERSION, Sharding,
    Storage, StorageIndex, Topology, Usage,
};
use kvtests::judge::{Finding, judge};
use kvtests::run::{list, plan};
use kvtests::transfer::{Moved, Transfer, Worker};

const TOKEN: u64 = 8;
const NUM_BLOCKS: u64 = 10;

/// Three latent layers in block-outermost rows: a page each, and between pages `gap` bytes that nobody owns.
/// Only the layers in `travelling` travel; the others own their bytes all the same.
fn worker(block_tokens: u64, gap: u64, travelling: &[usize], blocks: &[u32]) -> Worker {
    let page = block_tokens * TOKEN;
    let stride = 3 * (page + gap);
    let layer = |i: usize| Layer {
        name: format!("layers.{i}").into(),
        group: GroupId(0),
        kind: Kind::Mla,
        role: Role::Target,
        transfer: travelling.contains(&i),
        parts: vec![Part {
            name: "latent".into(),
            storage: StorageIndex(0),
            offset: i as u64 * (page + gap),
            block_stride: stride,
            sharding: Sharding::Replicated,
            units: Axis { count: 1, stride: page },
            tokens: vec![Axis { count: block_tokens, stride: TOKEN }],
            content: TOKEN,
            tokens_per_state: Default::default(),
            format: String::new(),
        }],
    };
    let spec = CacheSpec {
        version: SPEC_VERSION,
        fingerprint: Fingerprint { model: "m".into(), ..Default::default() },
        topology: Topology::default(),
        storages: vec![Storage { base: 1 << 20, len: NUM_BLOCKS * stride, mem: MemKind::Dram, shared: false }],
        groups: vec![Group { pool: PoolId(0), block_tokens, num_blocks: NUM_BLOCKS, usage: Usage::Tokens }],
        layers: (0..3).map(layer).collect(),
    };
    Worker { spec, lists: vec![list(0, 0, blocks)] }
}

/// One source, one destination, and the planner's answer, which the judge accepts.
fn right(op: Op, source: Worker, destination: Worker, max_gap: u64) -> (Transfer, Moved) {
    let transfer = Transfer { op, sources: vec![source], destinations: vec![destination], max_gap };
    let answer = plan(&transfer).expect("planned").remove(0).remove(0);
    let found = findings(&transfer, &answer);
    assert!(found.is_empty(), "the right answer is accepted: {found:?}");
    (transfer, answer)
}

fn findings(transfer: &Transfer, answer: &Moved) -> Vec<Finding> {
    let answers = std::slice::from_ref(answer);
    judge(&transfer.destinations[0], &transfer.sources, answers, transfer.max_gap).err().unwrap_or_default()
}

/// Pages with gaps between them: three descriptors a block and none bridged.
fn pages(op: Op) -> (Transfer, Moved) {
    let (transfer, answer) = right(op, worker(4, 16, &[0, 1, 2], &[1, 5]), worker(4, 16, &[0, 1, 2], &[3, 8]), 0);
    assert_eq!(answer.copies.len(), 6);
    (transfer, answer)
}

const BOTH: [Op; 2] = [Op::Read, Op::Write];

#[test]
fn each_dropped_descriptor_is_missed() {
    for (transfer, answer) in BOTH.map(pages) {
        for dropped in 0..answer.copies.len() {
            let mut wrong = answer.clone();
            let lost = wrong.copies.remove(dropped);
            let found = findings(&transfer, &wrong);
            assert!(
                matches!(&found[..], [Finding::Coverage { needed: 192, needed_ranges: 6, delivered: 160, .. }]),
                "{lost:?} is missing: {found:?}"
            );
        }
    }
}

#[test]
fn each_duplicated_descriptor_is_found() {
    for (transfer, answer) in BOTH.map(pages) {
        for at in 0..answer.copies.len() {
            let mut wrong = answer.clone();
            let twice = wrong.copies[at];
            wrong.copies.push(twice);
            let found = findings(&transfer, &wrong);
            assert!(found.contains(&Finding::Twice { at: twice.dst }), "{found:?}");
        }
    }
}

#[test]
fn a_destination_off_by_one_byte_is_found() {
    for (transfer, answer) in BOTH.map(pages) {
        for at in 0..answer.copies.len() {
            let mut wrong = answer.clone();
            wrong.copies[at].dst.offset += 1;
            let found = findings(&transfer, &wrong);
            assert!(found.iter().any(|finding| matches!(finding, Finding::WrongByte { .. })), "{found:?}");
            assert!(found.iter().any(|finding| matches!(finding, Finding::Stray { len: 1, .. })), "{found:?}");
            assert!(found.iter().any(|finding| matches!(finding, Finding::Coverage { .. })), "{found:?}");
        }
    }
}

#[test]
fn a_source_off_by_one_byte_or_in_another_block_is_found() {
    for (transfer, answer) in BOTH.map(pages) {
        for at in 0..answer.copies.len() {
            for shift in [1, 144] {
                let mut wrong = answer.clone();
                let right = wrong.copies[at];
                wrong.copies[at].src.offset += shift;
                let expected = Finding::WrongByte {
                    source_rank: 0,
                    at: right.dst,
                    expected: right.src,
                    actual: wrong.copies[at].src,
                };
                assert_eq!(findings(&transfer, &wrong), [expected]);
            }
        }
    }
}

#[test]
fn a_descriptor_beyond_its_storage_is_found() {
    let (transfer, answer) = pages(Op::Read);
    for side in ["source", "destination"] {
        let mut wrong = answer.clone();
        let copy = &mut wrong.copies[5];
        let place = if side == "source" { &mut copy.src } else { &mut copy.dst };
        place.offset = NUM_BLOCKS * 144 - 16;
        let found = findings(&transfer, &wrong);
        let outside = |finding: &Finding| matches!(finding, Finding::OutOfBounds { side: s, .. } if *s == side);
        assert!(found.iter().any(outside), "{found:?}");
    }
}

/// The first two descriptors of an answer as one, with the gap between them.
fn bridged(answer: &Moved) -> (Moved, u64) {
    let mut wrong = answer.clone();
    let next = wrong.copies.remove(1);
    let copy = &mut wrong.copies[0];
    let len = next.dst.offset + next.len - copy.dst.offset;
    let gap = len - copy.len - next.len;
    copy.len = len;
    wrong.padding_bytes += gap;
    (wrong, gap)
}

#[test]
fn a_bridge_over_a_part_that_does_not_travel_is_found() {
    // Gaps of any length are allowed, but layers.1 owns the page between the two that travel.
    for op in BOTH {
        let (transfer, answer) = right(op, worker(4, 0, &[0, 2], &[1]), worker(4, 0, &[0, 2], &[3]), u64::MAX);
        assert_eq!(answer.copies.len(), 2, "the planner does not bridge it");
        let (wrong, gap) = bridged(&answer);
        assert_eq!(gap, 32);
        let found = findings(&transfer, &wrong);
        let live = |finding: &Finding| matches!(finding, Finding::GapOverLiveBytes { layer, block: 3, len: 32, .. } if layer == "layers.1");
        assert!(matches!(&found[..], [finding] if live(finding)), "{found:?}");
    }
}

#[test]
fn a_bridge_longer_than_allowed_is_found() {
    for (transfer, answer) in BOTH.map(pages) {
        let (wrong, gap) = bridged(&answer);
        let found = findings(&transfer, &wrong);
        assert!(matches!(&found[..], [Finding::LongGap { len, max_gap: 0, .. }] if *len == gap), "{found:?}");
    }
}

#[test]
fn a_bridge_that_is_not_counted_as_padding_is_found() {
    let all = [0, 1, 2];
    let (transfer, answer) = right(Op::Read, worker(4, 16, &all, &[1]), worker(4, 16, &all, &[3]), u64::MAX);
    assert_eq!((answer.copies.len(), answer.padding_bytes), (1, 32));
    let mut wrong = answer.clone();
    wrong.padding_bytes = 0;
    assert_eq!(findings(&transfer, &wrong), [Finding::Padding { source_rank: 0, actual: 32, reported: 0 }]);
    wrong = answer;
    wrong.copies[0].len += 1;
    let found = findings(&transfer, &wrong);
    assert!(found.iter().any(|finding| matches!(finding, Finding::Stray { len: 1, .. })), "{found:?}");
}

/// Blocks of 8 tokens are asked for, and the source has one of 4: half of the destination block stays without.
fn half_a_block(op: Op) -> (Transfer, Moved) {
    let all = [0, 1, 2];
    let (transfer, answer) = right(op, worker(4, 0, &all, &[1]), worker(8, 0, &all, &[3]), 0);
    assert_eq!(answer.zero.len(), 3);
    (transfer, answer)
}

#[test]
fn each_dropped_shifted_or_added_zero_range_is_found() {
    for (transfer, answer) in BOTH.map(half_a_block) {
        let must_be_found = |wrong: &Moved| {
            let found = findings(&transfer, wrong);
            assert!(found.iter().any(|finding| matches!(finding, Finding::Zero { .. })), "{found:?}");
        };
        for at in 0..answer.zero.len() {
            let mut wrong = answer.clone();
            wrong.zero.remove(at);
            must_be_found(&wrong);
            let mut wrong = answer.clone();
            wrong.zero[at].0.offset += 1;
            must_be_found(&wrong);
            let mut wrong = answer.clone();
            wrong.zero[at].1 -= 1;
            must_be_found(&wrong);
        }
        let mut wrong = answer.clone();
        let (first, len) = wrong.zero[0];
        wrong.zero.push((kvtests::cells::Place { offset: first.offset + 1000, ..first }, len));
        must_be_found(&wrong);
    }
}

#[test]
fn neighbours_that_were_not_merged_are_found() {
    let all = [0, 1, 2];
    let (transfer, answer) = right(Op::Read, worker(4, 0, &all, &[1]), worker(4, 0, &all, &[3]), 0);
    assert_eq!(answer.copies.len(), 1);
    let mut wrong = answer;
    let mut second = wrong.copies[0];
    second.len -= 32;
    second.dst.offset += 32;
    second.src.offset += 32;
    wrong.copies[0].len = 32;
    wrong.copies.push(second);
    assert_eq!(findings(&transfer, &wrong), [Finding::NotMerged { source_rank: 0, copy: wrong.copies[0] }]);
}

#[test]
fn an_answer_to_a_request_that_must_be_refused_is_found() {
    let (mut transfer, answer) = pages(Op::Read);
    transfer.sources[0].lists = vec![list(0, 0, &[1])];
    let found = findings(&transfer, &answer);
    assert!(matches!(&found[..], [Finding::NotRefused { .. }]), "{found:?}");
}
