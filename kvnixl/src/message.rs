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
pub const MESSAGE_VERSION: u16 = 2;

const MAGIC: [u8; 4] = *b"KVNM";
/// Deepest nesting; a registration needs 4.
const MAX_DEPTH: usize = 16;
/// Block ids in one message: 5 bytes each at most, and room for the rest.
const BLOCKS_IN_MESSAGE: usize = 1200;
/// What a list costs besides its ids, counted in ids.
const LIST_COST: usize = 16;
/// Leases, or numbers of messages, in one message: 9 bytes each at most.
const LEASES_IN_MESSAGE: usize = 800;
/// Longest reason of a producer in bytes; the rest of a longer one is cut off.
pub const MAX_REASON_BYTES: usize = 512;

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
    /// Reader to producer: it reads nothing more under this lease. `let_go` on the wire.
    GivenUp { lease: LeaseId },
    /// Producer to reader: everything is in place.
    Written { reservation: ReservationId },
    /// Producer to reader: not everything will be written, and something may still land. `Released` follows.
    Failed { reservation: ReservationId, why: NotWritten },
    /// Producer to reader: not everything was written, and nothing lands any more.
    Released { reservation: ReservationId, why: NotWritten },
    /// The sender's memory of this generation is about to go; answered by `Drained`.
    Withdraw { generation: u64 },
    /// Nothing of the sender touches the receiver's memory of this generation any more.
    Drained { generation: u64 },
    /// The sender has registered memory with NIXL anew: fetch its blob. `registered` on the wire.
    MemoryRegistered { generation: u64 },
    /// The sender ends; everything of it has settled.
    Goodbye,
    /// These messages of the receiver have arrived.
    Ack { numbers: Vec<u64> },
}

/// A message as it has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// Under which it is to be acknowledged; 0 if it is not.
    pub(crate) number: u64,
    /// Or the beginning of the name of a kind that this version does not know.
    pub(crate) message: Result<Message, String>,
}

/// Why a producer does not write a registration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotWritten {
    /// A transfer to the reader failed.
    #[error("a write failed: {0}")]
    Transfer(String),
    /// The producer refused the registration, with this reason.
    #[error("the producer refused it: {0}")]
    Refused(String),
    /// Its lease has ended.
    #[error("the producer's lease has ended")]
    LeaseEnded,
    /// Its deadline passed at the producer.
    #[error("its deadline passed at the producer")]
    Deadline,
    /// The reader took it back.
    #[error("the reader took it back")]
    Cancelled,
    /// The producer has no room for more registrations.
    #[error("the producer has no room for more registrations")]
    NoRoom,
    /// Its messages did not fit together.
    #[error("its messages did not fit together at the producer")]
    Unfit,
    /// The producer does not know it, or says something that this version does not know.
    #[error("the producer does not know it")]
    Unknown,
}

impl NotWritten {
    fn word(&self) -> &'static str {
        match self {
            Self::Transfer(_) => "transfer",
            Self::Refused(_) => "refused",
            Self::LeaseEnded => "lease_ended",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::NoRoom => "no_room",
            Self::Unfit => "unfit",
            Self::Unknown => "unknown",
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Transfer(reason) | Self::Refused(reason) => cut(reason),
            _ => "",
        }
    }

    fn from_words(word: &str, reason: &str) -> Self {
        let reason = cut(reason);
        // They go into texts that people read line by line.
        let reason = || reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match word {
            "transfer" => Self::Transfer(reason()),
            "refused" => Self::Refused(reason()),
            "lease_ended" => Self::LeaseEnded,
            "deadline" => Self::Deadline,
            "cancelled" => Self::Cancelled,
            "no_room" => Self::NoRoom,
            "unfit" => Self::Unfit,
            _ => Self::Unknown,
        }
    }
}

/// As much of a reason as is sent.
fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
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

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Good => "was good",
            Self::Ended => "had ended",
            Self::Premature => "was not ready to be read",
            Self::Unknown => "is not known there",
        })
    }
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

