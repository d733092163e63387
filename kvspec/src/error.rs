//! What can be wrong when a spec is read, built or checked.

use crate::arrange::ArrangeError;
use crate::tensors::TensorError;
use crate::text::Short;
use crate::validate::Findings;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The spec contradicts itself; everything that is wrong with it.
    #[error("invalid spec: {0}")]
    Invalid(Findings),

    /// The text is not a spec in JSON.
    #[error("{}: {}", Short(path), Short(&source.to_string()))]
    Json {
        /// Path of the field, such as `layers[3].parts[0].units.count`; `.` for the whole text.
        path: String,
        /// What was found there and what was expected, with line and column.
        source: serde_json::Error,
    },
    /// A spec could not be written as JSON.
    #[error("the spec cannot be written as JSON: {source}")]
    Write {
        /// Why.
        source: serde_json::Error,
    },

    /// Pages cannot be placed.
    #[error(transparent)]
    Arrange(#[from] ArrangeError),

    /// Tensors contradict the kind of their layer.
    #[error(transparent)]
    Tensors(#[from] TensorError),
}
