//! Ranks within sizes, and context parallelism that fits tensor parallelism.

use super::finding::Finding;
use super::words::Dimension;
use crate::bounded::Bounded;
use crate::ids::GroupId;
use crate::spec::{CacheSpec, Usage};

/// Ranks that a dimension may have. Who serves whom is worked out rank by rank, from a peer's word.
const MAX_RANKS: u32 = 1 << 16;

/// Checks the topology; whether ranks and sizes are sound enough to derive units from.
pub(super) fn check(spec: &CacheSpec, findings: &mut Bounded<Finding>) -> bool {
    let topology = &spec.topology;
    let (tp, pp, dcp) = (topology.tp, topology.pp, topology.dcp);
    let before = findings.len();
    for (dimension, rank, size) in
        [(Dimension::Tp, tp.rank, tp.size), (Dimension::Pp, pp.rank, pp.size), (Dimension::Dcp, dcp.rank, dcp.size)]
    {
        if size == 0 {
            findings.push(Finding::NoRanks { dimension });
        } else if size > MAX_RANKS {
            findings.push(Finding::TooManyRanks { dimension, size, limit: MAX_RANKS });
        } else if rank >= size {
            findings.push(Finding::Rank { dimension, rank, size });
        }
    }
    if dcp.size != 0 && tp.size != 0 {
        if tp.size % dcp.size != 0 {
            findings.push(Finding::DcpSize { dcp_size: dcp.size, tp_size: tp.size });
        }
        let expected = tp.rank % dcp.size;
        if dcp.rank != expected && dcp.rank < dcp.size {
            findings.push(Finding::DcpRank { given: dcp.rank, expected, tp_rank: tp.rank, dcp_size: dcp.size });
        }
    }
    let sound = findings.len() == before;
    match dcp.interleave {
        Some(0) => findings.push(Finding::NoInterleave),
        Some(interleave) => {
            for (group, id) in spec.groups.iter().zip(0..) {
                if group.usage == Usage::Tokens && group.block_tokens % interleave != 0 {
                    findings.push(Finding::Interleave {
                        group: GroupId(id),
                        interleave,
                        block_tokens: group.block_tokens,
                    });
                }
            }
        }
        None => {}
    }
    sound
}
