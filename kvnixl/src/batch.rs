//! Cutting a transfer into requests of bounded size.

use kvplan::Descriptor;

use crate::error::{Error, Result};
use crate::transport::Piece;

/// Bounds on what NIXL is given at once.
///
/// A post may copy everything before it returns, and nothing else of the agent proceeds meanwhile. So a transfer
/// is posted as several requests, and what is small goes in between. The defaults (1 MiB, 1 MiB, 512, 16) keep a
/// post well below a millisecond at the throughput of one big request; `docs/TUNING.md` of the crate has the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Longest descriptor in bytes; longer ones are cut.
    pub descriptor_bytes: u64,
    /// Most bytes in a request.
    pub request_bytes: u64,
    /// Most descriptors in a request.
    pub request_descriptors: usize,
    /// Most requests of one transfer that are in progress at once.
    pub outstanding_requests: usize,
    /// A transfer of at most this weight is posted by the thread that starts it, when nothing else is under way. A
    /// weight is bytes, and 3 KiB more for each descriptor. 0 for never.
    pub inline_weight: u64,
    /// A transfer of at least this weight is shared by the agent's copy threads, if the peer is where the kernel copies:
    /// see [`NixlOptions::copy_threads`](crate::NixlOptions::copy_threads).
    pub shared_weight: u64,
    /// Most bytes of all transfers of the agent that have not settled; a transfer beyond that is refused with
    /// [`Error::WouldBlock`], unless nothing else is in flight. 64 GiB by default. The agent's limits count, not
    /// those of a transfer.
    pub in_flight_bytes: u64,
    /// Most descriptors likewise, 4 Mi by default: each takes 56 bytes of memory until it is posted.
    pub in_flight_descriptors: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            descriptor_bytes: 1 << 20,
            request_bytes: 1 << 20,
            request_descriptors: 512,
            outstanding_requests: 16,
            inline_weight: 256 << 10,
            shared_weight: 1 << 20,
            in_flight_bytes: 64 << 30,
            in_flight_descriptors: 4 << 20,
        }
    }
}

impl Limits {
    pub(crate) fn check(&self) -> Result<()> {
        let zero = |limit| Err(Error::ZeroLimit { limit });
        match self {
            Self { descriptor_bytes: 0, .. } => zero("descriptor_bytes"),
            Self { request_bytes: 0, .. } => zero("request_bytes"),
            Self { request_descriptors: 0, .. } => zero("request_descriptors"),
            Self { outstanding_requests: 0, .. } => zero("outstanding_requests"),
            Self { in_flight_bytes: 0, .. } => zero("in_flight_bytes"),
            Self { in_flight_descriptors: 0, .. } => zero("in_flight_descriptors"),
            _ => Ok(()),
        }
    }
}

/// Bytes of descriptors that are to move. Descriptors may repeat, so the sum may leave the range: then it stays at the
/// range's end, which is too much for any bound on what may be in flight.
pub(crate) fn num_bytes(descriptors: &[Descriptor]) -> u64 {
    descriptors.iter().fold(0, |bytes, descriptor| bytes.saturating_add(descriptor.len))
}

/// What a descriptor costs, as bytes that are copied in the same time: 1 to 3 µs.
const DESCRIPTOR_WEIGHT: u64 = 3 << 10;

/// How long a transfer takes, as bytes that are copied in the same time.
pub(crate) fn weight(bytes: u64, descriptors: usize) -> u64 {
    u64::try_from(descriptors).unwrap_or(u64::MAX).saturating_mul(DESCRIPTOR_WEIGHT).saturating_add(bytes)
}

/// Smallest request that threads which share a transfer take: below, creating it costs more than waiting.
const SMALLEST_SHARE: (u64, usize) = (64 << 10, 16);

/// The pieces of a transfer that have not been handed out yet.
#[derive(Debug)]
pub(crate) struct Pieces {
    pieces: Vec<Piece>,
    next: usize,
    /// Bytes of `pieces[next]` that were handed out.
    taken: u64,
    /// Bytes that were not handed out. Descriptors may repeat: then it may stay at the range's end.
    left: u64,
}

