//! Every plan explains itself: what a block costs, and for every row that is not one descriptor, why.
//!
//! | concept | module |
//! |---|---|
//! | the report, as data | this one |
//! | why two neighbouring descriptors are not one | `why` |
//! | the report as text | `text` |

mod text;
mod why;

use kvspec::{LayerName, PartName};
use serde::Serialize;

pub use why::Why;

use crate::lane::{CutPlan, Lane, LaneKey};
use crate::pair::PairPlan;
use crate::refusal::Refusal;
use crate::request::Op;
use why::Lookup;

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

    /// The first place where a block of these lanes of the plan is more than one descriptor.
    pub(crate) fn broken_row(&self, lanes: &[Lane]) -> Option<Refusal> {
        let mut cuts = lanes.iter().flat_map(|lane| lane.cuts.iter().map(move |cut| (lane, cut)));
        let broken = |(_, cut): &(&Lane, &CutPlan)| cut.template.runs.len() > 1;
        cuts.find(broken).map(|(lane, cut)| {
            let second = cut.template.runs[1];
            let found = self.breaks_of(lane, cut, &mut Lookup::default()).next();
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
