//! The bytes are pinned by `tests/data/messages_v1.txt`; garbage ends in a typed error.

use proptest::prelude::*;

use super::*;

const GOLDEN: &str = include_str!("../tests/data/messages_v1.txt");

fn request() -> RequestId {
    RequestId::new("req-7").unwrap()
}

fn list(group: u32, first: u64, blocks: &[u32]) -> BlockList {
    BlockList { group: GroupId(group), first, blocks: blocks.iter().copied().map(BlockId).collect() }
}

/// One of each kind.
fn each() -> Vec<Message> {
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
        Message::Released { reservation },
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
    let mut bytes = [&MAGIC[..], &MESSAGE_VERSION.to_be_bytes()].concat();
    rmp_serde::encode::write(&mut bytes, kind).unwrap();
    rmp_serde::encode::write_named(&mut bytes, body).unwrap();
    bytes
}

#[test]
fn messages_are_written_and_read_as_they_always_were() {
    let written: String =
        each().iter().map(|message| format!("{} {}\n", message.kind(), hex(&message.encode().unwrap()))).collect();
    assert_eq!(written, GOLDEN, "the wire format changed: see docs/WIRE.md");
    for message in each() {
        assert_eq!(Message::decode(&message.encode().unwrap()).unwrap(), Some(message));
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
    assert_eq!(Message::decode(&later).unwrap(), Some(Message::Written { reservation: ReservationId(9) }));
    let verdict =
        message("confirmed", &ConfirmedBody { request: "r".into(), lease: 1, reading: 1, verdict: "later".into() });
    assert!(matches!(Message::decode(&verdict).unwrap(), Some(Message::Confirmed { verdict: Verdict::Unknown, .. })));
}

#[test]
fn what_cannot_be_read_is_a_typed_error() {
    let mut other_version = Message::Goodbye.encode().unwrap();
    other_version[5] = 2;
    let error = Message::decode(&other_version).unwrap_err();
    assert!(matches!(error, Error::MessageVersion { local: 1, remote: 2 }), "{error}");
    let error = Message::decode(&message("dance", &NothingBody {})).unwrap_err();
    assert!(matches!(&error, Error::MessageKind { kind } if kind == "dance"), "{error}");
    for request in [String::new(), "x".repeat(257)] {
        let error =
            Message::decode(&message("completed", &CompletedBody { request, lease: 1, reading: 1 })).unwrap_err();
        assert!(matches!(error, Error::RequestIdLength { max: 256, .. }), "{error}");
    }
    let trailing = [Message::Goodbye.encode().unwrap(), vec![0]].concat();
    assert!(matches!(Message::decode(&trailing), Err(Error::MessageMalformed { .. })));
    for message in each() {
        let bytes = message.encode().unwrap();
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
        let Some(Message::Reserve { lists, chunk, last, .. }) = Message::decode(&message.encode().unwrap()).unwrap()
        else {
            panic!("not a registration");
        };
        assert_eq!((chunk as usize, last), (i, i + 1 == messages.len()));
        chunks.extend(lists);
    }
    let mut whole: Vec<BlockList> = Vec::new();
    for chunk in chunks {
        match whole.last_mut() {
            Some(list) if list.group == chunk.group => {
                assert_eq!(list.first + list.blocks.len() as u64, chunk.first);
                list.blocks.extend(chunk.blocks);
            }
            _ => whole.push(chunk),
        }
    }
    assert_eq!(whole, lists);
    let none = Message::reserves(&request, ReservationId(1), &[], Duration::ZERO);
    assert!(matches!(&none[..], [Message::Reserve { last: true, chunk: 0, .. }]));
    let leases: Vec<LeaseId> = (0..2000).map(|i| LeaseId(u64::MAX - i)).collect();
    let beats: Vec<Vec<u8>> = Message::heartbeats(&leases).map(|beat| beat.encode().unwrap()).collect();
    assert_eq!(beats.len(), 3);
}

proptest! {
    #[test]
    fn prop_garbage_is_never_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), which in 0_usize..15, at: prop::sample::Index, byte: u8) {
        let _ = Message::decode(&bytes);
        bytes.splice(0..0, [&MAGIC[..], &MESSAGE_VERSION.to_be_bytes()].concat());
        let _ = Message::decode(&bytes);
        let mut near = each()[which].encode().unwrap();
        let at = at.index(near.len());
        near[at] = byte;
        // Whatever is still read can be written again.
        if let Ok(Some(message)) = Message::decode(&near) {
            prop_assert!(message.encode().is_ok());
        }
    }
}
