//! The objects that are alive, how a call is made, and what must hold after it.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};

use arbitrary::{Result, Unstructured};
use kvffi::*;

/// Kinds of handles, as an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Error,
    Text,
    Spec,
    SpecBuilder,
    Page,
    Arrangement,
    Tensors,
    LocalPlan,
    Pair,
    Answer,
    Bytes,
    Loopback,
    Agent,
    Peer,
    Notifications,
    Quarantine,
    Transfer,
    Exchange,
    Events,
    Pushes,
    Logs,
    LogRecords,
}

impl Kind {
    pub const ALL: [Self; 22] = [
        Self::Error,
        Self::Text,
        Self::Spec,
        Self::SpecBuilder,
        Self::Page,
        Self::Arrangement,
        Self::Tensors,
        Self::LocalPlan,
        Self::Pair,
        Self::Answer,
        Self::Bytes,
        Self::Loopback,
        Self::Agent,
        Self::Peer,
        Self::Notifications,
        Self::Quarantine,
        Self::Transfer,
        Self::Exchange,
        Self::Events,
        Self::Pushes,
        Self::Logs,
        Self::LogRecords,
    ];

    /// Its `_free`, with the name.
    ///
    /// # Safety
    ///
    /// As for the function.
    unsafe fn free(self, handle: *mut c_void) -> &'static str {
        macro_rules! free {
            ($function:ident) => {{
                // SAFETY: by contract.
                unsafe { $function(handle.cast()) };
                stringify!($function)
            }};
        }
        match self {
            Self::Error => free!(kvffi_error_free),
            Self::Text => free!(kvffi_text_free),
            Self::Spec => free!(kvffi_spec_free),
            Self::SpecBuilder => free!(kvffi_spec_builder_free),
            Self::Page => free!(kvffi_page_free),
            Self::Arrangement => free!(kvffi_arrangement_free),
            Self::Tensors => free!(kvffi_tensors_free),
            Self::LocalPlan => free!(kvffi_local_plan_free),
            Self::Pair => free!(kvffi_pair_free),
            Self::Answer => free!(kvffi_answer_free),
            Self::Bytes => free!(kvffi_bytes_free),
            Self::Loopback => free!(kvffi_loopback_free),
            Self::Agent => free!(kvffi_agent_free),
            Self::Peer => free!(kvffi_peer_free),
            Self::Notifications => free!(kvffi_notifications_free),
            Self::Quarantine => free!(kvffi_quarantine_free),
            Self::Transfer => free!(kvffi_transfer_free),
            Self::Exchange => free!(kvffi_exchange_free),
            Self::Events => free!(kvffi_events_free),
            Self::Pushes => free!(kvffi_pushes_free),
            Self::Logs => free!(kvffi_logs_free),
            Self::LogRecords => free!(kvffi_log_records_free),
        }
    }
}

/// How often each function succeeded and failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcomes(pub BTreeMap<&'static str, [u64; 2]>);

impl Outcomes {
    pub fn add(&mut self, other: &Self) {
        for (name, [succeeded, failed]) in &other.0 {
            let count = self.0.entry(name).or_default();
            count[0] += succeeded;
            count[1] += failed;
        }
    }
}

/// More objects of one kind than a sequence needs; the oldest goes then.
const MAX_OBJECTS: usize = 24;

pub struct Machine<'a> {
    pub bytes: Unstructured<'a>,
    /// Of 256 arguments, how many are wrong. Few let a sequence get far, many try one call after the other.
    wrong: u8,
    alive: [Vec<*mut c_void>; Kind::ALL.len()],
    /// Memory that the arguments of the call at hand point to.
    pub(super) arena: Vec<Box<[u64]>>,
    outcomes: Outcomes,
}

impl<'a> Machine<'a> {
    pub fn new(mut bytes: Unstructured<'a>) -> Self {
        let wrong = bytes.choose(&[0, 0, 1, 4, 24]).copied().unwrap_or(0);
        Self { bytes, wrong, alive: Default::default(), arena: Vec::new(), outcomes: Outcomes::default() }
    }

    /// Whether the next argument is to be wrong.
    pub fn is_wrong(&mut self) -> Result<bool> {
        Ok(self.wrong > 0 && self.bytes.int_in_range(0..=255u8)? < self.wrong)
    }

