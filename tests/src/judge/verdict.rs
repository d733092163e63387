//! Holding the answers of all source ranks against what the destination needs.

use kvspec::CacheSpec;

use super::expectation::{Expectation, Piece, union};
use super::gaps::check_gap;
use crate::cells::Place;
use crate::transfer::{Move, Moved, Worker};

/// One thing that is wrong with the answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// A descriptor leaves its storage.
    #[error("{copy:?} of source {source_rank} leaves its storage at the {side}")]
    OutOfBounds {
        /// Index of the source rank.
        source_rank: usize,
        /// The copy.
        copy: Move,
        /// Which side.
        side: &'static str,
    },
    /// A destination byte gets the wrong source byte.
    #[error("{at:?} must come from {expected:?} of source {source_rank} and comes from {actual:?}")]
    WrongByte {
        /// Index of the source rank.
        source_rank: usize,
        /// Destination.
        at: Place,
        /// Where the byte is.
        expected: Place,
        /// Where it was taken.
        actual: Place,
    },
    /// A descriptor starts or ends with bytes that it need not carry.
    #[error("{len} bytes at {at:?} by source {source_rank} are needed by nobody and not between needed bytes")]
    Stray {
        /// Index of the source rank.
        source_rank: usize,
        /// Destination.
        at: Place,
        /// Bytes.
        len: u64,
    },
    /// A bridged gap is too long.
    #[error("a gap of {len} bytes at {at:?} is longer than {max_gap}")]
    LongGap {
        /// Destination.
        at: Place,
        /// Bytes.
        len: u64,
        /// The limit.
        max_gap: u64,
    },
    /// A gap between pieces of different groups.
    #[error("a gap of {len} bytes at {at:?} lies between two lanes")]
    GapAcrossLanes {
        /// Destination.
        at: Place,
        /// Bytes.
        len: u64,
    },
    /// A gap that is neither within a row nor between neighbouring rows.
    #[error("a gap of {len} bytes at {at:?} is not within a row or between neighbouring rows at the {side}")]
    GapAcrossRows {
        /// Destination.
        at: Place,
        /// Bytes.
        len: u64,
        /// Which side.
        side: &'static str,
    },
    /// A gap over bytes that live.
    #[error("a gap of {len} bytes at {at:?} overwrites block {block} of layer {layer} part {part}")]
    GapOverLiveBytes {
        /// Destination.
        at: Place,
        /// Bytes.
        len: u64,
        /// Whose bytes.
        layer: String,
        /// Whose bytes.
        part: String,
        /// Whose bytes.
        block: u64,
    },
    /// Needed bytes that come twice, or that two descriptors write.
    #[error("{at:?} is written twice")]
    Twice {
        /// Destination.
        at: Place,
    },
    /// Delivered and needed bytes differ.
    #[error("needed {needed} bytes in {needed_ranges} ranges, delivered {delivered}; first difference at {at:?}")]
    Coverage {
        /// Bytes needed.
        needed: u64,
        /// Ranges needed.
        needed_ranges: usize,
        /// Bytes delivered.
        delivered: u64,
        /// First place that differs.
        at: Option<Place>,
    },
    /// The ranges to zero are not the uncovered ones.
    #[error("ranges to zero must be {expected:?} and are {actual:?}")]
    Zero {
        /// What they must be.
        expected: Vec<(Place, u64)>,
        /// What they are, over all sources.
        actual: Vec<(Place, u64)>,
    },
    /// A source's ranges to zero are not sorted and merged, or two sources return the same range.
    #[error("ranges to zero of source {source_rank} are not sorted and merged, or overlap another source's")]
    ZeroOrder {
        /// Index of the source rank.
        source_rank: usize,
    },
    /// The reported padding is wrong.
    #[error("source {source_rank} moves {actual} bytes of padding and reports {reported}")]
    Padding {
        /// Index of the source rank.
        source_rank: usize,
        /// Moved minus needed.
        actual: u64,
        /// As reported.
        reported: u64,
    },
    /// Two neighbours of one lane touch on both sides and were not merged.
    #[error("{copy:?} of source {source_rank} touches the descriptor after it on both sides")]
    NotMerged {
        /// Index of the source rank.
        source_rank: usize,
        /// The first of the two.
        copy: Move,
    },
    /// An answer where there must be an error.
    #[error("must be refused: {reason}")]
    NotRefused {
        /// The first reason.
        reason: String,
    },
}

/// Totals of a transfer that is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Needed bytes moved.
    pub bytes: u64,
    /// Descriptors.
    pub descriptors: usize,
    /// Bytes of bridged gaps.
    pub padding: u64,
    /// Bytes to zero.
    pub zero: u64,
}

