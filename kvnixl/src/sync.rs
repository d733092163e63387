//! What threads share memory with, in one place: `tests/threads.rs` runs `gate`, `inbox` and `state` with loom's.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
