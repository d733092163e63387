//! `kvffi_logs`: what the library logs, taken by a call.
//!
//! The library logs through `tracing`. Nothing listens until an engine asks for records; then a bounded queue does, and
//! whoever takes from it decides what becomes of them.

use std::ffi::{CString, c_char};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::Level;

use crate::argument::{copy_out, out, out_handle, out_optional};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::{c_text, kvffi_error};
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::log_collector;
use crate::options::{self, Grows};
use crate::status::{KVFFI_ERR_IN_USE, KVFFI_ERR_SYSTEM, kvffi_status};

/// Of a log record: something failed.
pub const KVFFI_LOG_ERROR: i32 = 1;
/// Of a log record: something is wrong or slow, and work goes on.
pub const KVFFI_LOG_WARN: i32 = 2;
/// Of a log record: agents, peers, what settles late. The default.
pub const KVFFI_LOG_INFO: i32 = 3;
/// Of a log record: every transfer, lease and message that is not sent.
pub const KVFFI_LOG_DEBUG: i32 = 4;
/// Of a log record: everything.
pub const KVFFI_LOG_TRACE: i32 = 5;

/// The library's log records, from when this was made until it is freed: one in a process at a time.
///
/// Freed with kvffi_logs_free.
#[derive(Debug)]
pub struct kvffi_logs {
    _opaque: [u8; 0],
}

/// What is kept of the log. Starts as KVFFI_LOG_OPTIONS_INIT; 0 is the default of every field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_log_options {
    /// Size of this struct.
    pub struct_size: usize,
    /// KVFFI_LOG_...: the least important records that are kept. 0 for KVFFI_LOG_INFO.
    pub level: i32,
    /// 0.
    pub reserved: u32,
    /// Most records that wait to be taken; later ones are dropped and counted. 0 for 4096, at most 1,048,576.
    pub capacity: u64,
}

// SAFETY: `repr(C)`, 24 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_log_options {
    const NAME: &'static str = "kvffi_log_options";
    const FIRST_SIZE: usize = 24;
}

/// Log records that were taken. Immutable.
///
/// Freed with kvffi_log_records_free.
#[derive(Debug)]
pub struct kvffi_log_records {
    _opaque: [u8; 0],
}

/// A log record. Its pointers are valid until the kvffi_log_records is freed. Frozen: never grows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_log_record {
    /// When, in nanoseconds since 1970 (UTC).
    pub time_ns: u64,
    /// KVFFI_LOG_...
    pub level: i32,
    /// 0.
    pub reserved: u32,
    /// Which part of the library, such as "kvnixl::agent"; ends with a NUL.
    pub target: *const c_char,
    /// What happened, with its fields as key=value, and those of the transfer that it belongs to; UTF-8 that ends with a
    /// NUL.
    pub message: *const c_char,
}

/// Records that wait to be taken.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<Waiting>,
    capacity: usize,
    /// Readable while records wait.
    fd: OwnedFd,
}

#[derive(Debug, Default)]
struct Waiting {
    records: Vec<Entry>,
    /// How many found no room.
    dropped: u64,
}

/// A record, and its text with a NUL at its end.
#[derive(Debug)]
pub(crate) struct Entry {
    time_ns: u64,
    level: i32,
    target: CString,
    message: CString,
}

/// Who listens, if anybody does, in the process that listened last.
static LISTENING: Mutex<Option<Arc<Queue>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queue of whoever listens.
pub(crate) fn listening() -> Option<Arc<Queue>> {
    // First: in a child that inherited the lock a thread that it lacks may hold it.
    if log_collector::is_ours() { lock(&LISTENING).clone() } else { None }
}

