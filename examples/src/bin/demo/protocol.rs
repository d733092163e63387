//! What the demo and its workers say to each other: a command, then its answer, each a 4-byte big-endian length and
//! MessagePack.

use std::io::{self, Read, Write};

use kvplan::Op;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::Error;
use crate::pattern::Wrong;

/// Longest message; a blob of 99 views is some tens of kilobytes.
const MAX_BYTES: usize = 16 << 20;

/// The blocks of a request, in the order of the sequence, at each worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BlockLists {
    pub(crate) prefill: Vec<u32>,
    pub(crate) decode: Vec<u32>,
}

/// From the demo to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Lay the caches out anew, start an agent and register them. The peer's blob is the answer.
    Open { layout: String, num_blocks: u32 },
    /// Connect the peer, and move one block so that the connection is made.
    Connect {
        #[serde(with = "serde_bytes")]
        blob: Vec<u8>,
        warm_up: Option<Op>,
    },
    /// Fill the caches: prefill with the sequence, decode with something else in every block.
    Fill { lists: BlockLists },
    /// Move the request's blocks.
    Transfer { op: Op, lists: BlockLists },
    /// Copy the same byte ranges within this process.
    Memcpy { lists: BlockLists },
    /// Change one byte of the request's first block.
    Spoil { lists: BlockLists },
    /// Compare every byte with what it must be, now that the request has been moved.
    Check { lists: BlockLists },
    /// End.
    Quit,
}

impl Command {
    /// In the words of an error: "cannot …".
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open its caches",
            Self::Connect { .. } => "connect",
            Self::Fill { .. } => "fill its caches",
            Self::Transfer { .. } => "transfer blocks",
            Self::Memcpy { .. } => "copy memory",
            Self::Spoil { .. } => "spoil a byte",
            Self::Check { .. } => "check its caches",
            Self::Quit => "end",
        }
    }
}

/// From a worker to the demo.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Opened(Opened),
    Moved(Moved),
    /// Seconds.
    Copied(f64),
    Checked(Wrong),
    /// The most memory that the process has had, in KiB; 0 where the system does not say.
    Ended {
        peak_kib: u64,
    },
    Done,
    Failed(String),
}

/// A worker's caches are registered.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opened {
    #[serde(with = "serde_bytes")]
    pub(crate) blob: Vec<u8>,
    pub(crate) views: usize,
    pub(crate) memory_ranges: usize,
    pub(crate) regions: usize,
}

/// Blocks have moved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Moved {
    /// The planner's.
    pub(crate) descriptors: usize,
    pub(crate) bytes: u64,
    /// Post to settled.
    pub(crate) seconds: f64,
}

/// Sends a message.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> Result<(), Error> {
    let refuse = |len, why: String| Error::Message { len, why };
    let body = rmp_serde::to_vec_named(message).map_err(|error| refuse(0, error.to_string()))?;
    let len = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_BYTES);
    let len = len.ok_or_else(|| refuse(body.len(), format!("at most {MAX_BYTES} bytes are allowed")))?;
    to.write_all(&len.to_be_bytes())?;
    to.write_all(&body)?;
    Ok(to.flush()?)
}

/// The next message, or `None` when the other side has closed.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>, Error> {
    let mut len = [0; 4];
    match from.read_exact(&mut len) {
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            return Ok(None);
        }
        read => read?,
    }
    let len = u32::from_be_bytes(len) as usize;
    if len > MAX_BYTES {
        return Err(Error::Message { len, why: format!("at most {MAX_BYTES} bytes are allowed") });
    }
    let mut body = vec![0; len];
    from.read_exact(&mut body)?;
    rmp_serde::from_slice(&body).map(Some).map_err(|error| Error::Message { len, why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_and_a_closed_channel_is_no_message() {
        let mut bytes = Vec::new();
        send(&mut bytes, &Command::Open { layout: "BLHNC".to_owned(), num_blocks: 7 }).unwrap();
        send(&mut bytes, &Command::Quit).unwrap();
        let mut from = bytes.as_slice();
        let first = receive(&mut from).unwrap();
        assert!(matches!(first, Some(Command::Open { layout, num_blocks: 7 }) if layout == "BLHNC"));
        assert!(matches!(receive(&mut from).unwrap(), Some(Command::Quit)));
        assert!(receive::<Command>(&mut from).unwrap().is_none());
    }

    #[test]
    fn garbage_and_excessive_lengths_are_errors() {
        assert!(matches!(receive::<Command>(&mut [0xff; 8].as_slice()), Err(Error::Message { .. })));
        assert!(matches!(receive::<Command>(&mut [0, 0, 0, 1, 0xc1].as_slice()), Err(Error::Message { .. })));
        assert!(matches!(receive::<Command>(&mut [0, 0, 0, 9, 1].as_slice()), Err(Error::Io(_))));
    }
}
