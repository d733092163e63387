//! The golden vectors: `tests/vectors/*.json`, described in the README beside them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kvplan::request::{BlockList, Op};
use kvspec::CacheSpec;
use serde::Deserialize;

use crate::transfer::{Transfer, Worker};

/// One case as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    /// File name without the ending.
    pub name: String,
    /// What it is about.
    pub description: String,
    /// What it exercises.
    pub tags: Vec<String>,
    /// Who plans.
    pub op: Op,
    /// The rank that acts.
    pub local: CacheSpec,
    /// All ranks of the other side.
    pub remotes: Vec<CacheSpec>,
    /// For pushes from several ranks: all of them.
    pub locals: Option<Vec<CacheSpec>>,
    /// Which of `locals` acts.
    pub acting: Option<usize>,
    /// The block lists: one request, or none where the pair must be refused already.
    #[serde(default)]
    pub requests: Vec<VectorRequest>,
    /// Whether some stage must refuse.
    #[serde(default)]
    pub expect_error: bool,
    /// Which.
    pub error_stage: Option<Stage>,
    /// Why.
    pub reason: Option<String>,
    /// The bounds; none where the case must be refused.
    pub reference: Option<Reference>,
    /// What the other engine does.
    pub vllm: OtherEngine,
    /// What was left out of its lists.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The stage that must refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// A spec on its own.
    Spec,
    /// The pair.
    Pair,
    /// The request.
    Request,
}

/// Block lists of a case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorRequest {
    /// Who plans.
    pub op: Op,
    /// Lists of the acting side.
    pub local: Vec<BlockList>,
    /// Lists of the other side.
    pub remote: RemoteLists,
}

/// Lists of the other side: the same for every rank, or by index where ranks differ.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum RemoteLists {
    /// The same for every rank.
    Same(Vec<BlockList>),
    /// By rank.
    ByRank(BTreeMap<String, Vec<BlockList>>),
}

/// Counts of a reference plan.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Bytes needed from all remotes.
    pub bytes: u64,
    /// Descriptors with every safe gap bridged: the bound.
    pub bridged_descriptors: usize,
    /// Descriptors without bridging.
    pub lane_descriptors: usize,
    /// Descriptors when everything that touches by chance is merged.
    pub min_descriptors: usize,
    /// Shortest descriptor.
    pub min_run: u64,
    /// Bytes to zero.
    pub zero_bytes: u64,
}

/// What the other engine does with the same input.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherEngine {
    /// Whether it is right.
    pub outcome: Outcome,
    /// Its descriptors.
    #[serde(default)]
    pub descriptors: Option<usize>,
    /// Its bytes.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Its refusal, paraphrased.
    #[serde(default)]
    pub error: Option<String>,
    /// Whether its receiver re-arranges blocks afterwards.
    #[serde(default)]
    pub post_process: Option<serde_json::Value>,
}

/// Outcome of the other engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Moves the right bytes.
    Ok,
    /// Moves wrong bytes.
    Wrong,
    /// Refuses.
    Reject,
}

/// The folder of the vectors.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

/// Reads all cases, sorted by name.
///
/// # Errors
///
/// The file that cannot be read, and why.
pub fn load() -> Result<Vec<Vector>, String> {
    let mut vectors = Vec::new();
    for entry in std::fs::read_dir(folder()).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            vectors.push(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?);
        }
    }
    vectors.sort_by(|a: &Vector, b| a.name.cmp(&b.name));
    Ok(vectors)
}

impl Vector {
    /// All specs of the case, acting side first.
    pub fn specs(&self) -> impl Iterator<Item = &CacheSpec> {
        std::iter::once(&self.local).chain(&self.remotes).chain(self.locals.iter().flatten())
    }

    /// Whether one rank meets one rank: no context and no pipeline parallelism, one remote, one local.
    #[must_use]
    pub fn is_one_to_one(&self) -> bool {
        let alone = |spec: &CacheSpec| spec.topology.dcp.size == 1 && spec.topology.pp.size == 1;
        self.remotes.len() == 1 && self.locals.is_none() && self.specs().all(alone)
    }

    /// The transfer with every safe gap bridged; empty lists where the case has none.
    #[must_use]
    pub fn transfer(&self) -> Transfer {
        let request = self.requests.first();
        let local_lists = request.map(|request| request.local.clone()).unwrap_or_default();
        let remote_lists = |rank: usize| match request.map(|request| &request.remote) {
            Some(RemoteLists::Same(lists)) => lists.clone(),
            Some(RemoteLists::ByRank(by_rank)) => by_rank.get(&rank.to_string()).cloned().unwrap_or_default(),
            None => Vec::new(),
        };
        let locals = self.locals.clone().unwrap_or_else(|| vec![self.local.clone()]);
        let locals = locals.into_iter().map(|spec| Worker { spec, lists: local_lists.clone() }).collect();
        let remotes = self.remotes.iter().enumerate();
        let remotes = remotes.map(|(rank, spec)| Worker { spec: spec.clone(), lists: remote_lists(rank) }).collect();
        let (sources, destinations) = match self.op {
            Op::Read => (remotes, locals),
            Op::Write => (locals, remotes),
        };
        Transfer { op: self.op, sources, destinations, max_gap: u64::MAX }
    }
}
