//! Every plan explains itself: what a block costs, and for every row that is not one descriptor, why.

use std::collections::HashMap;
use std::fmt;

use kvspec::{LayerName, PartName, ValidSpec};
use serde::Serialize;

use crate::gap::{FreeBytes, Owners};
use crate::lane::{CutPlan, Lane, LaneKey};
use crate::pair::PairPlan;
use crate::refusal::{Refusal, Side};
use crate::request::Op;
use crate::rows::{Page, Row};
use crate::template::{Band, Run, SideRows};
use crate::timeline::Timeline;

/// What a plan does, as data; its `Display` is the text for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Version of this form.
    pub schema: u32,
    /// Direction.
    pub op: Op,
    /// Lanes, in the plan's order.
    pub lanes: Vec<LaneExplanation>,
}

/// What moves between two groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneExplanation {
    /// Groups and kinds of memory.
    #[serde(flatten)]
    pub key: LaneKey,
    /// Ways in which two blocks meet.
    pub cuts: Vec<CutExplanation>,
    /// Why a row is not one descriptor; empty when every row is.
    pub breaks: Vec<Break>,
    /// Breaks left out of the list.
    pub num_breaks_omitted: usize,
}

/// One way in which two blocks meet, and what it costs for one pair of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CutExplanation {
    /// First token in the local block.
    pub local_token: u64,
    /// First token in the remote block.
    pub remote_token: u64,
    /// Tokens.
    pub tokens: u64,
    /// Copies in normal form.
    pub copies: usize,
    /// Descriptors, before neighbouring blocks merge.
    pub descriptors: usize,
    /// Bytes moved, padding included.
    pub bytes: u64,
    /// Bytes of bridged gaps among them.
    pub padding_bytes: u64,
    /// Bytes of the shortest descriptor.
    pub shortest: u64,
    /// Bytes of the longest descriptor.
    pub longest: u64,
}

/// A place in a row where one descriptor ends and the next begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Break {
    /// The layer that the next descriptor begins with.
    pub layer: LayerName,
    /// Its part.
    pub part: PartName,
    /// Why.
    pub why: Why,
}

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

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::OtherStorage { side } => {
                write!(f, "at {side} it lies in another storage; allocate the row's layers together there")
            }
            Why::BlockPieces { tokens, local, remote } => write!(
                f,
                "blocks meet in pieces of {tokens} tokens (a block holds {local} here and {remote} at the peer); use the \
                 same block size and context-parallel interleave on both sides"
            ),
            Why::UnitSlice { local, remote } => write!(
                f,
                "this rank holds {local} of its units and the peer {remote}, so only a slice travels; with equal tensor \
                 parallelism it would travel with its neighbours"
            ),
            Why::TokenSlices { run } => write!(
                f,
                "a slice of its units is {run} bytes for each token; use a head-major layout (H before N) on both \
                 sides, or equal sharding"
            ),
            Why::Padding { gap } => {
                write!(f, "{gap} bytes of padding lie before it; a max_gap of {gap} or more bridges them")
            }
            Why::Live { gap, layer: Some(layer) } => write!(
                f,
                "{gap} bytes before it do not travel and belong to layer {layer} at the destination; transfer that \
                 layer as well, or place it at the end of the row"
            ),
            Why::Live { gap, layer: None } => {
                write!(f, "{gap} bytes before it may be owned by another block or pool at the destination")
            }
            Why::Apart { local, remote } => write!(
                f,
                "it follows {local} bytes after its predecessor here and {remote} at the peer; use the same \
                 block-outermost layout and order of layers on both sides"
            ),
        }
    }
}

/// Breaks listed for one lane.
const MAX_BREAKS: usize = 64;

