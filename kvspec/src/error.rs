//! What can be wrong with a spec.

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The spec contradicts itself; all findings.
    #[error("invalid spec: {0}")]
    Invalid(String),
}