impl Queue {
    fn new(capacity: usize) -> std::io::Result<Self> {
        // SAFETY: no preconditions.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: just made, owned by nobody else.
        Ok(Self { state: Mutex::default(), capacity, fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    pub(crate) fn push(&self, level: Level, target: &str, message: String) {
        let mut state = lock(&self.state);
        if state.records.len() >= self.capacity {
            // A count that is full says enough.
            state.dropped = state.dropped.saturating_add(1);
            return;
        }
        if state.records.is_empty() {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: eight bytes, which is what an eventfd takes.
            unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        state.records.push(Entry {
            time_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
            level: number(level),
            target: c_text(target.to_owned()),
            message: c_text(message),
        });
    }

    fn take(&self) -> (Vec<Entry>, u64) {
        let mut state = lock(&self.state);
        let mut count = [0_u8; 8];
        // SAFETY: room for eight bytes, which is what an eventfd gives. It fails when it is not readable.
        unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        (std::mem::take(&mut state.records), std::mem::take(&mut state.dropped))
    }
}

/// The number of a level.
pub(crate) fn number(level: Level) -> i32 {
    match level {
        Level::ERROR => KVFFI_LOG_ERROR,
        Level::WARN => KVFFI_LOG_WARN,
        Level::INFO => KVFFI_LOG_INFO,
        Level::DEBUG => KVFFI_LOG_DEBUG,
        Level::TRACE => KVFFI_LOG_TRACE,
    }
}

/// Stops listening when it goes.
#[derive(Debug)]
pub(crate) struct Logs(Arc<Queue>);

impl Drop for Logs {
    fn drop(&mut self) {
        log_collector::set_level(0);
        *lock(&LISTENING) = None;
    }
}

impl Class for kvffi_logs {
    type Inner = Logs;
    const KIND: Kind = Kind::LOGS;
    const SURVIVES_FORK: bool = false;
}

impl Class for kvffi_log_records {
    type Inner = Vec<Entry>;
    const KIND: Kind = Kind::LOG_RECORDS;
}

/// # Safety
///
/// As for [`options::read`]; NULL gives the defaults.
unsafe fn log_options(options: *const kvffi_log_options) -> Result<(i32, usize), Failure> {
    const CAPACITY: usize = 4096;
    const MOST: usize = 1 << 20;
    if options.is_null() {
        return Ok((KVFFI_LOG_INFO, CAPACITY));
    }
    // SAFETY: by contract.
    let options = unsafe { options::read(options, "options")? };
    crate::worker::reserved(options.reserved, "options->reserved")?;
    let level = match options.level {
        0 => KVFFI_LOG_INFO,
        level @ KVFFI_LOG_ERROR..=KVFFI_LOG_TRACE => level,
        other => {
            return Err(Failure::invalid(format!(
                "options->level is {other}, expected KVFFI_LOG_ERROR (1) to KVFFI_LOG_TRACE (5)"
            )));
        }
    };
    match usize::try_from(options.capacity) {
        Ok(0) => Ok((level, CAPACITY)),
        Ok(capacity @ 1..=MOST) => Ok((level, capacity)),
        _ => Err(Failure::invalid(format!("options->capacity is {}, at most {MOST} are kept", options.capacity))),
    }
}

/// Begins to keep the library's log records, of all its objects.
///
/// options: NULL for the defaults.
/// out_logs: the log, to be freed with kvffi_logs_free; NULL if the call fails.
///
/// KVFFI_ERR_IN_USE if the process has one, or if the library is part of a Rust program that listens itself.
/// KVFFI_ERR_SYSTEM. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_logs_new(
    options: *const kvffi_log_options,
    out_logs: *mut *mut kvffi_logs,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_logs = unsafe { out_handle(out_logs, "out_logs")? };
        // SAFETY: the crate's contract.
        let (level, capacity) = unsafe { log_options(options)? };
        let queue = Queue::new(capacity)
            .map_err(|error| Failure::new(KVFFI_ERR_SYSTEM, format!("no file descriptor to wait on: {error}")))?;
        let queue = Arc::new(queue);
        let mut listening = lock(&LISTENING);
        if log_collector::is_ours() && listening.is_some() {
            return Err(Failure::new(KVFFI_ERR_IN_USE, "the process has a kvffi_logs already; free it first"));
        }
        log_collector::install()?;
        *listening = Some(queue.clone());
        drop(listening);
        log_collector::set_level(level);
        out_logs.set(handle::into_handle(Logs(queue)));
        Ok(())
    })
}

/// Hands out a file descriptor that is readable while records wait. Only wait for it to be readable: do not read, write or
/// close it.
///
/// out_fd: valid until the log is freed. Left alone if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_logs_get_fd(
    logs: *const kvffi_logs,
    out_fd: *mut i32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_fd, logs) = unsafe { (out(out_fd, "out_fd")?, handle::borrow(logs, "logs")?) };
        out_fd.set(logs.0.fd.as_raw_fd());
        Ok(())
    })
}

/// Takes the records that wait.
///
/// out_records: the records, to be freed with kvffi_log_records_free; NULL if there are none or the call fails.
/// out_dropped: how many records found no room since the last call; may be NULL. Left alone if the call fails.
///
/// Threads: any number at once; each record is taken once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_logs_take(
    logs: *const kvffi_logs,
    out_records: *mut *mut kvffi_log_records,
    out_dropped: *mut u64,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_records = unsafe { out_handle(out_records, "out_records")? };
        // SAFETY: the crate's contract.
        let (out_dropped, logs) = unsafe { (out_optional(out_dropped, "out_dropped")?, handle::borrow(logs, "logs")?) };
        let (records, dropped) = logs.0.take();
        if let Some(out_dropped) = out_dropped {
            out_dropped.set(dropped);
        }
        if !records.is_empty() {
            out_records.set(handle::into_handle::<kvffi_log_records>(records));
        }
        Ok(())
    })
}

/// Number of records; 0 if records is NULL or no kvffi_log_records.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_log_records_len(records: *const kvffi_log_records) -> usize {
    ffi_value!(0, {
        // SAFETY: the crate's contract.
        unsafe { handle::borrow(records, "records") }.map_or(0, Vec::len)
    })
}

/// Copies records into the caller's array, in order.
///
/// array, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of records; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_log_records_get(
    records: *const kvffi_log_records,
    array: *mut kvffi_log_record,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_len, list) = unsafe { (out(out_len, "out_len")?, handle::borrow(records, "records")?) };
        let values = list.iter().map(|entry| kvffi_log_record {
            time_ns: entry.time_ns,
            level: entry.level,
            reserved: 0,
            target: entry.target.as_ptr(),
            message: entry.message.as_ptr(),
        });
        // SAFETY: the crate's contract.
        unsafe { copy_out(values, array, capacity, &out_len, "array") }
    })
}

/// Frees records. NULL does nothing.
///
/// Threads: no other call may use these records, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_log_records_free(records: *mut kvffi_log_records) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(records) }
    })
}

/// Stops keeping records, and drops those that wait. NULL does nothing.
///
/// Threads: no other call may use this log, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_logs_free(logs: *mut kvffi_logs) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(logs) }
    })
}
