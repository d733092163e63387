//! `kvffi_pair`: a plan between this worker and one peer.

use std::sync::atomic::{AtomicU64, Ordering};

use kvplan::{Op, PairOptions, PairPlan};

use crate::argument::{out, out_handle};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::options::{self, Grows};
use crate::spec::kvffi_spec;
use crate::status::{KVFFI_ERR_JSON, kvffi_status};
use crate::text::kvffi_text;

/// Direction of a transfer: remote to local. Decode pulls. The default.
pub const KVFFI_OP_READ: i32 = 0;
/// Direction of a transfer: local to remote. Prefill pushes.
pub const KVFFI_OP_WRITE: i32 = 1;

/// Refuse a pair in which a block is more than one descriptor.
pub const KVFFI_PAIR_REQUIRE_WHOLE_ROWS: u32 = 1;

/// As max_gap: any gap may be bridged.
pub const KVFFI_GAP_ANY: u64 = u64::MAX;

/// A plan for one pair of workers and one direction. Immutable.
///
/// Freed with kvffi_pair_free.
#[derive(Debug)]
pub struct kvffi_pair {
    _opaque: [u8; 0],
}

/// What is asked of a plan. Starts as KVFFI_PAIR_OPTIONS_INIT; 0 is the default of every field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_pair_options {
    /// Size of this struct.
    pub struct_size: usize,
    /// KVFFI_OP_READ or KVFFI_OP_WRITE.
    pub op: i32,
    /// Any of KVFFI_PAIR_REQUIRE_WHOLE_ROWS, or'ed.
    pub flags: u32,
    /// Longest gap, in bytes, that may travel as padding to save a descriptor; KVFFI_GAP_ANY for any. At 0 no byte is
    /// written that the destination's spec does not declare.
    pub max_gap: u64,
    /// Shortest run along the token axis, in bytes, that is accepted: a plan with shorter ones is refused. 0 accepts all.
    pub min_run: u64,
}

// SAFETY: `repr(C)`, 32 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_pair_options {
    const NAME: &'static str = "kvffi_pair_options";
    const FIRST_SIZE: usize = 32;
}

/// A plan, and a number that tells it from all other plans of the process.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) id: u64,
    pub(crate) plan: PairPlan,
}

impl Class for kvffi_pair {
    type Inner = Pair;
    const KIND: Kind = Kind::PAIR;
}

/// The direction that a number from C stands for.
pub(crate) fn op(value: i32, argument: &str) -> Result<Op, Failure> {
    match value {
        KVFFI_OP_READ => Ok(Op::Read),
        KVFFI_OP_WRITE => Ok(Op::Write),
        other => {
            Err(Failure::invalid(format!("{argument} is {other}, expected KVFFI_OP_READ (0) or KVFFI_OP_WRITE (1)")))
        }
    }
}

/// # Safety
///
/// As for [`options::read`]; NULL gives the defaults.
unsafe fn pair_options(options: *const kvffi_pair_options) -> Result<PairOptions, Failure> {
    if options.is_null() {
        return Ok(PairOptions::default());
    }
    // SAFETY: by contract.
    let options = unsafe { options::read(options, "options")? };
    let unknown = options.flags & !KVFFI_PAIR_REQUIRE_WHOLE_ROWS;
    if unknown != 0 {
        return Err(Failure::invalid(format!("options->flags has the unknown bits {unknown:#x}")));
    }
    Ok(PairOptions {
        op: op(options.op, "options->op")?,
        max_gap: options.max_gap,
        min_run: options.min_run,
        require_whole_rows: options.flags & KVFFI_PAIR_REQUIRE_WHOLE_ROWS != 0,
    })
}

/// Plans transfers between this worker and a peer. Costs time by the number of parts, whatever the number of blocks.
///
/// local: this worker's caches, for the side that posts the transfers.
/// remote: the peer's caches.
/// options: NULL for the defaults.
/// out_pair: the plan, to be freed with kvffi_pair_free; NULL if the call fails. It does not need the specs any more.
///
/// A pair in which other ranks serve everything gives a plan that moves nothing. KVFFI_ERR_PAIR_REFUSED if the two
/// cannot exchange caches, with every reason as a finding. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_pair_new(
    local: *const kvffi_spec,
    remote: *const kvffi_spec,
    options: *const kvffi_pair_options,
    out_pair: *mut *mut kvffi_pair,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_pair = unsafe { out_handle(out_pair, "out_pair")? };
        // SAFETY: the crate's contract.
        let (local, remote) = unsafe { (handle::borrow(local, "local")?, handle::borrow(remote, "remote")?) };
        // SAFETY: the crate's contract.
        let options = unsafe { pair_options(options)? };
        let plan = PairPlan::new(local, remote, &options)?;
        out_pair.set(handle::into_handle(Pair { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), plan }));
        Ok(())
    })
}

/// Says whether a pair exchanges nothing, whatever the request: other ranks serve everything.
///
/// out_is_empty: 1 if so, otherwise 0. Left alone if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_pair_is_empty(
    pair: *const kvffi_pair,
    out_is_empty: *mut i32,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_is_empty, pair) = unsafe { (out(out_is_empty, "out_is_empty")?, handle::borrow(pair, "pair")?) };
        out_is_empty.set(i32::from(pair.plan.is_empty()));
        Ok(())
    })
}

/// As the form of a text: for people.
pub const KVFFI_FORM_TEXT: i32 = 0;
/// As the form of a text: JSON with a "schema" field.
pub const KVFFI_FORM_JSON: i32 = 1;

/// Explains a plan: what a block costs, and for every row that is not one descriptor, why and what would mend it.
///
/// form: KVFFI_FORM_TEXT or KVFFI_FORM_JSON.
/// out_text: the explanation, to be freed with kvffi_text_free; NULL if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_pair_explain(
    pair: *const kvffi_pair,
    form: i32,
    out_text: *mut *mut kvffi_text,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_text, pair) = unsafe { (out_handle(out_text, "out_text")?, handle::borrow(pair, "pair")?) };
        let text = match form {
            KVFFI_FORM_TEXT => pair.plan.explain().to_string(),
            KVFFI_FORM_JSON => serde_json::to_string(&pair.plan.explain())
                .map_err(|error| Failure::new(KVFFI_ERR_JSON, format!("the explanation is not JSON: {error}")))?,
            other => {
                return Err(Failure::invalid(format!("form is {other}, expected KVFFI_FORM_TEXT (0) or _JSON (1)")));
            }
        };
        out_text.set(kvffi_text::new(text));
        Ok(())
    })
}

/// Frees a plan. NULL does nothing.
///
/// Threads: no other call may use this plan, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_pair_free(pair: *mut kvffi_pair) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(pair) }
    })
}