/// Where a list begins, as the wire has it: 0 says nothing, since it may stand for a list that did not say.
fn said(first: u64) -> Option<u64> {
    (first > 0).then_some(first)
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
struct OutcomeBody {
    reservation: u64,
    why: String,
    reason: String,
}

#[derive(Serialize, Deserialize)]
struct LeaseBody {
    lease: u64,
}

#[derive(Serialize, Deserialize)]
struct NumbersBody {
    numbers: Vec<u64>,
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
            Self::GivenUp { .. } => "let_go",
            Self::Written { .. } => "written",
            Self::Failed { .. } => "failed",
            Self::Released { .. } => "released",
            Self::Withdraw { .. } => "withdraw",
            Self::Drained { .. } => "drained",
            Self::MemoryRegistered { .. } => "registered",
            Self::Goodbye => "goodbye",
            Self::Ack { .. } => "ack",
        }
    }

    /// The bytes to send, to be acknowledged under this number unless it is 0.
    ///
    /// # Errors
    ///
    /// [`Error::NotificationTooLong`].
    pub(crate) fn encode(&self, number: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&MESSAGE_VERSION.to_be_bytes());
        bytes.extend_from_slice(&number.to_be_bytes());
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
                    first: list.start(),
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
            Self::Cancel { reservation } | Self::Written { reservation } => {
                put(bytes, &ReservationBody { reservation: reservation.0 })
            }
            Self::GivenUp { lease } => put(bytes, &LeaseBody { lease: lease.0 }),
            Self::Failed { reservation, why } | Self::Released { reservation, why } => put(
                bytes,
                &OutcomeBody {
                    reservation: reservation.0,
                    why: why.word().to_owned(),
                    reason: why.reason().to_owned(),
                },
            ),
            Self::Ack { numbers } => put(bytes, &NumbersBody { numbers: numbers.clone() }),
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
    /// [`Error::MessageVersion`], [`Error::MessageMalformed`], [`Error::RequestIdLength`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Envelope>> {
        let Some(rest) = bytes.strip_prefix(&MAGIC) else { return Ok(None) };
        let (version, rest) = rest.split_first_chunk().ok_or_else(|| malformed("version", None))?;
        let remote = u16::from_be_bytes(*version);
        if remote != MESSAGE_VERSION {
            return Err(Error::MessageVersion { local: MESSAGE_VERSION, remote });
        }
        let (number, rest) = rest.split_first_chunk().ok_or_else(|| malformed("number", None))?;
        let mut cursor = Cursor::new(rest);
        let kind: String = next(&mut cursor, "kind")?;
        let message = match Self::decode_body(&kind, &mut cursor)? {
            Some(message) => Ok(message),
            None => Err(kind.chars().take(32).collect()),
        };
        if message.is_ok() && usize::try_from(cursor.position()).ok() != Some(rest.len()) {
            return Err(malformed("what follows the body", None));
        }
        Ok(Some(Envelope { number: u64::from_be_bytes(*number), message }))
    }

    /// `None` for a kind that is not known.
    fn decode_body(kind: &str, cursor: &mut Cursor<&[u8]>) -> Result<Option<Self>> {
        let leases = |body: LeasesBody| body.leases.into_iter().map(LeaseId).collect();
        Ok(Some(match kind {
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
                    first: said(first),
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
            "let_go" => Self::GivenUp { lease: LeaseId(next::<LeaseBody>(cursor, "let_go")?.lease) },
            "written" => Self::Written { reservation: reservation(cursor, "written")? },
            "failed" => {
                let (reservation, why) = outcome(cursor, "failed")?;
                Self::Failed { reservation, why }
            }
            "released" => {
                let (reservation, why) = outcome(cursor, "released")?;
                Self::Released { reservation, why }
            }
            "ack" => Self::Ack { numbers: next::<NumbersBody>(cursor, "ack")?.numbers },
            "withdraw" => Self::Withdraw { generation: generation(cursor, "withdraw")? },
            "drained" => Self::Drained { generation: generation(cursor, "drained")? },
            "registered" => Self::MemoryRegistered { generation: generation(cursor, "registered")? },
            "goodbye" => {
                next::<NothingBody>(cursor, "goodbye")?;
                Self::Goodbye
            }
            _ => return Ok(None),
        }))
    }

    /// Heartbeats for these leases, as many messages as it takes.
    pub(crate) fn heartbeats(leases: &[LeaseId]) -> impl Iterator<Item = Self> + '_ {
        leases.chunks(LEASES_IN_MESSAGE).map(|leases| Self::Heartbeat { leases: leases.to_vec() })
    }

    /// That messages have arrived, as many messages as it takes.
    pub(crate) fn acks(numbers: &[u64]) -> impl Iterator<Item = Self> + '_ {
        numbers.chunks(LEASES_IN_MESSAGE).map(|numbers| Self::Ack { numbers: numbers.to_vec() })
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
            let (mut first, mut blocks) = (list.start(), &list.blocks[..]);
            // An empty list is said too.
            loop {
                if room <= LIST_COST {
                    chunks.push(Vec::new());
                    room = BLOCKS_IN_MESSAGE;
                }
                let (now, later) = blocks.split_at(blocks.len().min(room - LIST_COST));
                room -= LIST_COST + now.len();
                if let Some(chunk) = chunks.last_mut() {
                    chunk.push(BlockList { group: list.group, first: said(first), blocks: now.to_vec() });
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

fn outcome(cursor: &mut Cursor<&[u8]>, what: &'static str) -> Result<(ReservationId, NotWritten)> {
    let OutcomeBody { reservation, why, reason } = next(cursor, what)?;
    Ok((ReservationId(reservation), NotWritten::from_words(&why, &reason)))
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
