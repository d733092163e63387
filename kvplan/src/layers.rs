//! Which layers a request moves, and what a request for some of them is planned from.
//!
//! A plan's lanes are templates in which layers that lie together are one run, so a layer cannot be cut out of them.
//! A selection therefore gets lanes of its own, made from its parts alone: what touches within it is one run again.
//! They are made when a selection is first asked for and kept, since an engine asks for the same ones in every
//! request; a request for all layers does not come here.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use kvspec::bounded::Bounded;
use kvspec::family::Budget;
use kvspec::{LayerIndex, LayerName};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::lane::{Lane, MAX_RUNS};
use crate::pair::{PairPlan, lanes, match_parts};
use crate::refusal::{Refusal, RequestError};

/// The layers that a request moves.
///
/// In JSON a list of names, or `{"from": 2, "to": 5}`; left out for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layers {
    /// All that the plan moves.
    #[default]
    All,
    /// Those with these names, each of a layer that one of the two workers lists.
    Named(Vec<LayerName>),
    /// Those with these indices in the spec of the worker that plans.
    Range(Range<u32>),
}

impl Layers {
    /// Whether these are all layers of a plan, whatever the plan.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// Layers of a plan that an answer is for, where it is not for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SomeLayers {
    /// Those that move, in order.
    pub moved: Vec<LayerIndex>,
    /// Those that the plan moves altogether, in order.
    pub of: Arc<[LayerIndex]>,
}

/// The lanes of some layers.
#[derive(Debug)]
pub(crate) struct Selection {
    lanes: Vec<Lane>,
    layers: Arc<SomeLayers>,
}

/// Selections that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Selections(RwLock<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_layers: HashMap<Layers, Arc<Selection>>,
    runs: u64,
}

/// Selections that are kept.
const MAX_KEPT: usize = 4096;

impl Selections {
    fn get(&self, layers: &Layers) -> Option<Arc<Selection>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_layers.get(layers).cloned()
    }

    /// Keeps a selection; all others are forgotten once they are too many, or too large together.
    fn keep(&self, layers: &Layers, selection: &Arc<Selection>) {
        let runs = selection.lanes.iter().map(Lane::num_runs).sum::<u64>();
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if kept.by_layers.len() >= MAX_KEPT || kept.runs.saturating_add(runs) > MAX_RUNS {
            *kept = Kept::default();
        }
        if kept.by_layers.insert(layers.clone(), selection.clone()).is_none() {
            kept.runs += runs;
        }
    }
}

/// What a request is answered from.
#[derive(Debug)]
pub(crate) enum Lanes<'a> {
    /// The plan's own lanes.
    All(&'a [Lane]),
    Some(Arc<Selection>),
}

impl Lanes<'_> {
    pub(crate) fn as_slice(&self) -> &[Lane] {
        match self {
            Self::All(lanes) => lanes,
            Self::Some(selection) => &selection.lanes,
        }
    }

    /// The layers, where they are not all.
    pub(crate) fn some(&self) -> Option<&Arc<SomeLayers>> {
        match self {
            Self::All(_) => None,
            Self::Some(selection) => Some(&selection.layers),
        }
    }
}

impl PairPlan {
    /// The lanes that a request for these layers is answered from.
    pub(crate) fn lanes_of(&self, layers: &Layers) -> Result<Lanes<'_>, RequestError> {
        if layers.is_all() {
            return Ok(Lanes::All(&self.lanes));
        }
        if let Some(selection) = self.selections.get(layers) {
            return Ok(Lanes::Some(selection));
        }
        let selection = Arc::new(self.select(layers)?);
        self.selections.keep(layers, &selection);
        Ok(Lanes::Some(selection))
    }

    fn select(&self, layers: &Layers) -> Result<Selection, RequestError> {
        let is_selected = self.selected(layers)?;
        // A plan has no refusals.
        let mut parts = match_parts(&self.local, &self.remote, self.options.op, &mut Bounded::default());
        let of = distinct(parts.iter().map(|(_, pair)| pair.origin.layer));
        parts.retain(|(_, pair)| is_selected.get(pair.origin.layer.index()) == Some(&true));
        let moved = distinct(parts.iter().map(|(_, pair)| pair.origin.layer));
        let refused = |refusal| RequestError::Selection { refusal: Box::new(refusal) };
        let steps = u64::MAX;
        let (lanes, mut refusals) = lanes(&self.local, &self.remote, &self.options, parts, &mut Budget(steps))
            .ok_or_else(|| refused(Refusal::TooMuchWork { steps }))?;
        if self.options.require_whole_rows {
            refusals.extend(self.broken_row(&lanes));
        }
        match refusals.into_vec(Refusal::more).into_iter().next() {
            Some(refusal) => Err(refused(refusal)),
            None => Ok(Selection { lanes, layers: Arc::new(SomeLayers { moved, of: of.into() }) }),
        }
    }

    /// For each layer of this worker, whether it is among them.
    fn selected(&self, layers: &Layers) -> Result<Vec<bool>, RequestError> {
        let here = &self.local.layers;
        let mut is_selected = vec![layers.is_all(); here.len()];
        match layers {
            Layers::All => {}
            Layers::Range(range) => {
                let chosen = is_selected.get_mut(range.start as usize..range.end as usize);
                let out_of_range =
                    || RequestError::LayerRange { from: range.start, to: range.end, num_layers: here.len() };
                chosen.ok_or_else(out_of_range)?.fill(true);
            }
            Layers::Named(names) => {
                let index: HashMap<&str, usize> =
                    here.iter().enumerate().map(|(index, layer)| (layer.name.as_str(), index)).collect();
                for name in names {
                    match index.get(name.as_str()).and_then(|&index| is_selected.get_mut(index)) {
                        Some(selected) => *selected = true,
                        None if self.remote.layers.iter().any(|layer| layer.name == *name) => {}
                        None => return Err(RequestError::UnknownLayer { layer: name.clone() }),
                    }
                }
            }
        }
        Ok(is_selected)
    }
}

/// The parts of a layer follow each other.
fn distinct(layers: impl Iterator<Item = LayerIndex>) -> Vec<LayerIndex> {
    let mut distinct: Vec<LayerIndex> = layers.collect();
    distinct.dedup();
    distinct
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bounds {
    from: u32,
    to: u32,
}

impl Serialize for Layers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_unit(),
            Self::Named(names) => names.serialize(serializer),
            Self::Range(range) => Bounds { from: range.start, to: range.end }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Layers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LayersVisitor)
    }
}

/// By hand, so that an error says what is wrong inside and not only that no form fits.
struct LayersVisitor;

impl<'de> Visitor<'de> for LayersVisitor {
    type Value = Layers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of layers' names, or {\"from\": index, \"to\": index behind the last}")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Layers, E> {
        Ok(Layers::All)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Layers, A::Error> {
        let mut names: Vec<LayerName> = Vec::new();
        while let Some(name) = seq.next_element()? {
            names.push(name);
        }
        Ok(Layers::Named(names))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Layers, A::Error> {
        let Bounds { from, to } = Bounds::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Layers::Range(from..to))
    }
}
