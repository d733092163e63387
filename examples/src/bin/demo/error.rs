//! What can go wrong in the demo.

use std::io;
use std::time::Duration;

/// Errors of the demo.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A worker could not be started.
    #[error("cannot start the {role} worker: {source}")]
    Start { role: &'static str, source: io::Error },
    /// A worker's process is gone.
    #[error("the {role} worker ended while it was asked to {asked} ({status}); its own words are above")]
    Ended { role: &'static str, asked: &'static str, status: String },
    /// A worker is silent.
    #[error("the {role} worker did not {asked} within {patience:?}")]
    Silent { role: &'static str, asked: &'static str, patience: Duration },
    /// A worker says that it cannot.
    #[error("the {role} worker cannot {asked}: {message}")]
    Worker { role: &'static str, asked: &'static str, message: String },
    /// A worker answers something else.
    #[error("the {role} worker was asked to {asked} and answered something else")]
    Unexpected { role: &'static str, asked: &'static str },
    /// A command or answer is not in its form.
    #[error("a message of {len} bytes between demo and worker is not in its form: {why}")]
    Message { len: usize, why: String },
    /// A worker is asked for something that needs an earlier step.
    #[error("asked to {asked} before {missing}")]
    Order { asked: &'static str, missing: &'static str },
    /// The model's cells do not fill its storage, so checking cells would not check every byte.
    #[error("the cells of the spec are {cells} bytes and its storage {storage}; every byte must belong to a cell")]
    Uncovered { cells: u64, storage: u64 },
    /// Memory of the size does not exist.
    #[error("cannot allocate {len} bytes")]
    Memory { len: u64 },
    /// The channel to a worker, or standard output.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A row cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Spec(#[from] kvspec::SpecError),
    #[error(transparent)]
    Pair(#[from] kvplan::PairError),
    #[error(transparent)]
    Request(#[from] kvplan::RequestError),
    #[error(transparent)]
    Nixl(#[from] kvnixl::Error),
}
