//! The bytes are pinned by `tests/data/messages_v2.txt`; garbage ends in a typed error.

use proptest::prelude::*;

use super::*;

const GOLDEN: &str = include_str!("../tests/data/messages_v2.txt");
const GOLDEN_V1: &str = include_str!("../tests/data/messages_v1.txt");

fn request() -> RequestId {
    RequestId::new("req-7").unwrap()
}

fn list(group: u32, first: u64, blocks: &[u32]) -> BlockList {
    BlockList {
        group: GroupId(group),
        first: (first > 0).then_some(first),
        blocks: blocks.iter().copied().map(BlockId).collect(),
    }
}

/// One of each kind, with the number under which it is acknowledged.
fn each() -> Vec<(u64, Message)> {
    let mut reasons = vec![NotWritten::Transfer("a wire broke".into()), NotWritten::Refused("too late, \u{e4}".into())];
    reasons.extend([NotWritten::LeaseEnded, NotWritten::Deadline, NotWritten::Cancelled, NotWritten::NoRoom]);
    reasons.extend([NotWritten::Unfit, NotWritten::Unknown]);
    let (outcomes, reservation) = (reasons.into_iter(), ReservationId(0x0123_4567_0000_0002));
    let outcomes: Vec<Message> = outcomes.map(|why| Message::Released { reservation, why }).collect();
    let failed = Message::Failed { reservation, why: NotWritten::LeaseEnded };
    let others = [Message::GivenUp { lease: LeaseId(7) }, Message::Ack { numbers: vec![1, u64::MAX] }, failed];
    let all = first().into_iter().chain(others).chain(outcomes);
    let needs_no_ack = ["completed", "confirmed", "heartbeat", "ended", "cancel", "withdraw", "drained", "ack"];
    let number = |message: &Message| if needs_no_ack.contains(&message.kind()) { 0 } else { 0xfedc_ba98_0000_0003 };
    all.map(|message| (number(&message), message)).collect()
}

/// Those that version 1 had, too.
fn first() -> Vec<Message> {
    let (lease, reservation) = (LeaseId(0x89ab_cdef_0000_0001), ReservationId(0x0123_4567_0000_0002));
    vec![
        Message::Completed { request: request(), lease, reading: 5 },
        Message::Confirmed { request: request(), lease, reading: 5, verdict: Verdict::Good },
        Message::Confirmed { request: request(), lease, reading: 5, verdict: Verdict::Ended },
        Message::Confirmed { request: request(), lease, reading: 5, verdict: Verdict::Premature },
        Message::Confirmed { request: request(), lease, reading: 5, verdict: Verdict::Unknown },
        Message::Heartbeat { leases: vec![lease, LeaseId(3)] },
        Message::Ended { leases: vec![lease] },
        Message::Reserve {
            request: request(),
            reservation,
            lists: vec![list(0, 12, &[5, 300, u32::MAX]), list(2, 0, &[])],
            ttl: Duration::from_secs(30),
            chunk: 1,
            last: true,
        },
        Message::Cancel { reservation },
        Message::Written { reservation },
        Message::Withdraw { generation: 1 },
        Message::Drained { generation: 1 },
        Message::MemoryRegistered { generation: 2 },
        Message::Goodbye,
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn message(kind: &str, body: &impl Serialize) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &MESSAGE_VERSION.to_be_bytes(), &5_u64.to_be_bytes()].concat();
    rmp_serde::encode::write(&mut bytes, kind).unwrap();
    rmp_serde::encode::write_named(&mut bytes, body).unwrap();
    bytes
}

#[test]
fn messages_are_written_and_read_as_they_always_were() {
    let line =
        |(number, message): &(u64, Message)| format!("{} {}\n", message.kind(), hex(&message.encode(*number).unwrap()));
    let written: String = each().iter().map(line).collect();
    assert_eq!(written, GOLDEN, "the wire format changed: see docs/WIRE.md");
    for (number, message) in each() {
        let read = Message::decode(&message.encode(number).unwrap()).unwrap();
        assert_eq!(read, Some(Envelope { number, message: Ok(message) }));
    }
}

#[test]
fn messages_of_the_version_before_are_refused() {
    assert_eq!(GOLDEN_V1.lines().count(), 15);
    for line in GOLDEN_V1.lines() {
        let (_, bytes) = line.split_once(' ').unwrap();
        let bytes: Vec<u8> =
            (0..bytes.len() / 2).map(|i| u8::from_str_radix(&bytes[2 * i..2 * i + 2], 16).unwrap()).collect();
        let error = Message::decode(&bytes).unwrap_err();
        assert!(matches!(error, Error::MessageVersion { local: 2, remote: 1 }), "{error}");
    }
}

#[test]
fn reasons_are_bounded_and_stay_on_one_line() {
    let long = NotWritten::Refused("\u{e4}".repeat(MAX_REASON_BYTES));
    let released = Message::Released { reservation: ReservationId(1), why: long };
    let NotWritten::Refused(reason) = why_of(&released.encode(1).unwrap()) else { panic!("another reason") };
    assert_eq!(reason, "\u{e4}".repeat(MAX_REASON_BYTES / 2), "cut between two characters");
    let body = |why: &str, reason: &str| OutcomeBody { reservation: 1, why: why.into(), reason: reason.into() };
    let more = message("released", &body("refused", &"x".repeat(5000)));
    assert_eq!(why_of(&more), NotWritten::Refused("x".repeat(MAX_REASON_BYTES)));
    let forged = message("released", &body("transfer", "a\nb\x1b[2J"));
    assert_eq!(why_of(&forged), NotWritten::Transfer("a b [2J".into()));
    assert_eq!(why_of(&message("released", &body("later", "?"))), NotWritten::Unknown);
}

