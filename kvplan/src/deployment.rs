//! A whole deployment: the specs of all its ranks, checked against each other.
//!
//! A pair of workers is planned from two specs alone. What only all of them together show is checked here: that every
//! rank is there once, that a layer lies on one stage and on every rank of it, that the ranks' units make up the
//! model, and that two deployments hold the same layers between them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use kvspec::bounded::Bounded;
use kvspec::{Layer, LayerName, Part, PartName, Sharding, ValidSpec};

use serde::Serialize;

use crate::names::PartsByName;
use crate::pair::difference;
use crate::refusal::{PairError, Refusal, Side};

/// The specs of all ranks of one deployment, in (pp, tp) order, checked against each other.
#[derive(Clone, Debug)]
pub struct Deployment(Vec<ValidSpec>);

/// Everything that is wrong with a deployment.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the specs do not make up a deployment:{}", .findings.iter().map(|f| format!("\n- {f}")).collect::<String>())]
#[non_exhaustive]
pub struct DeploymentError {
    /// At least one finding.
    pub findings: Vec<DeploymentFinding>,
}

/// One thing that is wrong with a deployment.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeploymentFinding {
    /// No spec at all.
    #[error("there are no specs; give one for each rank")]
    Empty,
    /// Two ranks state different sizes.
    #[error("{rank} has {dimension} size {size} and {other} has {other_size}; all ranks share one topology")]
    SizesDiffer {
        /// `tp`, `pp` or `dcp`.
        dimension: &'static str,
        /// A rank.
        rank: Rank,
        /// Its size.
        size: u32,
        /// Another rank.
        other: Rank,
        /// Its size.
        other_size: u32,
    },
    /// A rank has no spec.
    #[error("{rank} has no spec; nobody holds its units and positions")]
    RankMissing {
        /// The rank.
        rank: Rank,
    },
    /// A rank has several specs.
    #[error("{rank} has {count} specs; describe a worker that is a full copy of another once")]
    RankTwice {
        /// The rank.
        rank: Rank,
        /// Number of specs.
        count: usize,
    },
    /// A rank serves another model.
    #[error("{rank} serves {model:?} and {other} {other_model:?}, or another revision of it")]
    FingerprintsDiffer {
        /// A rank.
        rank: Rank,
        /// Its model.
        model: String,
        /// Another rank.
        other: Rank,
        /// Its model.
        other_model: String,
    },
    /// A layer travels from two stages.
    #[error("layer {layer} lies on pipeline stages {first} and {second}; mark the copy transfer: false")]
    LayerOnTwoStages {
        /// The layer.
        layer: LayerName,
        /// A stage.
        first: u32,
        /// Another.
        second: u32,
    },
    /// A stage's ranks do not list the same layers and parts.
    #[error("layer {layer}: part {part} is on {listed_at} but {missing_at} does not list it; list it on both")]
    PartMissing {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// A rank that lists it.
        listed_at: Rank,
        /// A rank of the same stage that does not.
        missing_at: Rank,
    },
    /// Two ranks of a stage list a part, but not alike.
    #[error("{rank} (here) and {other} (the peer) do not describe the same cache: {difference}")]
    PartsDiffer {
        /// A rank.
        rank: Rank,
        /// Another rank of its stage.
        other: Rank,
        /// What differs, as between two workers: the rank is local, the other remote.
        difference: Refusal,
    },
    /// Units that no rank holds.
    #[error("layer {layer}: no rank holds units {}..{} of part {part}, which has {total}", .units.start, .units.end)]
    UnitsMissing {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// The gap.
        units: Range<u64>,
        /// Units of the whole model.
        total: u64,
    },
    /// More is wrong than is listed.
    #[error("and {more} more")]
    More {
        /// Findings that are not listed.
        more: usize,
    },
    /// Explicit unit ranges of two ranks overlap.
    #[error("layer {layer}: several ranks hold unit {unit} of part {part} by explicit ranges, which must not overlap")]
    UnitsOverlap {
        /// The layer.
        layer: LayerName,
        /// The part.
        part: PartName,
        /// The first unit held twice.
        unit: u64,
    },
}

/// A rank of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Rank {
    /// Pipeline stage.
    pub pp: u32,
    /// Tensor-parallel rank.
    pub tp: u32,
}

impl Rank {
    /// The rank of a spec.
    #[must_use]
    pub fn of(spec: &ValidSpec) -> Self {
        Self { pp: spec.topology.pp.rank, tp: spec.topology.tp.rank }
    }
}

impl std::fmt::Display for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pp{}.tp{}", self.pp, self.tp)
    }
}

/// Ranks that are named when many are missing.
const MAX_MISSING: usize = 16;

