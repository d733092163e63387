//! Opaque handles: what C holds of an object, and how its kind is checked.
//!
//! A handle points to a [`Tagged`] value, whose first word names its kind. A call reads that word before anything
//! else, so that NULL, a handle of another kind and (as a rule) a freed one are errors in every build. The check cannot
//! see a pointer that never was a handle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use kvnixl::fork;

use crate::failure::Failure;
use crate::status::{KVFFI_ERR_BUSY, KVFFI_ERR_FORKED, KVFFI_ERR_PANIC, KVFFI_ERR_WRONG_HANDLE};

/// Ties an opaque C type to the one Rust type behind it.
pub(crate) trait Class: Sized {
    /// What the handle owns.
    type Inner: Send + Sync;
    /// The kind.
    const KIND: Kind;
    /// Whether a child that was forked may use what it inherits: not what has threads or descriptors behind it.
    const SURVIVES_FORK: bool = true;
}

/// A kind of handle: its tag word and its name in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    tag: u64,
    name: &'static str,
}

impl Kind {
    const fn new(tag: &[u8; 8], name: &'static str) -> Self {
        Self { tag: u64::from_le_bytes(*tag), name }
    }

    pub(crate) const ERROR: Self = Self::new(b"kvffiERR", "kvffi_error");
    pub(crate) const SPEC: Self = Self::new(b"kvffiSPC", "kvffi_spec");
    pub(crate) const PAIR: Self = Self::new(b"kvffiPAI", "kvffi_pair");
    pub(crate) const ANSWER: Self = Self::new(b"kvffiANS", "kvffi_answer");
    pub(crate) const TEXT: Self = Self::new(b"kvffiTXT", "kvffi_text");
    pub(crate) const SPEC_BUILDER: Self = Self::new(b"kvffiSPB", "kvffi_spec_builder");
    pub(crate) const LOCAL_PLAN: Self = Self::new(b"kvffiLPL", "kvffi_local_plan");
    pub(crate) const PAGE: Self = Self::new(b"kvffiPAG", "kvffi_page");
    pub(crate) const ARRANGEMENT: Self = Self::new(b"kvffiARR", "kvffi_arrangement");
    pub(crate) const TENSORS: Self = Self::new(b"kvffiTEN", "kvffi_tensors");
    pub(crate) const BYTES: Self = Self::new(b"kvffiBYT", "kvffi_bytes");
    pub(crate) const LOOPBACK: Self = Self::new(b"kvffiLOO", "kvffi_loopback");
    pub(crate) const AGENT: Self = Self::new(b"kvffiAGT", "kvffi_agent");
    pub(crate) const PEER: Self = Self::new(b"kvffiPEE", "kvffi_peer");
    pub(crate) const NOTIFICATIONS: Self = Self::new(b"kvffiNOT", "kvffi_notifications");
    pub(crate) const QUARANTINE: Self = Self::new(b"kvffiQUA", "kvffi_quarantine");
    pub(crate) const TRANSFER: Self = Self::new(b"kvffiTRA", "kvffi_transfer");
    pub(crate) const EXCHANGE: Self = Self::new(b"kvffiEXC", "kvffi_exchange");
    pub(crate) const EVENTS: Self = Self::new(b"kvffiEVE", "kvffi_events");
    pub(crate) const PUSHES: Self = Self::new(b"kvffiPUS", "kvffi_pushes");
    pub(crate) const LOGS: Self = Self::new(b"kvffiLOG", "kvffi_logs");
    pub(crate) const LOG_RECORDS: Self = Self::new(b"kvffiREC", "kvffi_log_records");
    const ALL: [Self; 22] = [
        Self::ERROR,
        Self::TEXT,
        Self::SPEC,
        Self::SPEC_BUILDER,
        Self::PAGE,
        Self::ARRANGEMENT,
        Self::TENSORS,
        Self::LOCAL_PLAN,
        Self::PAIR,
        Self::ANSWER,
        Self::BYTES,
        Self::LOOPBACK,
        Self::AGENT,
        Self::PEER,
        Self::NOTIFICATIONS,
        Self::QUARANTINE,
        Self::TRANSFER,
        Self::EXCHANGE,
        Self::EVENTS,
        Self::PUSHES,
        Self::LOGS,
        Self::LOG_RECORDS,
    ];
}

/// Tag of a handle that was freed.
const FREED: u64 = u64::from_le_bytes(*b"kvffi---");

/// What a handle points to.
#[repr(C, align(16))]
struct Tagged<T> {
    tag: AtomicU64,
    /// Which process made it: [`fork::generation`].
    process: u64,
    inner: T,
}

/// Hands an object out to C.
pub(crate) fn into_handle<C: Class>(inner: C::Inner) -> *mut C {
    let process = if C::SURVIVES_FORK { 0 } else { fork::generation() };
    Box::into_raw(Box::new(Tagged { tag: AtomicU64::new(C::KIND.tag), process, inner })).cast()
}

