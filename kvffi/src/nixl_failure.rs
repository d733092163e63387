//! Errors of `kvnixl` as statuses.

use kvnixl::Error;

use crate::failure::Failure;
use crate::status::{
    KVFFI_ERR_BLOB, KVFFI_ERR_CANCELLED, KVFFI_ERR_DEADLINE, KVFFI_ERR_FORKED, KVFFI_ERR_IN_USE,
    KVFFI_ERR_INVALID_ARGUMENT, KVFFI_ERR_LEFT_UNSETTLED, KVFFI_ERR_NO_DEVICE, KVFFI_ERR_NO_LIBRARY,
    KVFFI_ERR_OUT_OF_RANGE, KVFFI_ERR_PAIR_REFUSED, KVFFI_ERR_PEER_GONE, KVFFI_ERR_PEER_NOT_READY,
    KVFFI_ERR_REQUEST_HELD, KVFFI_ERR_REQUEST_REFUSED, KVFFI_ERR_SHUT_DOWN, KVFFI_ERR_STALE_BLOB, KVFFI_ERR_SYSTEM,
    KVFFI_ERR_TRANSFER_FAILED, KVFFI_ERR_TRANSFER_UNSETTLED, KVFFI_ERR_TRANSPORT, KVFFI_ERR_WOULD_BLOCK,
    KVFFI_ERR_WRITE_REFUSED, KVFFI_ERR_WRONG_ORDER, kvffi_status,
};

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let (status, message) = (status_of(error), full_text(error));
        let findings = if status == KVFFI_ERR_PAIR_REFUSED { vec![message.clone()] } else { Vec::new() };
        Self { status, message, findings }
    }
}

/// An error with its causes, in one line as far as they have one.
pub(crate) fn full_text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The status that stands for an error.
pub(crate) fn status_of(error: &Error) -> kvffi_status {
    match error {
        Error::LibraryNotFound { .. } | Error::LibraryConflict { .. } => KVFFI_ERR_NO_LIBRARY,
        Error::Forked => KVFFI_ERR_FORKED,
        Error::Nixl { .. } | Error::WayFailed { .. } | Error::Loopback { .. } => KVFFI_ERR_TRANSPORT,
        Error::AgentName { .. }
        | Error::ZeroLimit { .. }
        | Error::NotificationTooLong { .. }
        | Error::RequestIdLength { .. }
        | Error::NoParts { .. } => KVFFI_ERR_INVALID_ARGUMENT,
        Error::NoDevice { .. } => KVFFI_ERR_NO_DEVICE,
        Error::AlreadyRegistered { .. } | Error::NotRegistered { .. } => KVFFI_ERR_WRONG_ORDER,
        Error::OverlappingRanges { .. }
        | Error::BadRange { .. }
        | Error::NotMapped { .. }
        | Error::TooManyPieces { .. }
        | Error::RangeOutsideStorage { .. }
        | Error::OutOfRange { .. } => KVFFI_ERR_OUT_OF_RANGE,
        Error::InUse { .. } => KVFFI_ERR_IN_USE,
        Error::ShutDown { .. } => KVFFI_ERR_SHUT_DOWN,
        Error::PeerGone { .. } => KVFFI_ERR_PEER_GONE,
        Error::WrongAnswer { .. } => KVFFI_ERR_INVALID_ARGUMENT,
        Error::Deadline { .. } => KVFFI_ERR_DEADLINE,
        Error::Cancelled => KVFFI_ERR_CANCELLED,
        Error::TransferFailed { settled: true, .. } => KVFFI_ERR_TRANSFER_FAILED,
        Error::TransferFailed { settled: false, .. } => KVFFI_ERR_TRANSFER_UNSETTLED,
        Error::Unsettled { .. } => KVFFI_ERR_LEFT_UNSETTLED,
        Error::ExchangeExists { .. } => KVFFI_ERR_IN_USE,
        Error::WouldBlock { .. } => KVFFI_ERR_WOULD_BLOCK,
        Error::BlobTooLong { .. }
        | Error::BlobTruncated { .. }
        | Error::BlobMagic { .. }
        | Error::BlobVersion { .. }
        | Error::BlobChecksum { .. }
        | Error::BlobMalformed { .. }
        | Error::PeerLayout { .. }
        | Error::OwnBlob { .. }
        | Error::BlobRefused { .. }
        | Error::UnexpectedPeer { .. }
        | Error::PeerNameMismatch { .. } => KVFFI_ERR_BLOB,
        Error::StaleBlob { .. } | Error::OlderProcess { .. } | Error::PeerEnded { .. } => KVFFI_ERR_STALE_BLOB,
        Error::FingerprintMismatch { .. } | Error::OtherFingerprint { .. } => KVFFI_ERR_PAIR_REFUSED,
        Error::LayerMissing { .. } => KVFFI_ERR_INVALID_ARGUMENT,
        Error::RequestHeld { .. } => KVFFI_ERR_REQUEST_HELD,
        Error::ListsRefused { .. } => KVFFI_ERR_REQUEST_REFUSED,
        Error::WriteRefused { .. } => KVFFI_ERR_WRITE_REFUSED,
        Error::PeerNotReady { .. } => KVFFI_ERR_PEER_NOT_READY,
        // What the operating system refuses, and what has no status of its own.
        _ => KVFFI_ERR_SYSTEM,
    }
}