impl Deployment {
    /// Checks that specs make up a deployment.
    ///
    /// # Errors
    ///
    /// [`DeploymentError`] with everything that is wrong, each naming the gap.
    pub fn new(specs: impl IntoIterator<Item = ValidSpec>) -> Result<Self, DeploymentError> {
        let mut specs: Vec<ValidSpec> = specs.into_iter().collect();
        specs.sort_by_key(Rank::of);
        let mut findings = Bounded::default();
        check_ranks(&specs, &mut findings);
        if findings.is_empty() {
            check_layers(&specs, &mut findings);
        }
        if !findings.is_empty() {
            let findings = findings.into_vec(|more| DeploymentFinding::More { more });
            return Err(DeploymentError { findings });
        }
        Ok(Self(specs))
    }

    /// The ranks' specs, in (pp, tp) order.
    #[must_use]
    pub fn ranks(&self) -> &[ValidSpec] {
        &self.0
    }

    /// Checks that two deployments hold the same travelling layers between them.
    ///
    /// # Errors
    ///
    /// [`Refusal::LayerMissing`] for every layer that only one of them has; this deployment is the local side.
    pub fn matches(&self, remote: &Deployment) -> Result<(), PairError> {
        let names = |deployment: &Deployment| -> BTreeSet<LayerName> {
            let layers = deployment.0.iter().flat_map(|spec| &spec.layers);
            layers.filter(|layer| layer.transfer).map(|layer| layer.name.clone()).collect()
        };
        let (here, there) = (names(self), names(remote));
        let missing = |layer: &LayerName, missing_at| Refusal::LayerMissing { layer: layer.clone(), missing_at };
        let refusals: Bounded<Refusal> = here
            .difference(&there)
            .map(|layer| missing(layer, Side::Remote))
            .chain(there.difference(&here).map(|layer| missing(layer, Side::Local)))
            .collect();
        if refusals.is_empty() { Ok(()) } else { Err(PairError::of(refusals)) }
    }
}

/// What the connected stages of a peer deployment amount to, for one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Union {
    /// Stages that no connected peer belongs to; ask again when they have connected.
    Waiting {
        /// The stages.
        stages: Vec<u32>,
    },
    /// Every stage has connected and every layer of this worker has its counterpart.
    Complete,
}

/// Checks a worker's layers against all peers of one deployment that have connected so far.
///
/// A pair of pipeline stages skips layers that the other stage lacks; only when the last stage has connected can a
/// layer be said to be missing. Where peers state different numbers of stages, the largest counts.
///
/// # Errors
///
/// [`Refusal::LayerMissing`] for every layer that travels here and lies on no stage of the peer.
pub fn check_union(local: &ValidSpec, peers: &[ValidSpec]) -> Result<Union, PairError> {
    let num_stages = peers.iter().map(|peer| peer.topology.pp.size).max().unwrap_or(1);
    let seen: BTreeSet<u32> = peers.iter().map(|peer| peer.topology.pp.rank).collect();
    let stages: Vec<u32> = (0..num_stages).filter(|stage| !seen.contains(stage)).collect();
    if !stages.is_empty() {
        return Ok(Union::Waiting { stages });
    }
    let there: BTreeSet<&str> = peers
        .iter()
        .flat_map(|peer| &peer.layers)
        .filter(|layer| layer.transfer)
        .map(|layer| layer.name.as_str())
        .collect();
    let refusals: Bounded<Refusal> = local
        .layers
        .iter()
        .filter(|layer| layer.transfer && !there.contains(layer.name.as_str()))
        .map(|layer| Refusal::LayerMissing { layer: layer.name.clone(), missing_at: Side::Remote })
        .collect();
    if refusals.is_empty() { Ok(Union::Complete) } else { Err(PairError::of(refusals)) }
}

fn check_ranks(specs: &[ValidSpec], findings: &mut Bounded<DeploymentFinding>) {
    let Some(first) = specs.first() else {
        findings.push(DeploymentFinding::Empty);
        return;
    };
    for spec in specs {
        let (t, f) = (spec.topology, first.topology);
        let sizes = [("tp", t.tp.size, f.tp.size), ("pp", t.pp.size, f.pp.size), ("dcp", t.dcp.size, f.dcp.size)];
        for (dimension, size, other_size) in sizes.into_iter().filter(|(_, size, other)| size != other) {
            let (rank, other) = (Rank::of(spec), Rank::of(first));
            findings.push(DeploymentFinding::SizesDiffer { dimension, rank, size, other, other_size });
        }
        if spec.fingerprint != first.fingerprint {
            findings.push(DeploymentFinding::FingerprintsDiffer {
                rank: Rank::of(spec),
                model: spec.fingerprint.model.clone(),
                other: Rank::of(first),
                other_model: first.fingerprint.model.clone(),
            });
        }
    }
    if !findings.is_empty() {
        return;
    }
    let mut seen: BTreeMap<Rank, usize> = BTreeMap::new();
    for spec in specs {
        *seen.entry(Rank::of(spec)).or_default() += 1;
    }
    let ranks = (0..first.topology.pp.size).flat_map(|pp| (0..first.topology.tp.size).map(move |tp| Rank { pp, tp }));
    let missing = ranks.filter(|rank| !seen.contains_key(rank)).take(MAX_MISSING);
    findings.extend(missing.map(|rank| DeploymentFinding::RankMissing { rank }));
    let twice = seen.iter().filter(|(_, count)| **count > 1);
    findings.extend(twice.map(|(&rank, &count)| DeploymentFinding::RankTwice { rank, count }));
}