/// Judges what all sources answered for one destination.
///
/// # Errors
///
/// Everything that is wrong.
pub fn judge(
    destination: &Worker,
    sources: &[Worker],
    answers: &[Moved],
    max_gap: u64,
) -> Result<Summary, Vec<Finding>> {
    let expectation = Expectation::of(destination, sources);
    if let Some(reason) = expectation.refusals.first() {
        return Err(vec![Finding::NotRefused { reason: reason.clone() }]);
    }
    let mut findings = Vec::new();
    let mut summary = Summary::default();
    let mut delivered = Vec::new();
    let mut written = Vec::new();
    let mut zero = Vec::new();
    for (source_rank, answer) in answers.iter().enumerate() {
        let held = &expectation.held[source_rank];
        let mut needed = 0;
        for (index, copy) in answer.copies.iter().enumerate() {
            summary.descriptors += 1;
            written.push((copy.dst, copy.len));
            let within = |spec: &CacheSpec, place: Place| {
                let end = place.offset.checked_add(copy.len);
                let storage = spec.storages.get(place.storage as usize);
                storage.zip(end).is_some_and(|(storage, end)| copy.len > 0 && end <= storage.len)
            };
            for (spec, place, side) in
                [(&destination.spec, copy.dst, "destination"), (&sources[source_rank].spec, copy.src, "source")]
            {
                if !within(spec, place) {
                    findings.push(Finding::OutOfBounds { source_rank, copy: *copy, side });
                }
            }
            if let Some(next) = answer.copies.get(index + 1)
                && touches(copy, next)
                && same_lane(held, copy, next)
            {
                findings.push(Finding::NotMerged { source_rank, copy: *copy });
            }
            let before = delivered.len();
            check_copy(&destination.spec, source_rank, held, copy, max_gap, &mut delivered, &mut findings);
            needed += delivered[before..].iter().map(|(_, len)| len).sum::<u64>();
        }
        let moved: u64 = answer.copies.iter().map(|copy| copy.len).sum();
        if moved.checked_sub(needed) != Some(answer.padding_bytes) {
            let actual = moved.saturating_sub(needed);
            findings.push(Finding::Padding { source_rank, actual, reported: answer.padding_bytes });
        }
        summary.bytes += needed;
        summary.padding += moved.saturating_sub(needed);
        zero.extend_from_slice(&answer.zero);
        if union(answer.zero.clone()) != answer.zero {
            findings.push(Finding::ZeroOrder { source_rank });
        }
    }
    find_twice(&mut written, &mut findings);
    find_twice(&mut delivered, &mut findings);
    let total: u64 = zero.iter().map(|(_, len)| len).sum();
    let zero = union(zero);
    summary.zero = zero.iter().map(|(_, len)| len).sum();
    if zero != expectation.zero {
        findings.push(Finding::Zero { expected: expectation.zero, actual: zero });
    } else if total != summary.zero {
        findings.push(Finding::ZeroOrder { source_rank: answers.len() });
    }
    let delivered = union(delivered);
    if delivered != expectation.needed {
        let differs = delivered.iter().zip(&expectation.needed).find(|(a, b)| a != b).map(|(a, b)| (*a).min(*b).0);
        findings.push(Finding::Coverage {
            needed: expectation.needed.iter().map(|(_, len)| len).sum(),
            needed_ranges: expectation.needed.len(),
            delivered: delivered.iter().map(|(_, len)| len).sum(),
            at: differs.or_else(|| expectation.needed.get(delivered.len()).map(|(place, _)| *place)),
        });
    }
    if findings.is_empty() { Ok(summary) } else { Err(findings) }
}

/// Splits one copy into needed pieces, checked, and gaps, checked.
fn check_copy(
    destination: &CacheSpec,
    source_rank: usize,
    held: &[Piece],
    copy: &Move,
    max_gap: u64,
    delivered: &mut Vec<(Place, u64)>,
    findings: &mut Vec<Finding>,
) {
    let storage = copy.dst.storage;
    let end = copy.dst.offset.saturating_add(copy.len);
    let mut at = copy.dst.offset;
    let mut previous: Option<&Piece> = None;
    let start = held.partition_point(|piece| {
        (piece.dst.storage, piece.dst.offset.saturating_add(piece.len)) <= (storage, copy.dst.offset)
    });
    for piece in held[start..].iter().take_while(|piece| piece.dst.storage == storage && piece.dst.offset < end) {
        let from = piece.dst.offset.max(copy.dst.offset);
        let to = (piece.dst.offset + piece.len).min(end);
        if from > at {
            let place = Place { storage, offset: at };
            match previous {
                None => findings.push(Finding::Stray { source_rank, at: place, len: from - at }),
                Some(before) => {
                    if let Err(finding) = check_gap(destination, place, from - at, before, piece, max_gap) {
                        findings.push(finding);
                    }
                }
            }
        }
        let expected = Place { offset: piece.src.offset + (from - piece.dst.offset), ..piece.src };
        let actual = Place { offset: copy.src.offset.saturating_add(from - copy.dst.offset), ..copy.src };
        let place = Place { storage, offset: from };
        if expected != actual {
            findings.push(Finding::WrongByte { source_rank, at: place, expected, actual });
        }
        delivered.push((place, to - from));
        at = to;
        previous = Some(piece);
    }
    if at < end {
        findings.push(Finding::Stray { source_rank, at: Place { storage, offset: at }, len: end - at });
    }
}

fn touches(copy: &Move, next: &Move) -> bool {
    let after = |place: Place| Place { offset: place.offset.saturating_add(copy.len), ..place };
    after(copy.dst) == next.dst && after(copy.src) == next.src
}

/// Whether two copies carry the same pair of groups, judged by the pieces at their ends.
fn same_lane(held: &[Piece], copy: &Move, next: &Move) -> bool {
    let piece_at = |place: Place| {
        let index = held.partition_point(|piece| piece.dst <= place);
        index.checked_sub(1).map(|index| &held[index])
    };
    let last = Place { offset: copy.dst.offset + copy.len - 1, ..copy.dst };
    match (piece_at(last), piece_at(next.dst)) {
        (Some(a), Some(b)) => (a.dst_group, a.src_group) == (b.dst_group, b.src_group),
        _ => false,
    }
}

fn find_twice(ranges: &mut [(Place, u64)], findings: &mut Vec<Finding>) {
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let ((first, len), (second, _)) = (pair[0], pair[1]);
        if first.storage == second.storage && first.offset.saturating_add(len) > second.offset {
            findings.push(Finding::Twice { at: second });
        }
    }
}
