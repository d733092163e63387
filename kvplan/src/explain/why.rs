//! Why two neighbouring descriptors of a block are not one.

use std::collections::HashMap;

use kvspec::{GroupId, LayerName, ValidSpec};
use serde::Serialize;

use super::Break;
use crate::gap::{FreeBytes, Owners};
use crate::lane::{CutPlan, Lane};
use crate::pair::PairPlan;
use crate::refusal::Side;
use crate::rows::{Page, Row};
use crate::template::{Band, Run, SideRows};
use crate::timeline::Timeline;

/// Why two neighbouring descriptors of a block are not one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Why {
    /// One side has them in two allocations.
    OtherStorage {
        /// That side.
        side: Side,
    },
    /// One side stores tokens outermost, so that a slice of the units is a piece for every token.
    TokenSlices {
        /// Bytes of each piece.
        run: u64,
    },
    /// Both sides have the same gap, which belongs to nobody.
    Padding {
        /// Bytes.
        gap: u64,
    },
    /// Both sides have the same gap, in which somebody else's bytes lie at the destination.
    Live {
        /// Bytes.
        gap: u64,
        /// Layer whose bytes lie there, where one is known.
        layer: Option<LayerName>,
    },
    /// A piece of a block faces a piece of another: block sizes or context-parallel runs differ.
    BlockPieces {
        /// Tokens of the piece.
        tokens: u64,
        /// Tokens a block here.
        local: u64,
        /// Tokens a block at the peer.
        remote: u64,
    },
    /// One side holds more of a part's units than travel.
    UnitSlice {
        /// Units that this rank holds.
        local: u64,
        /// Units that the peer's rank holds.
        remote: u64,
    },
    /// They lie in one row at one side only, or in another order.
    Apart {
        /// Bytes from the first's end to the second's start here.
        local: i128,
        /// The same at the peer.
        remote: i128,
    },
}