fn check_layers(specs: &[ValidSpec], findings: &mut Bounded<DeploymentFinding>) {
    let mut stage_of: BTreeMap<&LayerName, u32> = BTreeMap::new();
    for stage in specs.chunk_by(|a, b| a.topology.pp.rank == b.topology.pp.rank) {
        let number = stage[0].topology.pp.rank;
        let mut listed: BTreeMap<(&LayerName, &PartName), usize> = BTreeMap::new();
        for (at, spec) in stage.iter().enumerate() {
            for layer in spec.layers.iter().filter(|layer| layer.transfer) {
                let first = *stage_of.entry(&layer.name).or_insert(number);
                if first != number {
                    stage_of.insert(&layer.name, number);
                    findings.push(DeploymentFinding::LayerOnTwoStages {
                        layer: layer.name.clone(),
                        first,
                        second: number,
                    });
                }
                for part in &layer.parts {
                    listed.entry((&layer.name, &part.name)).or_insert(at);
                }
            }
        }
        let names: Vec<Names<'_>> = stage.iter().map(Names::of).collect();
        for ((layer, part), listed_at) in listed {
            check_part(&names, layer, part, listed_at, findings);
        }
    }
}

/// A rank's layers and parts by name.
struct Names<'a> {
    spec: &'a ValidSpec,
    layers: HashMap<&'a str, (&'a Layer, PartsByName<'a>)>,
}

impl<'a> Names<'a> {
    fn of(spec: &'a ValidSpec) -> Self {
        let entry = |layer: &'a Layer| (layer.name.as_str(), (layer, PartsByName::new(layer)));
        Self { spec, layers: spec.layers.iter().map(entry).collect() }
    }

    fn find(&self, layer: &LayerName, part: &PartName) -> Option<(&'a ValidSpec, &'a Layer, &'a Part)> {
        let (layer, parts) = self.layers.get(layer.as_str())?;
        Some((self.spec, *layer, parts.find(part.as_str())?))
    }
}

/// Checks one part over the ranks of its stage.
fn check_part<'a>(
    ranks: &[Names<'a>],
    layer: &LayerName,
    part: &PartName,
    listed_at: usize,
    findings: &mut Bounded<DeploymentFinding>,
) {
    let Some(listed) = ranks.get(listed_at).and_then(|names| names.find(layer, part)) else { return };
    let listed_at = listed.0;
    for names in ranks {
        let spec = names.spec;
        let Some(other) = names.find(layer, part) else {
            let (layer, part) = (layer.clone(), part.clone());
            let (listed_at, missing_at) = (Rank::of(listed_at), Rank::of(spec));
            findings.push(DeploymentFinding::PartMissing { layer, part, listed_at, missing_at });
            return;
        };
        if let Some(difference) = difference(listed, other) {
            let (rank, other) = (Rank::of(listed_at), Rank::of(spec));
            findings.push(DeploymentFinding::PartsDiffer { rank, other, difference });
            return;
        }
    }
    let mut owned: Vec<(Range<u64>, bool)> = Vec::new();
    let mut whole = 0;
    for names in ranks {
        let Some((spec, _, part)) = names.find(layer, part) else { continue };
        let Sharding::Sharded { total, first } = part.sharding else { return };
        whole = total;
        owned.push((spec.units_of(part), first.is_some()));
    }
    owned.sort_by_key(|(units, _)| units.start);
    let mut at = 0;
    for (units, explicit) in owned {
        if units.start > at {
            let units = at..units.start;
            findings.push(DeploymentFinding::UnitsMissing {
                layer: layer.clone(),
                part: part.clone(),
                units,
                total: whole,
            });
        } else if explicit && units.start < at {
            let (layer, part) = (layer.clone(), part.clone());
            findings.push(DeploymentFinding::UnitsOverlap { layer, part, unit: units.start });
        }
        at = at.max(units.end);
    }
    if at < whole {
        let (layer, part, units) = (layer.clone(), part.clone(), at..whole);
        findings.push(DeploymentFinding::UnitsMissing { layer, part, units, total: whole });
    }
}
