//! Answers made by hand, wrong in one way each.

use kvspec::{BlockId, CacheSpec, ContextShard, GroupId, Shard, StorageIndex, Topology, ValidSpec};
use serde_json::json;

use super::*;
use crate::pair::PairOptions;
use crate::refusal::RequestError;
use crate::request::{BlockList, Op};

const PAGE: u64 = 32;

/// Three layers of 4-token pages, one after another in a row of 8 blocks; `layers.1` travels or not.
fn spec(block_tokens: u64, middle_travels: bool) -> ValidSpec {
    let page = block_tokens * 8;
    let layer = |i: u64| {
        json!({"name": format!("layers.{i}"), "group": 0, "kind": "mla", "transfer": i != 1 || middle_travels,
            "parts": [{"name": "latent", "storage": 0, "offset": i * page, "block_stride": 3 * page,
                "sharding": "replicated", "units": {"count": 1, "stride": page},
                "tokens": [{"count": block_tokens, "stride": 8}], "content": 8}]})
    };
    let spec = json!({"version": 1, "fingerprint": {"model": "m"},
        "storages": [{"base": 4096, "len": 8 * 3 * page, "mem": "dram"}],
        "groups": [{"pool": 0, "block_tokens": block_tokens, "num_blocks": 8}],
        "layers": [layer(0), layer(1), layer(2)]});
    CacheSpec::from_json(&spec.to_string()).unwrap().validate().unwrap()
}

fn list(blocks: &[u32]) -> Vec<BlockList> {
    vec![BlockList { group: GroupId(0), first: None, blocks: blocks.iter().copied().map(BlockId).collect() }]
}

/// Local block 5 from the peer's block 2.
fn request() -> Request {
    Request { op: Op::Read, local: list(&[5]), remote: list(&[2]), ..Request::default() }
}

fn plan(local_tokens: u64, middle_travels: bool, max_gap: u64) -> PairPlan {
    let (local, remote) = (spec(local_tokens, middle_travels), spec(4, middle_travels));
    PairPlan::new(&local, &remote, &PairOptions { max_gap, ..Default::default() }).unwrap()
}

fn answer(moves: &[(u64, u64, u64)], zero: &[(u64, u64)], padding_bytes: u64) -> Descriptors {
    let storage = StorageIndex(0);
    let descriptor = |&(local_offset, remote_offset, len): &_| Descriptor {
        local_storage: storage,
        remote_storage: storage,
        local_offset,
        remote_offset,
        len,
    };
    Descriptors {
        descriptors: moves.iter().map(descriptor).collect(),
        zero: zero.iter().map(|&(offset, len)| ZeroRange { storage, offset, len }).collect(),
        padding_bytes,
        ..Descriptors::new()
    }
}

const STORAGE: StorageIndex = StorageIndex(0);
/// First byte of local block 5, and of the peer's block 2.
const TO: u64 = 5 * 3 * PAGE;
const FROM: u64 = 2 * 3 * PAGE;

#[test]
fn an_answer_by_hand_is_accepted_whole_or_in_pieces() {
    let plan = plan(4, true, 0);
    assert_eq!(plan.verify(&request(), &answer(&[(TO, FROM, 96)], &[], 0)), Ok(()));
    assert_eq!(plan.verify(&request(), &answer(&[(TO + 32, FROM + 32, 64), (TO, FROM, 32)], &[], 0)), Ok(()));
}

#[test]
fn no_answer_is_right_for_a_request_that_must_be_refused() {
    let plan = plan(4, true, u64::MAX);
    let right = answer(&[(TO, FROM, 96)], &[], 0);
    let verify = |request: Request| match plan.verify(&request, &right) {
        Err(VerifyError::Request(error)) => error,
        other => panic!("{other:?}"),
    };
    let beyond = verify(Request { local: list(&[8]), ..request() });
    assert!(matches!(beyond, RequestError::BlockOutOfRange { side: Side::Local, block: BlockId(8), .. }), "{beyond}");
    let mut unknown = request();
    unknown.remote[0].group = GroupId(7);
    let unknown = verify(unknown);
    assert!(matches!(unknown, RequestError::UnknownGroup { side: Side::Remote, group: GroupId(7), .. }), "{unknown}");
    let turned = verify(Request { op: Op::Write, ..request() });
    assert_eq!(turned, RequestError::Direction { request: Op::Write, plan: Op::Read });
}

#[test]
fn tokens_of_another_context_parallel_rank_are_rejected() {
    // Rank 1 of 2 holds every second run of 2 tokens: positions 2, 3, 6 and 7 in its first block.
    let mut local = CacheSpec::clone(&spec(4, true));
    let shard = Shard { rank: 1, size: 2 };
    local.topology =
        Topology { tp: shard, dcp: ContextShard { rank: 1, size: 2, interleave: Some(2) }, ..local.topology };
    let plan = PairPlan::new(&local.validate().unwrap(), &spec(4, true), &PairOptions::default()).unwrap();
    let request = Request { op: Op::Read, local: list(&[5]), remote: list(&[2, 4]), ..Request::default() };
    let halves = |token: u64| -> Vec<_> {
        let half = |layer: u64, half: u64| {
            (TO + layer * PAGE + half * 16, (2 + 2 * half) * 3 * PAGE + layer * PAGE + token * 8, 16)
        };
        (0..3).flat_map(|layer| [half(layer, 0), half(layer, 1)]).collect()
    };
    assert_eq!(plan.verify(&request, &answer(&halves(2), &[], 0)), Ok(()));
    let of_rank_0 = plan.verify(&request, &answer(&halves(0), &[], 0));
    assert!(matches!(of_rank_0, Err(VerifyError::NotDelivered { offset: TO, len: 16, .. })), "{of_rank_0:?}");
}