/// Whether a live object came into this process by a fork that it does not survive.
fn is_inherited<C: Class>(tagged: &Tagged<C::Inner>) -> bool {
    !C::SURVIVES_FORK && tagged.process != fork::generation()
}

/// The object behind a handle, for as long as the call.
///
/// # Safety
///
/// `handle` is NULL or a handle of this library that is not freed before `'a` ends.
pub(crate) unsafe fn borrow<'a, C: Class>(handle: *const C, argument: &str) -> Result<&'a C::Inner, Failure> {
    let tagged: *const Tagged<C::Inner> = handle.cast();
    // SAFETY: by contract.
    unsafe { check(handle, argument)? };
    // SAFETY: the tag says that `into_handle::<C>` made this object; by contract nobody frees it meanwhile, and only
    // shared references to it exist.
    let tagged = unsafe { &*tagged };
    if is_inherited::<C>(tagged) {
        let name = C::KIND.name;
        return Err(Failure::new(
            KVFFI_ERR_FORKED,
            format!(
                "{argument} is a {name} of the parent process, and of no use in a child that was forked; exec first, or \
                 fork before the first agent on NIXL"
            ),
        ));
    }
    Ok(&tagged.inner)
}

/// Takes an object back and drops it. NULL and what is not a handle of this kind are left alone.
///
/// # Safety
///
/// `handle` is NULL or a handle of this library; no call is using it.
pub(crate) unsafe fn free<C: Class>(handle: *mut C) {
    let tagged: *mut Tagged<C::Inner> = handle.cast();
    // SAFETY: by contract.
    if unsafe { check(handle.cast_const(), "") }.is_err() {
        return;
    }
    // SAFETY: the tag says that this is a live object.
    let (tag, inherited) = unsafe { (&(*tagged).tag, is_inherited::<C>(&*tagged)) };
    // Of two threads that free the same handle at once, which is forbidden, one wins.
    let won = tag.compare_exchange(C::KIND.tag, FREED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    // The threads that an inherited object would wait for are not in this process.
    if won && !inherited {
        // SAFETY: `into_handle::<C>` made it with `Box`, and the exchange lets it be taken back once.
        drop(unsafe { Box::from_raw(tagged) });
    }
}

/// # Safety
///
/// `handle` is NULL or points to at least 8 readable bytes.
unsafe fn check<C: Class>(handle: *const C, argument: &str) -> Result<(), Failure> {
    if handle.is_null() {
        return Err(Failure::null(argument));
    }
    let expected = C::KIND;
    let wrong = |is: &str| {
        Failure::new(KVFFI_ERR_WRONG_HANDLE, format!("{argument} is {is}, expected a handle of {}", expected.name))
    };
    // Handles are aligned to 16, whatever their kind.
    if !handle.addr().is_multiple_of(align_of::<Tagged<()>>()) {
        return Err(wrong("not a handle"));
    }
    // SAFETY: readable by contract, aligned as just checked; every handle starts with this word.
    let tag = unsafe { &*handle.cast::<AtomicU64>() }.load(Ordering::Acquire);
    if tag == expected.tag {
        return Ok(());
    }
    if tag == FREED {
        return Err(wrong("a handle that was freed"));
    }
    match Kind::ALL.iter().find(|kind| kind.tag == tag) {
        Some(kind) => Err(wrong(&format!("a handle of {}", kind.name))),
        None => Err(wrong("not a handle")),
    }
}

/// Locks an object that takes one call at a time; a second call gets an error and does not wait.
pub(crate) fn lock<'a, T>(mutex: &'a Mutex<T>, argument: &str) -> Result<MutexGuard<'a, T>, Failure> {
    match mutex.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(_)) => Err(Failure::new(
            KVFFI_ERR_PANIC,
            format!("an earlier call on {argument} ended in a defect of kvffi and left it half done; free it"),
        )),
        Err(TryLockError::WouldBlock) => Err(Failure::new(
            KVFFI_ERR_BUSY,
            format!("{argument} is in use by another thread; it takes one call at a time"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_tell_the_kinds_apart() {
        for (i, kind) in Kind::ALL.iter().enumerate() {
            assert_ne!(kind.tag, FREED);
            assert!(Kind::ALL[..i].iter().all(|other| other.tag != kind.tag && other.name != kind.name));
        }
    }

    #[test]
    fn a_second_call_on_a_locked_object_is_told_so() {
        let object = Mutex::new(1);
        let held = lock(&object, "answer").unwrap();
        assert_eq!(lock(&object, "answer").unwrap_err().status, KVFFI_ERR_BUSY);
        drop(held);
        assert_eq!(*lock(&object, "answer").unwrap(), 1);
    }

    #[test]
    fn an_object_that_a_panic_left_half_done_is_not_used_again() {
        let object = Mutex::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = lock(&object, "answer");
            panic!("in the middle");
        }));
        assert!(panicked.is_err());
        assert_eq!(lock(&object, "answer").unwrap_err().status, KVFFI_ERR_PANIC);
    }
}