    /// A live object of a kind, or what is none: NULL, another kind, memory that never was one.
    pub fn handle<T>(&mut self, kind: Kind) -> Result<*mut T> {
        if self.is_wrong()? {
            return Ok(match self.bytes.int_in_range(0..=3u8)? {
                0 => std::ptr::null_mut(),
                1 => self.memory(&[0x1234_5678, 0, 0]).cast(),
                2 => self.memory(&[0, 0, 0]).wrapping_byte_add(1).cast(),
                _ => {
                    let other = *self.bytes.choose(&Kind::ALL)?;
                    let alive = &self.alive[other as usize];
                    let handle = if alive.is_empty() { std::ptr::null_mut() } else { *self.bytes.choose(alive)? };
                    handle.cast()
                }
            });
        }
        let alive = &self.alive[kind as usize];
        // The latest are the likeliest to fit together.
        let back = self.bytes.int_in_range(0..=3usize)?.min(alive.len().saturating_sub(1));
        Ok(alive.len().checked_sub(1 + back).map_or(std::ptr::null_mut(), |i| alive[i].cast()))
    }

    /// The object of a kind that was made last; NULL if there is none.
    pub fn latest<T>(&self, kind: Kind) -> *mut T {
        self.alive[kind as usize].last().map_or(std::ptr::null_mut(), |handle| handle.cast())
    }

    /// Memory for the length of a call that holds some words, aligned to 16 as handles are.
    pub fn memory(&mut self, words: &[u64]) -> *mut u64 {
        let mut memory = vec![0; words.len() + 1].into_boxed_slice();
        let skip = usize::from(!memory.as_ptr().addr().is_multiple_of(16));
        memory[skip..skip + words.len()].copy_from_slice(words);
        let pointer = memory.as_mut_ptr().wrapping_add(skip);
        self.arena.push(memory);
        pointer
    }

    /// Makes a call that returns a status, and checks what holds of every one:
    ///
    /// - it does not panic, and its status has a name;
    /// - an error object is there if and only if the call failed, with the same status, a text, and findings that are texts.
    ///
    /// Returns whether it succeeded.
    pub fn call(
        &mut self,
        name: &'static str,
        call: impl FnOnce(*mut *mut kvffi_error) -> kvffi_status,
    ) -> Result<bool> {
        let mut error: *mut kvffi_error = std::ptr::dangling_mut();
        let wants_error = !self.is_wrong()?;
        let status = call(if wants_error { &raw mut error } else { std::ptr::null_mut() });
        // SAFETY: the text is static.
        let status_name = unsafe { CStr::from_ptr(kvffi_status_name(status)) };
        assert!(status_name != c"unknown status" && status != KVFFI_ERR_PANIC, "{name}: {status_name:?} ({status})");
        if wants_error {
            assert_eq!(error.is_null(), status >= 0, "{name}: {status_name:?}");
        }
        if wants_error && status < 0 {
            // SAFETY: the call left an error of its own, which is freed once, here or when the machine ends.
            unsafe {
                assert_eq!(kvffi_error_status(error), status, "{name}");
                assert!(!CStr::from_ptr(kvffi_error_message(error)).is_empty(), "{name}");
                let findings = kvffi_error_num_findings(error);
                let many = matches!(status, KVFFI_ERR_INVALID_SPEC | KVFFI_ERR_PAIR_REFUSED);
                assert_eq!(findings > 0, many, "{name}: {status_name:?}");
                for i in 0..findings {
                    assert!(CStr::from_ptr(kvffi_error_finding(error, i)).to_str().is_ok(), "{name}");
                }
                assert!(kvffi_error_finding(error, findings).is_null(), "{name}");
            }
            self.keep(Kind::Error, error.cast());
        }
        self.outcomes.0.entry(name).or_default()[usize::from(status < 0)] += 1;
        Ok(status >= 0)
    }

    /// Notes a call of a function that returns no status.
    pub fn called(&mut self, name: &'static str) {
        self.outcomes.0.entry(name).or_default()[0] += 1;
    }

    /// Makes a call that hands out an object: it is there if and only if the call succeeded.
    pub fn make<T>(
        &mut self,
        name: &'static str,
        kind: Kind,
        call: impl FnOnce(*mut *mut T, *mut *mut kvffi_error) -> kvffi_status,
    ) -> Result<()> {
        self.make_whether(name, kind, call, true)
    }

