//! What stands between `tracing` and the queue of log records.
//!
//! A subscriber of the whole process that has no memory of its own while nobody listens. `tracing` keeps it to the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kvnixl::fork;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::failure::Failure;
use crate::log;
use crate::status::KVFFI_ERR_IN_USE;

struct Collector;

/// `KVFFI_LOG_...`; 0 while nobody listens.
static LEVEL: AtomicI32 = AtomicI32::new(0);
/// The process that listened last, see [`fork::generation`].
static PROCESS: AtomicU64 = AtomicU64::new(0);
/// Numbers of spans.
static NEXT_SPAN: AtomicU64 = AtomicU64::new(1);
static SPANS: Mutex<BTreeMap<u64, Span>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// Spans that the thread is in.
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct Span {
    /// Its name and fields, behind those of the spans around it.
    text: String,
    references: usize,
}

fn spans() -> MutexGuard<'static, BTreeMap<u64, Span>> {
    SPANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether spans and listener are this process's. In a child that inherited them a thread that it lacks may hold their
/// locks.
pub(crate) fn is_ours() -> bool {
    PROCESS.load(Ordering::Acquire) == fork::generation()
}

/// Makes the collector that of the process, once.
pub(crate) fn install() -> Result<(), Failure> {
    PROCESS.store(fork::generation(), Ordering::Release);
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    let installed = tracing::dispatcher::set_global_default(Dispatch::new(Collector));
    installed
        .map_err(|_| Failure::new(KVFFI_ERR_IN_USE, "the program has a tracing subscriber of its own; use that"))?;
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Which records are wanted from now on.
pub(crate) fn set_level(level: i32) {
    LEVEL.store(level, Ordering::Release);
    tracing_core::callsite::rebuild_interest_cache();
}

impl Subscriber for Collector {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Asked for anew whenever the level changes.
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        log::number(*metadata.level()) <= LEVEL.load(Ordering::Acquire)
            && ["kvspec", "kvplan", "kvnixl", "kvffi"].iter().any(|name| metadata.target().starts_with(name))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match LEVEL.load(Ordering::Acquire) {
            0 => LevelFilter::OFF,
            log::KVFFI_LOG_ERROR => LevelFilter::ERROR,
            log::KVFFI_LOG_WARN => LevelFilter::WARN,
            log::KVFFI_LOG_INFO => LevelFilter::INFO,
            log::KVFFI_LOG_DEBUG => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = NEXT_SPAN.fetch_add(1, Ordering::Relaxed);
        if !is_ours() {
            return Id::from_u64(id);
        }
        let around = match attributes.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if attributes.is_contextual() => current(),
            None => None,
        };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut spans = spans();
        let around = around.and_then(|around| spans.get(&around)).map_or("", |span| &span.text);
        let text = format!("{around}{}{{{}}}: ", attributes.metadata().name(), fields.text);
        spans.insert(id, Span { text, references: 1 });
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        if is_ours()
            && let Some(span) = spans().get_mut(&span.into_u64())
        {
            span.text.push_str(&fields.text);
            span.text.push_str(": ");
        }
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(queue) = log::listening() else { return };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let around = match event.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if event.is_contextual() => current(),
            None => None,
        };
        let mut message =
            around.and_then(|around| spans().get(&around).map(|span| span.text.clone())).unwrap_or_default();
        message.push_str(&fields.message);
        if !fields.text.is_empty() {
            message.push(' ');
            message.push_str(&fields.text);
        }
        queue.push(*event.metadata().level(), event.metadata().target(), message);
    }

    fn enter(&self, span: &Id) {
        let _ = ENTERED.try_with(|entered| entered.borrow_mut().push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        let _ = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            if let Some(at) = entered.iter().rposition(|id| *id == span.into_u64()) {
                entered.remove(at);
            }
        });
    }

    fn clone_span(&self, id: &Id) -> Id {
        if is_ours()
            && let Some(span) = spans().get_mut(&id.into_u64())
        {
            span.references += 1;
        }
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        if !is_ours() {
            return false;
        }
        let mut spans = spans();
        let Some(span) = spans.get_mut(&id.into_u64()) else { return false };
        span.references -= 1;
        let closed = span.references == 0;
        if closed {
            spans.remove(&id.into_u64());
        }
        if spans.is_empty() {
            // An emptied map keeps a node.
            *spans = BTreeMap::new();
        }
        closed
    }
}

/// The span that the thread is in.
fn current() -> Option<u64> {
    ENTERED.try_with(|entered| entered.borrow().last().copied()).ok().flatten()
}

/// Fields as `key=value`, and the message apart.
#[derive(Default)]
struct Fields {
    message: String,
    text: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text cannot fail.
        let _ = match (field.name(), self.text.is_empty()) {
            ("message", _) => write!(self.message, "{value:?}"),
            (name, true) => write!(self.text, "{name}={value:?}"),
            (name, false) => write!(self.text, " {name}={value:?}"),
        };
    }
}