impl PairPlan {
    /// Places where two neighbouring runs of a block, in one row of either side, are two descriptors.
    pub(super) fn breaks_of<'a>(
        &'a self,
        lane: &'a Lane,
        cut: &'a CutPlan,
        lookup: &'a mut Lookup,
    ) -> impl Iterator<Item = Break> + 'a {
        let template = &cut.template;
        let of_band = |(index, &band): (usize, &Band)| {
            template.runs[template.bands[index].clone()].iter().map(move |run| (band, *run)).collect::<Vec<_>>()
        };
        let runs: Vec<(Band, Run)> = lane.bands.iter().enumerate().flat_map(of_band).collect();
        (1..runs.len()).filter_map(move |i| {
            let ((last_band, last), (band, run)) = (runs[i - 1], runs[i]);
            let one_row_here = last_band == band;
            let one_row_there = last.remote_storage == run.remote_storage && last.row_up_to(&run).is_some();
            (one_row_here || one_row_there).then(|| {
                let (layer, part) = run.origin.of(&self.local);
                let why = self.why(lane, cut, (last_band, last), (band, run), lookup);
                Break { layer: layer.name.clone(), part: part.name.clone(), why }
            })
        })
    }

    fn why(
        &self,
        lane: &Lane,
        cut: &CutPlan,
        (last_band, last): (Band, Run),
        (band, run): (Band, Run),
        lookup: &mut Lookup,
    ) -> Why {
        let distance = |start: u64, end: u64| i128::from(start) - i128::from(end);
        let local = distance(run.local, last.local + last.len);
        let remote = distance(run.remote, last.remote + last.len);
        let (local_tokens, remote_tokens) = self.block_tokens(lane);
        if last_band.storage != band.storage {
            Why::OtherStorage { side: Side::Local }
        } else if last.remote_storage != run.remote_storage {
            Why::OtherStorage { side: Side::Remote }
        } else if last_band == band && local == remote && local > 0 {
            let gap = u64::try_from(local).unwrap_or(u64::MAX);
            let here = (&lane.local, &self.local, band.row, lane.key.local_group, last.local);
            let there = (&lane.remote, &self.remote, last.remote_rows.1, lane.key.remote_group, last.remote);
            let ((side, spec, row, group, start), source) = self.options.op.destination_first(here, there);
            match source.0.whole(source.2) {
                Some(_) => lookup.gap_reason(side, spec, row, group, start + last.len, gap),
                None => Why::Live { gap, layer: None },
            }
        } else if last.by_token && run.by_token && last.origin == run.origin {
            Why::TokenSlices { run: run.len }
        } else if cut.cut.tokens < local_tokens || cut.cut.tokens < remote_tokens {
            Why::BlockPieces { tokens: cut.cut.tokens, local: local_tokens, remote: remote_tokens }
        } else if let Some((local, remote)) = [run, last].iter().find_map(|run| self.unequal_units(*run, lookup)) {
            Why::UnitSlice { local, remote }
        } else {
            Why::Apart { local, remote }
        }
    }

    fn block_tokens(&self, lane: &Lane) -> (u64, u64) {
        let of = |spec: &ValidSpec, group| Timeline::of(spec, group).block_tokens;
        (of(&self.local, lane.key.local_group), of(&self.remote, lane.key.remote_group))
    }

    /// Units of the run's part that either side holds, where they are not equally many.
    fn unequal_units(&self, run: Run, lookup: &mut Lookup) -> Option<(u64, u64)> {
        let (layer, part) = run.origin.of(&self.local);
        let by_name =
            || self.remote.layers.iter().enumerate().map(|(index, layer)| (layer.name.clone(), index)).collect();
        let peers: &HashMap<LayerName, usize> = lookup.peers.get_or_insert_with(by_name);
        let peer = &self.remote.layers[*peers.get(&layer.name)?];
        let peer_part = peer.parts.iter().find(|peer| peer.name == part.name)?;
        let (local, remote) = (part.units.count, peer_part.units.count);
        (local != remote).then_some((local, remote))
    }
}

/// What explanations look up, each worked out when first asked for.
#[derive(Default)]
pub(super) struct Lookup {
    owners: Option<Owners>,
    /// Where the peer lists each layer.
    peers: Option<HashMap<LayerName, usize>>,
    of_row: HashMap<(GroupId, u32), (FreeBytes, Reach)>,
}

impl Lookup {
    /// Whether a gap is padding, or whose bytes lie in it.
    fn gap_reason(&mut self, side: &SideRows, spec: &ValidSpec, row: u32, group: GroupId, from: u64, gap: u64) -> Why {
        let Some(row_of) = side.whole(row) else { return Why::Live { gap, layer: None } };
        let owners = self.owners.get_or_insert_with(|| Owners::new(spec, &side.rows));
        let work_out = || (owners.free_bytes(spec, row_of, group), Reach::new(row_of));
        let (free, reach) = self.of_row.entry((group, row)).or_insert_with(work_out);
        let start = from - row_of.start;
        if free.cover(start, start + gap) {
            Why::Padding { gap }
        } else {
            Why::Live { gap, layer: reach.owner_in(spec, row_of, from, from + gap) }
        }
    }
}

/// How far the pages of a row reach, each with those before it.
struct Reach(Vec<u64>);

impl Reach {
    fn new(row: &Row) -> Self {
        let mut reach = 0;
        let furthest = |page: &Page| {
            reach = (page.offset + page.len).max(reach);
            reach
        };
        Self(row.pages.iter().map(furthest).collect())
    }

    /// Layer of the first page that has bytes in a range.
    fn owner_in(&self, spec: &ValidSpec, row: &Row, from: u64, to: u64) -> Option<LayerName> {
        let page = row.pages.get(self.0.partition_point(|&reach| reach <= from))?;
        (page.offset < to).then(|| page.part.of(spec).0.name.clone())
    }
}