impl PairPlan {
    /// Explains the plan.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        let mut lookup = Lookup::default();
        let lanes = self.lanes.iter().map(|lane| self.explain_lane(lane, &mut lookup)).collect();
        Explanation { schema: 1, op: self.options.op, lanes }
    }

    fn explain_lane(&self, lane: &Lane, lookup: &mut Lookup) -> LaneExplanation {
        let cuts = lane.cuts.iter().map(explain_cut).collect();
        let mut breaks: Vec<Break> = Vec::new();
        let mut num_breaks_omitted = 0;
        for cut in &lane.cuts {
            for found in self.breaks_of(lane, cut, lookup) {
                if breaks.contains(&found) {
                    continue;
                }
                if breaks.len() < MAX_BREAKS { breaks.push(found) } else { num_breaks_omitted += 1 }
            }
        }
        LaneExplanation { key: lane.key, cuts, breaks, num_breaks_omitted }
    }

    /// Places where two neighbouring runs of a block, in one row of either side, are two descriptors.
    fn breaks_of<'a>(
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
            let one_row_there = last.remote_storage == run.remote_storage && last.remote_row == run.remote_row;
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
            let there = (&lane.remote, &self.remote, last.remote_row, lane.key.remote_group, last.remote);
            let ((side, spec, row, group, start), _) = self.options.op.destination_first(here, there);
            lookup.gap_reason(side, spec, row, group, start + last.len, gap)
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

    /// The first place where a block of the plan is more than one descriptor.
    pub(crate) fn broken_row(&self) -> Option<Refusal> {
        self.lanes.iter().flat_map(|lane| &lane.cuts).find(|cut| cut.template.runs.len() > 1).map(|cut| {
            let second = cut.template.runs[1];
            let lane = self.lanes.iter().find(|lane| lane.cuts.iter().any(|c| std::ptr::eq(c, cut)));
            let found = lane.and_then(|lane| self.breaks_of(lane, cut, &mut Lookup::default()).next());
            let layer = found.as_ref().map(|found| found.layer.clone());
            Refusal::RowBroken {
                layer: layer.unwrap_or_else(|| second.origin.of(&self.local).0.name.clone()),
                descriptors: cut.template.runs.len() as u64,
                reason: found.map_or_else(
                    || "both sides keep it in a row of its own; use a block-outermost layout".to_owned(),
                    |found| found.why.to_string(),
                ),
            }
        })
    }
}

/// What explanations look up, each worked out when first asked for.
#[derive(Default)]
struct Lookup {
    owners: Option<Owners>,
    /// Where the peer lists each layer.
    peers: Option<HashMap<LayerName, usize>>,
    of_row: HashMap<(kvspec::GroupId, u32), (FreeBytes, Reach)>,
}

impl Lookup {
    /// Whether a gap is padding, or whose bytes lie in it.
    fn gap_reason(
        &mut self,
        side: &SideRows,
        spec: &ValidSpec,
        row: u32,
        group: kvspec::GroupId,
        from: u64,
        gap: u64,
    ) -> Why {
        let Some(row_of) = side.rows.0.get(row as usize) else { return Why::Live { gap, layer: None } };
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

fn explain_cut(plan: &CutPlan) -> CutExplanation {
    let runs = &plan.template.runs;
    CutExplanation {
        local_token: plan.cut.local,
        remote_token: plan.cut.remote,
        tokens: plan.cut.tokens,
        copies: plan.copies.len(),
        descriptors: runs.len(),
        bytes: runs.iter().map(|run| run.len).sum(),
        padding_bytes: runs.iter().map(|run| run.padding).sum(),
        shortest: runs.iter().map(|run| run.len).min().unwrap_or(0),
        longest: runs.iter().map(|run| run.len).max().unwrap_or(0),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            Op::Read => "read (the peer to this worker)",
            Op::Write => "write (this worker to the peer)",
        };
        let plural = if self.lanes.len() == 1 { "" } else { "s" };
        writeln!(f, "{op}, {} lane{plural}", self.lanes.len())?;
        self.lanes.iter().try_for_each(|lane| lane.fmt(f))
    }
}

impl fmt::Display for LaneExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key;
        writeln!(
            f,
            "lane: group {} ({}) here, group {} ({}) at the peer",
            key.local_group, key.local_mem, key.remote_group, key.remote_mem
        )?;
        for cut in &self.cuts {
            write!(f, "  ")?;
            if self.cuts.len() > 1 {
                let (l, r, n) = (cut.local_token, cut.remote_token, cut.tokens);
                write!(f, "tokens {l}..{} here, {r}..{} at the peer: ", l + n, r + n)?;
            }
            let plural = if cut.descriptors == 1 { "" } else { "s" };
            write!(f, "{} descriptor{plural} a block, {} bytes", cut.descriptors, cut.bytes)?;
            match (cut.shortest, cut.longest) {
                (short, long) if short != long => write!(f, " in pieces of {short} to {long}")?,
                (_, long) if cut.descriptors > 1 => write!(f, " in pieces of {long}")?,
                _ => {}
            }
            if cut.padding_bytes > 0 {
                write!(f, ", {} of them padding", cut.padding_bytes)?;
            }
            writeln!(f)?;
        }
        for alike in self.breaks.chunk_by(|a, b| a.why == b.why) {
            write!(f, "  breaks at layer {}, part {}", alike[0].layer, alike[0].part)?;
            if alike.len() > 1 {
                write!(f, " and {} more", alike.len() - 1)?;
            }
            writeln!(f, ": {}", alike[0].why)?;
        }
        if self.num_breaks_omitted > 0 {
            writeln!(f, "  and {} more breaks", self.num_breaks_omitted)?;
        }
        Ok(())
    }
}