    /// As [`Machine::make`], for a call that hands out NULL when there is nothing.
    pub fn make_if_any<T>(
        &mut self,
        name: &'static str,
        kind: Kind,
        call: impl FnOnce(*mut *mut T, *mut *mut kvffi_error) -> kvffi_status,
    ) -> Result<()> {
        self.make_whether(name, kind, call, false)
    }

    fn make_whether<T>(
        &mut self,
        name: &'static str,
        kind: Kind,
        call: impl FnOnce(*mut *mut T, *mut *mut kvffi_error) -> kvffi_status,
        always: bool,
    ) -> Result<()> {
        let mut made: [*mut T; 2] = [std::ptr::dangling_mut(); 2];
        let right = (&raw mut made).cast::<*mut T>();
        let out = match (self.is_wrong()?, self.bytes.int_in_range(0..=1u8)?) {
            (false, _) => right,
            (true, 0) => std::ptr::null_mut(),
            (true, _) => right.wrapping_byte_add(1),
        };
        let succeeded = self.call(name, |error| call(out, error))?;
        if out == right {
            let right = if succeeded { !made[0].is_null() || !always } else { made[0].is_null() };
            assert!(right, "{name}");
        } else {
            assert!(!succeeded, "{name} had nowhere to leave its object");
        }
        if succeeded && !made[0].is_null() {
            self.keep(kind, made[0].cast());
        }
        Ok(())
    }

    /// Makes a call that fills an array, and checks that it writes what it says and nothing else.
    pub fn list<T>(
        &mut self,
        name: &'static str,
        call: impl FnOnce(*mut T, usize, *mut usize, *mut *mut kvffi_error) -> kvffi_status,
    ) -> Result<()> {
        const UNTOUCHED: u64 = 0xa5a5_a5a5_a5a5_a5a5;
        const ROOM: usize = 32;
        let words_each = size_of::<T>().div_ceil(8);
        let mut room = vec![UNTOUCHED; ROOM * words_each];
        let (mut pointer, mut capacity) = (room.as_mut_ptr().cast::<T>(), self.bytes.int_in_range(0..=ROOM)?);
        if self.is_wrong()? {
            match self.bytes.int_in_range(0..=3u8)? {
                0 => pointer = std::ptr::null_mut(),
                1 => pointer = pointer.wrapping_byte_add(1),
                2 => capacity = usize::MAX,
                _ => capacity = usize::MAX / 2 + 1,
            }
        }
        let mut len = usize::MAX;
        let out_len = if self.is_wrong()? { std::ptr::null_mut() } else { &raw mut len };
        let succeeded = self.call(name, |error| call(pointer, capacity, out_len, error))?;
        assert!(!succeeded || len <= capacity, "{name}: {len} of {capacity}");
        let written = if succeeded { len } else { 0 };
        assert!(room[written * words_each..].iter().all(|word| *word == UNTOUCHED), "{name} wrote past {written}");
        Ok(())
    }

    fn keep(&mut self, kind: Kind, handle: *mut c_void) {
        let alive = &mut self.alive[kind as usize];
        alive.push(handle);
        if alive.len() > MAX_OBJECTS {
            let oldest = alive.remove(0);
            // SAFETY: it is no longer in the list of what is alive.
            unsafe { kind.free(oldest) };
        }
    }

    /// Frees one object, or what is none, which does nothing.
    pub fn free(&mut self) -> Result<()> {
        let kind = *self.bytes.choose(&Kind::ALL)?;
        let alive = &mut self.alive[kind as usize];
        let handle = if alive.is_empty() {
            std::ptr::null_mut()
        } else {
            alive.swap_remove(self.bytes.choose_index(alive.len())?)
        };
        if self.is_wrong()? {
            let other = *self.bytes.choose(&Kind::ALL)?;
            if other != kind {
                // SAFETY: a handle of another kind is left alone.
                unsafe { other.free(handle) };
            }
        }
        // SAFETY: it is no longer in the list of what is alive.
        let name = unsafe { kind.free(handle) };
        self.called(name);
        Ok(())
    }

    /// What the arguments pointed to goes: the library keeps no pointer to it.
    pub fn end_of_call(&mut self) {
        self.arena.clear();
    }

    /// Frees everything.
    pub fn finish(mut self) -> Outcomes {
        for kind in Kind::ALL {
            for handle in std::mem::take(&mut self.alive[kind as usize]) {
                // SAFETY: it is no longer in the list of what is alive.
                let name = unsafe { kind.free(handle) };
                self.called(name);
            }
        }
        self.outcomes
    }
}