impl Pieces {
    pub(crate) fn new(pieces: Vec<Piece>) -> Self {
        let left = pieces.iter().fold(0_u64, |bytes, piece| bytes.saturating_add(piece.len));
        Self { pieces, next: 0, taken: 0, left }
    }

    /// Bounds on a thread's next request: half of its share of what is left, so that all threads end together.
    pub(crate) fn share(&self, limits: &Limits, num_threads: usize) -> Limits {
        if num_threads <= 1 {
            return *limits;
        }
        let (bytes, descriptors) = SMALLEST_SHARE;
        let parts = 2 * num_threads;
        let request_bytes = (self.left / u64::try_from(parts).unwrap_or(u64::MAX)).max(bytes);
        let request_descriptors = ((self.pieces.len() - self.next) / parts).max(descriptors);
        Limits {
            request_bytes: request_bytes.min(limits.request_bytes),
            request_descriptors: request_descriptors.min(limits.request_descriptors),
            ..*limits
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.pieces.len()
    }

    /// Forgets what was not handed out.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(Vec::new());
    }

    /// Fills `request` with the pieces of the next request, in order; at least one unless nothing is left.
    pub(crate) fn take(&mut self, limits: &Limits, request: &mut Vec<Piece>) {
        request.clear();
        let mut room = limits.request_bytes;
        while let Some(piece) = self.pieces.get(self.next) {
            let full = room == 0 || request.len() >= limits.request_descriptors;
            if full || request.first().is_some_and(|first| !first.mixes_with(piece)) {
                break;
            }
            // In range: the whole piece is, and `taken` is less than its length.
            let len = (piece.len - self.taken).min(limits.descriptor_bytes).min(room);
            request.push(Piece { local: piece.local + self.taken, remote: piece.remote + self.taken, len, ..*piece });
            room -= len;
            self.left = self.left.saturating_sub(len);
            self.taken += len;
            if self.taken == piece.len {
                self.next += 1;
                self.taken = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kvspec::MemKind;

    use super::*;

    fn piece(local: u64, len: u64, remote_mem: MemKind) -> Piece {
        Piece { local, remote: local + 1_000_000, len, local_mem: MemKind::Dram, remote_mem }
    }

    fn requests(pieces: Vec<Piece>, limits: &Limits) -> Vec<Vec<Piece>> {
        let mut pieces = Pieces::new(pieces);
        let mut requests = Vec::new();
        while !pieces.is_empty() {
            let mut request = Vec::new();
            pieces.take(limits, &mut request);
            requests.push(request);
        }
        requests
    }

    #[test]
    fn requests_cover_every_byte_once_in_order_within_the_limits() {
        let limits = Limits {
            descriptor_bytes: 10,
            request_bytes: 25,
            request_descriptors: 3,
            outstanding_requests: 1,
            ..Limits::default()
        };
        let pieces = vec![piece(0, 42, MemKind::Dram), piece(100, 1, MemKind::Dram), piece(200, 10, MemKind::Dram)];
        let requests = requests(pieces.clone(), &limits);
        let mut expected = pieces.iter().flat_map(|piece| (0..piece.len).map(|i| (piece.local + i, piece.remote + i)));
        for request in &requests {
            assert!(!request.is_empty() && request.len() <= 3);
            assert!(request.iter().map(|piece| piece.len).sum::<u64>() <= 25);
            for piece in request {
                assert!(piece.len <= 10);
                for i in 0..piece.len {
                    assert_eq!(expected.next(), Some((piece.local + i, piece.remote + i)));
                }
            }
        }
        assert_eq!(expected.next(), None);
    }

    #[test]
    fn a_request_never_mixes_memory_kinds() {
        let pieces = vec![piece(0, 5, MemKind::Dram), piece(10, 5, MemKind::Vram(0)), piece(20, 5, MemKind::Vram(1))];
        let lens: Vec<usize> = requests(pieces, &Limits::default()).iter().map(Vec::len).collect();
        assert_eq!(lens, [1, 2]);
    }
}
