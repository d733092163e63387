//! What producers and consumers tell each other, in notifications.
//!
//! `docs/WIRE.md` describes the bytes. They come from the network: nothing in them is trusted, and decoding is
//! bounded by [`MAX_NOTIFICATION_BYTES`] and never panics. The sender is whom the transport names; a message never
//! says who it is from.

use std::io::Cursor;
use std::time::Duration;

use kvplan::BlockList;
use kvspec::{BlockId, GroupId};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::lease::{LeaseId, RequestId, ReservationId};
use crate::notify::MAX_NOTIFICATION_BYTES;

/// Version of the messages; those of another version are not read.
pub const MESSAGE_VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"KVNM";
/// Deepest nesting; a registration needs 4.
const MAX_DEPTH: usize = 16;
/// Block ids in one message: 5 bytes each at most, and room for the rest.
const BLOCKS_IN_MESSAGE: usize = 1200;
/// What a list costs besides its ids, counted in ids.
const LIST_COST: usize = 16;
/// Leases in one message: 9 bytes each at most.
const LEASES_IN_MESSAGE: usize = 800;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Reader to producer: everything has been read.
    Completed { request: RequestId, lease: LeaseId, reading: u64 },
    /// Producer to reader: what a completion was worth.
    Confirmed { request: RequestId, lease: LeaseId, reading: u64, verdict: Verdict },
    /// Reader to producer: these leases are still wanted.
    Heartbeat { leases: Vec<LeaseId> },
    /// Producer to reader: these leases are not in force.
    Ended { leases: Vec<LeaseId> },
    /// Reader to producer: write the request into these blocks. Long lists take several messages. `register` on the
    /// wire, and a `Registration` once it has arrived.
    Reserve {
        request: RequestId,
        reservation: ReservationId,
        lists: Vec<BlockList>,
        /// How long writing may go on.
        ttl: Duration,
        /// Number of this message, from 0.
        chunk: u32,
        /// Whether it is the last.
        last: bool,
    },
    /// Reader to producer: not wanted any more, or: what became of it? Answered by `Written` or `Released`.
    Cancel { reservation: ReservationId },
    /// Producer to reader: everything is in place.
    Written { reservation: ReservationId },
    /// Producer to reader: not everything was written, and nothing lands any more.
    Released { reservation: ReservationId },
    /// The sender's memory of this generation is about to go; answered by `Drained`.
    Withdraw { generation: u64 },
    /// Nothing of the sender touches the receiver's memory of this generation any more.
    Drained { generation: u64 },
    /// The sender has registered memory with NIXL anew: fetch its blob. `registered` on the wire.
    MemoryRegistered { generation: u64 },
    /// The sender ends; everything of it has settled.
    Goodbye,
}

/// What a producer says of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The lease was good: use the bytes.
    Good,
    /// It had ended: the bytes may be another request's.
    Ended,
    /// Not everything had been computed.
    Premature,
    /// The producer does not know the lease, or says something that this version does not know.
    Unknown,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Ended => "ended",
            Self::Premature => "premature",
            Self::Unknown => "unknown",
        }
    }

    fn from_word(word: &str) -> Self {
        [Self::Good, Self::Ended, Self::Premature]
            .into_iter()
            .find(|verdict| verdict.word() == word)
            .unwrap_or(Self::Unknown)
    }
}

#[derive(Serialize, Deserialize)]
struct CompletedBody {
    request: String,
    lease: u64,
    reading: u64,
}

#[derive(Serialize, Deserialize)]
struct ConfirmedBody {
    request: String,
    lease: u64,
    reading: u64,
    verdict: String,
}

#[derive(Serialize, Deserialize)]
struct LeasesBody {
    leases: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct ReserveBody {
    request: String,
    reservation: u64,
    lists: Vec<ListBody>,
    ttl_ms: u64,
    chunk: u32,
    last: bool,
}

#[derive(Serialize, Deserialize)]
struct ListBody {
    group: u32,
    first: u64,
    blocks: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct ReservationBody {
    reservation: u64,
}

#[derive(Serialize, Deserialize)]
struct GenerationBody {
    generation: u64,
}

#[derive(Serialize, Deserialize)]
struct NothingBody {}

impl Message {
    /// The word that names it on the wire.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "completed",
            Self::Confirmed { .. } => "confirmed",
            Self::Heartbeat { .. } => "heartbeat",
            Self::Ended { .. } => "ended",
            Self::Reserve { .. } => "register",
            Self::Cancel { .. } => "cancel",
            Self::Written { .. } => "written",
            Self::Released { .. } => "released",
            Self::Withdraw { .. } => "withdraw",
            Self::Drained { .. } => "drained",
            Self::MemoryRegistered { .. } => "registered",
            Self::Goodbye => "goodbye",
        }
    }