fn why_of(bytes: &[u8]) -> NotWritten {
    match Message::decode(bytes).unwrap().unwrap().message {
        Ok(Message::Released { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_engines_own_notifications_are_not_ours() {
    for other in [&b""[..], b"K", b"KVNX\0\x01", b"\xff\0anything"] {
        assert_eq!(Message::decode(other).unwrap(), None);
    }
}

#[test]
fn fields_that_are_not_known_are_skipped() {
    #[derive(Serialize)]
    struct Later {
        hint: Vec<u8>,
        reservation: u64,
    }
    let later = message("written", &Later { hint: vec![1, 2], reservation: 9 });
    let written = Message::Written { reservation: ReservationId(9) };
    assert_eq!(Message::decode(&later).unwrap(), Some(Envelope { number: 5, message: Ok(written) }));
    let verdict =
        message("confirmed", &ConfirmedBody { request: "r".into(), lease: 1, reading: 1, verdict: "later".into() });
    let read = Message::decode(&verdict).unwrap().unwrap().message;
    assert!(matches!(read, Ok(Message::Confirmed { verdict: Verdict::Unknown, .. })));
}

#[test]
fn what_cannot_be_read_is_a_typed_error() {
    let mut other_version = Message::Goodbye.encode(1).unwrap();
    other_version[5] = 3;
    let error = Message::decode(&other_version).unwrap_err();
    assert!(matches!(error, Error::MessageVersion { local: 2, remote: 3 }), "{error}");
    let unknown = Message::decode(&message("dance", &NothingBody {})).unwrap();
    assert_eq!(unknown, Some(Envelope { number: 5, message: Err("dance".into()) }), "it can be acknowledged");
    for request in [String::new(), "x".repeat(257)] {
        let error =
            Message::decode(&message("completed", &CompletedBody { request, lease: 1, reading: 1 })).unwrap_err();
        assert!(matches!(error, Error::RequestIdLength { max: 256, .. }), "{error}");
    }
    let trailing = [Message::Goodbye.encode(1).unwrap(), vec![0]].concat();
    assert!(matches!(Message::decode(&trailing), Err(Error::MessageMalformed { .. })));
    for (number, message) in each() {
        let bytes = message.encode(number).unwrap();
        for cut in MAGIC.len()..bytes.len() {
            assert!(Message::decode(&bytes[..cut]).is_err(), "{message:?} cut at {cut}");
        }
    }
}

#[test]
fn long_registrations_are_cut_into_messages_that_fit() {
    let request = RequestId::new("x".repeat(256)).unwrap();
    let long: Vec<u32> = (0..6000).map(|i| u32::MAX - i).collect();
    let lists: Vec<BlockList> =
        std::iter::once(list(0, 7, &long)).chain((1..300).map(|group| list(group, u64::MAX, &[u32::MAX]))).collect();
    let messages = Message::reserves(&request, ReservationId(u64::MAX), &lists, Duration::MAX);
    let mut chunks: Vec<BlockList> = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        let read = Message::decode(&message.encode(u64::MAX).unwrap()).unwrap().unwrap();
        let Ok(Message::Reserve { lists, chunk, last, .. }) = read.message else {
            panic!("not a registration");
        };
        assert_eq!((chunk as usize, last), (i, i + 1 == messages.len()));
        chunks.extend(lists);
    }
    let mut whole: Vec<BlockList> = Vec::new();
    for chunk in chunks {
        match whole.last_mut() {
            Some(list) if list.group == chunk.group => {
                assert_eq!(list.start() + list.blocks.len() as u64, chunk.start());
                list.blocks.extend(chunk.blocks);
            }
            _ => whole.push(chunk),
        }
    }
    assert_eq!(whole, lists);
    let none = Message::reserves(&request, ReservationId(1), &[], Duration::ZERO);
    assert!(matches!(&none[..], [Message::Reserve { last: true, chunk: 0, .. }]));
    let leases: Vec<LeaseId> = (0..2000).map(|i| LeaseId(u64::MAX - i)).collect();
    let beats: Vec<Vec<u8>> = Message::heartbeats(&leases).map(|beat| beat.encode(0).unwrap()).collect();
    assert_eq!(beats.len(), 3);
    let acks: Vec<Vec<u8>> = Message::acks(&[u64::MAX; 2000]).map(|ack| ack.encode(0).unwrap()).collect();
    assert_eq!(acks.len(), 3);
}

proptest! {
    #[test]
    fn prop_garbage_is_never_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), which in 0_usize..each().len(), at: prop::sample::Index, byte: u8) {
        let _ = Message::decode(&bytes);
        bytes.splice(0..0, [&MAGIC[..], &MESSAGE_VERSION.to_be_bytes()].concat());
        let _ = Message::decode(&bytes);
        let (number, near) = &each()[which];
        let mut near = near.encode(*number).unwrap();
        let at = at.index(near.len());
        near[at] = byte;
        // Whatever is still read can be written again.
        if let Ok(Some(Envelope { number, message: Ok(message) })) = Message::decode(&near) {
            prop_assert!(message.encode(number).is_ok());
        }
    }
}
