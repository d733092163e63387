//! Why a call fails, on its way to becoming a `kvffi_error`.

use kvspec::SpecError;

use crate::status::{
    KVFFI_ERR_INVALID_ARGUMENT, KVFFI_ERR_INVALID_SPEC, KVFFI_ERR_JSON, KVFFI_ERR_NOT_PROVEN, KVFFI_ERR_NULL,
    KVFFI_ERR_PAIR_REFUSED, KVFFI_ERR_REQUEST_REFUSED, KVFFI_ERR_ROW_BROKEN, kvffi_status,
};

/// A status with its full text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: kvffi_status,
    /// The whole text.
    pub(crate) message: String,
    /// The text in pieces where several things are wrong, one for each; empty otherwise.
    pub(crate) findings: Vec<String>,
}

impl Failure {
    pub(crate) fn new(status: kvffi_status, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), findings: Vec::new() }
    }

    pub(crate) fn null(argument: &str) -> Self {
        Self::new(KVFFI_ERR_NULL, format!("{argument} is NULL"))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(KVFFI_ERR_INVALID_ARGUMENT, message)
    }
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        let message = error.to_string();
        match error {
            SpecError::Invalid(findings) => Self {
                status: KVFFI_ERR_INVALID_SPEC,
                message,
                findings: findings.iter().map(ToString::to_string).collect(),
            },
            SpecError::Json { .. } | SpecError::Write { .. } => Self::new(KVFFI_ERR_JSON, message),
            _ => Self { status: KVFFI_ERR_INVALID_SPEC, findings: vec![message.clone()], message },
        }
    }
}

impl From<kvspec::kinds::KindError> for Failure {
    fn from(error: kvspec::kinds::KindError) -> Self {
        let message = error.to_string();
        Self { status: KVFFI_ERR_INVALID_SPEC, findings: vec![message.clone()], message }
    }
}

impl From<kvplan::PairError> for Failure {
    fn from(error: kvplan::PairError) -> Self {
        let findings = error.refusals.iter().map(ToString::to_string).collect();
        Self { status: KVFFI_ERR_PAIR_REFUSED, message: error.to_string(), findings }
    }
}

impl From<kvplan::RowBroken> for Failure {
    fn from(error: kvplan::RowBroken) -> Self {
        Self::new(KVFFI_ERR_ROW_BROKEN, error.to_string())
    }
}

impl From<kvplan::VerifyError> for Failure {
    fn from(error: kvplan::VerifyError) -> Self {
        Self::new(KVFFI_ERR_NOT_PROVEN, error.to_string())
    }
}

impl From<kvplan::request::JsonError> for Failure {
    fn from(error: kvplan::request::JsonError) -> Self {
        Self::new(KVFFI_ERR_JSON, error.to_string())
    }
}

impl From<kvplan::RequestError> for Failure {
    fn from(error: kvplan::RequestError) -> Self {
        Self::new(KVFFI_ERR_REQUEST_REFUSED, error.to_string())
    }
}