    /// The bytes to send.
    ///
    /// # Errors
    ///
    /// [`Error::NotificationTooLong`].
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&MESSAGE_VERSION.to_be_bytes());
        rmp_serde::encode::write(&mut bytes, self.kind())?;
        self.encode_body(&mut bytes)?;
        crate::notify::check_length(&bytes)?;
        Ok(bytes)
    }

    fn encode_body(&self, bytes: &mut Vec<u8>) -> Result<()> {
        fn put<T: Serialize>(bytes: &mut Vec<u8>, body: &T) -> Result<()> {
            Ok(rmp_serde::encode::write_named(bytes, body)?)
        }
        match self {
            Self::Completed { request, lease, reading } => {
                put(bytes, &CompletedBody { request: request.as_str().to_owned(), lease: lease.0, reading: *reading })
            }
            Self::Confirmed { request, lease, reading, verdict } => put(
                bytes,
                &ConfirmedBody {
                    request: request.as_str().to_owned(),
                    lease: lease.0,
                    reading: *reading,
                    verdict: verdict.word().to_owned(),
                },
            ),
            Self::Heartbeat { leases } | Self::Ended { leases } => {
                put(bytes, &LeasesBody { leases: leases.iter().map(|lease| lease.0).collect() })
            }
            Self::Reserve { request, reservation, lists, ttl, chunk, last } => {
                let list = |list: &BlockList| ListBody {
                    group: list.group.0,
                    first: list.first,
                    blocks: list.blocks.iter().map(|block| block.0).collect(),
                };
                put(
                    bytes,
                    &ReserveBody {
                        request: request.as_str().to_owned(),
                        reservation: reservation.0,
                        lists: lists.iter().map(list).collect(),
                        ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
                        chunk: *chunk,
                        last: *last,
                    },
                )
            }
            Self::Cancel { reservation } | Self::Written { reservation } | Self::Released { reservation } => {
                put(bytes, &ReservationBody { reservation: reservation.0 })
            }
            Self::Withdraw { generation } | Self::Drained { generation } | Self::MemoryRegistered { generation } => {
                put(bytes, &GenerationBody { generation: *generation })
            }
            Self::Goodbye => put(bytes, &NothingBody {}),
        }
    }

    /// Reads a notification; `None` when it is none of ours but the engine's own.
    ///
    /// # Errors
    ///
    /// [`Error::MessageVersion`], [`Error::MessageKind`], [`Error::MessageMalformed`], [`Error::RequestIdLength`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let Some(rest) = bytes.strip_prefix(&MAGIC) else { return Ok(None) };
        let (version, rest) = rest.split_first_chunk().ok_or_else(|| malformed("version", None))?;
        let remote = u16::from_be_bytes(*version);
        if remote != MESSAGE_VERSION {
            return Err(Error::MessageVersion { local: MESSAGE_VERSION, remote });
        }
        let mut cursor = Cursor::new(rest);
        let kind: String = next(&mut cursor, "kind")?;
        let message = Self::decode_body(&kind, &mut cursor)?;
        if usize::try_from(cursor.position()).ok() != Some(rest.len()) {
            return Err(malformed("what follows the body", None));
        }
        Ok(Some(message))
    }

    fn decode_body(kind: &str, cursor: &mut Cursor<&[u8]>) -> Result<Self> {
        let leases = |body: LeasesBody| body.leases.into_iter().map(LeaseId).collect();
        Ok(match kind {
            "completed" => {
                let CompletedBody { request, lease, reading } = next(cursor, "completed")?;
                Self::Completed { request: RequestId::new(request)?, lease: LeaseId(lease), reading }
            }
            "confirmed" => {
                let ConfirmedBody { request, lease, reading, verdict } = next(cursor, "confirmed")?;
                let verdict = Verdict::from_word(&verdict);
                Self::Confirmed { request: RequestId::new(request)?, lease: LeaseId(lease), reading, verdict }
            }
            "heartbeat" => Self::Heartbeat { leases: leases(next(cursor, "heartbeat")?) },
            "ended" => Self::Ended { leases: leases(next(cursor, "ended")?) },
            "register" => {
                let ReserveBody { request, reservation, lists, ttl_ms, chunk, last } = next(cursor, "register")?;
                let list = |ListBody { group, first, blocks }: ListBody| BlockList {
                    group: GroupId(group),
                    first,
                    blocks: blocks.into_iter().map(BlockId).collect(),
                };
                Self::Reserve {
                    request: RequestId::new(request)?,
                    reservation: ReservationId(reservation),
                    lists: lists.into_iter().map(list).collect(),
                    ttl: Duration::from_millis(ttl_ms),
                    chunk,
                    last,
                }
            }
            "cancel" => Self::Cancel { reservation: reservation(cursor, "cancel")? },
            "written" => Self::Written { reservation: reservation(cursor, "written")? },
            "released" => Self::Released { reservation: reservation(cursor, "released")? },
            "withdraw" => Self::Withdraw { generation: generation(cursor, "withdraw")? },
            "drained" => Self::Drained { generation: generation(cursor, "drained")? },
            "registered" => Self::MemoryRegistered { generation: generation(cursor, "registered")? },
            "goodbye" => {
                next::<NothingBody>(cursor, "goodbye")?;
                Self::Goodbye
            }
            _ => return Err(Error::MessageKind { kind: kind.chars().take(32).collect() }),
        })
    }

    /// Heartbeats for these leases, as many messages as it takes.
    pub(crate) fn heartbeats(leases: &[LeaseId]) -> impl Iterator<Item = Self> + '_ {
        leases.chunks(LEASES_IN_MESSAGE).map(|leases| Self::Heartbeat { leases: leases.to_vec() })
    }

    /// What a producer is to write of a reservation, as many messages as it takes.
    pub(crate) fn reserves(
        request: &RequestId,
        reservation: ReservationId,
        lists: &[BlockList],
        ttl: Duration,
    ) -> Vec<Self> {
        let mut chunks: Vec<Vec<BlockList>> = vec![Vec::new()];
        let mut room = BLOCKS_IN_MESSAGE;
        for list in lists {
            let (mut first, mut blocks) = (list.first, &list.blocks[..]);
            // An empty list is said too.
            loop {
                if room <= LIST_COST {
                    chunks.push(Vec::new());
                    room = BLOCKS_IN_MESSAGE;
                }
                let (now, later) = blocks.split_at(blocks.len().min(room - LIST_COST));
                room -= LIST_COST + now.len();
                if let Some(chunk) = chunks.last_mut() {
                    chunk.push(BlockList { group: list.group, first, blocks: now.to_vec() });
                }
                // The end of a list is checked by whoever plans with it.
                first = first.saturating_add(now.len() as u64);
                blocks = later;
                if blocks.is_empty() {
                    break;
                }
            }
        }
        let num = chunks.len();
        let message = |(lists, chunk): (Vec<BlockList>, u32)| Self::Reserve {
            request: request.clone(),
            reservation,
            lists,
            ttl,
            chunk,
            last: chunk as usize + 1 == num,
        };
        chunks.into_iter().zip(0_u32..).map(message).collect()
    }
}

fn malformed(what: &'static str, source: Option<rmp_serde::decode::Error>) -> Error {
    Error::MessageMalformed { what, source }
}

fn next<T: for<'de> Deserialize<'de>>(cursor: &mut Cursor<&[u8]>, what: &'static str) -> Result<T> {
    let mut decoder = rmp_serde::Deserializer::new(cursor);
    decoder.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut decoder).map_err(|source| malformed(what, Some(source)))
}

fn reservation(cursor: &mut Cursor<&[u8]>, what: &'static str) -> Result<ReservationId> {
    Ok(ReservationId(next::<ReservationBody>(cursor, what)?.reservation))
}

fn generation(cursor: &mut Cursor<&[u8]>, what: &'static str) -> Result<u64> {
    Ok(next::<GenerationBody>(cursor, what)?.generation)
}

// A whole chunk of ids and a request id of full length fit.
const _: () = assert!(
    BLOCKS_IN_MESSAGE * 5 + 512 < MAX_NOTIFICATION_BYTES && LEASES_IN_MESSAGE * 9 + 64 < MAX_NOTIFICATION_BYTES
);

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