#[test]
fn a_descriptor_outside_either_storage_is_rejected() {
    let plan = plan(4, true, 0);
    let out = |side, offset| VerifyError::OutOfBounds { side, storage: STORAGE, offset, len: 96, storage_len: 768 };
    for offset in [768 - 95, u64::MAX] {
        let local = plan.verify(&request(), &answer(&[(offset, FROM, 96)], &[], 0));
        assert_eq!(local, Err(out(Side::Local, offset)));
        let remote = plan.verify(&request(), &answer(&[(TO, offset, 96)], &[], 0));
        assert_eq!(remote, Err(out(Side::Remote, offset)));
    }
}

#[test]
fn a_byte_written_twice_is_rejected() {
    let moves = [(TO, FROM, 96), (TO + 95, FROM + 95, 1)];
    let found = plan(4, true, 0).verify(&request(), &answer(&moves, &[], 0));
    assert_eq!(found, Err(VerifyError::WrittenTwice { storage: STORAGE, offset: TO + 95 }));
}

#[test]
fn missing_short_and_misplaced_descriptors_are_rejected() {
    let plan = plan(4, true, 0);
    let missing = VerifyError::NotDelivered {
        storage: STORAGE,
        offset: TO,
        len: 96,
        source_storage: STORAGE,
        source_offset: FROM,
    };
    let wrong = [
        vec![],
        vec![(TO, FROM, 95)],
        vec![(TO + 1, FROM + 1, 95)],
        vec![(TO, FROM + 1, 96)],
        vec![(TO, FROM + 96, 96)],
        vec![(TO + 96, FROM, 96)],
        vec![(TO, FROM, 32), (TO + 64, FROM + 64, 32)],
    ];
    for moves in wrong {
        assert_eq!(plan.verify(&request(), &answer(&moves, &[], 0)), Err(missing.clone()), "{moves:?}");
    }
}

#[test]
fn bytes_that_are_not_needed_are_rejected_where_somebody_owns_them_or_no_gap_may_be_bridged() {
    let whole = answer(&[(TO, FROM, 96)], &[], 32);
    let written = |why| Err(VerifyError::Overwritten { storage: STORAGE, offset: TO + 32, len: 32, why });
    // `layers.1` does not travel and keeps its page between the two that do.
    let owned = plan(4, false, u64::MAX).verify(&request(), &whole);
    let middle = NotFree::Owned { layer: "layers.1".into(), part: "latent".into(), block: BlockId(5) };
    assert_eq!(owned, written(middle));
    assert_eq!(plan(4, false, 0).verify(&request(), &whole), written(NotFree::NoGapAllowed));
}

#[test]
fn padding_that_is_counted_wrong_is_rejected() {
    let plan = plan(4, true, 0);
    let found = plan.verify(&request(), &answer(&[(TO, FROM, 96)], &[], 7));
    assert_eq!(found, Err(VerifyError::WrongPadding { counted: 7, moved: 0 }));
    let found = plan.verify(&request(), &answer(&[(TO, FROM, 97)], &[], 0));
    assert_eq!(found, Err(VerifyError::WrongPadding { counted: 0, moved: 1 }));
}

#[test]
fn zero_ranges_that_are_missing_wrong_or_unasked_are_rejected() {
    // Blocks of 8 tokens here, of 4 at the peer: the second half of each 64-byte page stays without a source.
    let plan = plan(8, true, 0);
    let at = 5 * 192;
    let moves = [(at, FROM, 32), (at + 64, FROM + 32, 32), (at + 128, FROM + 64, 32)];
    let zero = [(at + 32, 32), (at + 96, 32), (at + 160, 32)];
    let verify = |zero: &[(u64, u64)]| plan.verify(&request(), &answer(&moves, zero, 0));
    let wrong = |offset| Err(VerifyError::WrongZero { storage: STORAGE, offset });
    assert_eq!(verify(&zero), Ok(()));
    assert_eq!(verify(&zero[..2]), wrong(at + 160), "the last is missing");
    assert_eq!(verify(&zero[1..]), wrong(at + 32), "the first is missing");
    assert_eq!(verify(&[zero[0], (at + 96, 31), zero[2]]), wrong(at + 96), "one is short");
    assert_eq!(verify(&[zero[0], zero[1], zero[2], (at + 192, 8)]), wrong(at + 192), "one is too many");
}

#[test]
fn a_proof_that_takes_too_many_steps_is_given_up_and_says_so() {
    let plan = plan(4, true, 0);
    let right = answer(&[(TO, FROM, 96)], &[], 0);
    assert_eq!(plan.verify_within(&request(), &right, 5), Err(VerifyError::TooLarge { limit: 5 }));
    assert_eq!(plan.verify_within(&request(), &right, 1000), Ok(()));
}
