//! `kvffi_page`: what a layer's page holds, by kind and independent of where it lies.

use std::ffi::c_char;

use kvspec::Usage;
use kvspec::kinds::{Describe, Element, Indexer, Mla, Opaque, Page, Ring, SlidingWindowMla};

use crate::argument::{Out, name, optional_name, out_handle};
use crate::boundary::{ffi_body, ffi_value};
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::handle::{self, Class, Kind};
use crate::options::{self, Grows};
use crate::spec_builder::{KVFFI_SHARDING_REPLICATED, KVFFI_SHARDING_STANDARD, tokens_per_state};
use crate::status::kvffi_status;
use crate::worker::{reserved, usage};

/// Element type: what is usual for the place.
pub const KVFFI_ELEMENT_DEFAULT: i32 = 0;
/// Element type: 32-bit float.
pub const KVFFI_ELEMENT_F32: i32 = 1;
/// Element type: 16-bit float.
pub const KVFFI_ELEMENT_F16: i32 = 2;
/// Element type: bfloat16.
pub const KVFFI_ELEMENT_BF16: i32 = 3;
/// Element type: 8-bit float with 4 bits of exponent.
pub const KVFFI_ELEMENT_FP8_E4M3: i32 = 4;
/// Element type: 8-bit float with 5 bits of exponent.
pub const KVFFI_ELEMENT_FP8_E5M2: i32 = 5;
/// Element type: 8-bit integer.
pub const KVFFI_ELEMENT_INT8: i32 = 6;
/// Element type: 4-bit integer.
pub const KVFFI_ELEMENT_INT4: i32 = 7;
/// Element type: 4-bit float.
pub const KVFFI_ELEMENT_FP4_E2M1: i32 = 8;

/// Attention over the whole sequence. The default.
pub const KVFFI_SPAN_FULL: i32 = 0;
/// Attention over a window of the latest tokens.
pub const KVFFI_SPAN_WINDOW: i32 = 1;
/// Attention within chunks of the sequence.
pub const KVFFI_SPAN_CHUNK: i32 = 2;

/// Rows as row_bytes and format say. The default.
pub const KVFFI_ROWS_OWN: i32 = 0;
/// Rows of 576 elements of bf16, 1152 bytes; for MLA.
pub const KVFFI_ROWS_BF16: i32 = 1;
/// Rows of fp8 with their scales: 656 bytes for MLA, 132 for an indexer.
pub const KVFFI_ROWS_FP8: i32 = 2;

/// What a layer's page holds: its parts, how they are sharded and how large a cell is, but not where it lies. Immutable.
///
/// Freed with kvffi_page_free, at any time: what was made from a page keeps what it needs.
#[derive(Debug)]
pub struct kvffi_page {
    _opaque: [u8; 0],
}

impl Class for kvffi_page {
    type Inner = Page;
    const KIND: Kind = Kind::PAGE;
}

/// Rows of bytes, one for each state, the same on every TP rank. Starts as KVFFI_ROWS_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_rows {
    /// Size of this struct.
    pub struct_size: usize,
    /// KVFFI_ROWS_OWN, KVFFI_ROWS_BF16 or KVFFI_ROWS_FP8.
    pub preset: i32,
    /// KVFFI_SPAN_FULL or, for MLA, KVFFI_SPAN_WINDOW.
    pub span: i32,
    /// Bytes of a row, for KVFFI_ROWS_OWN; otherwise 0.
    pub row_bytes: u64,
    /// What the bytes mean, for KVFFI_ROWS_OWN; otherwise NULL. Ends with a NUL.
    pub format: *const c_char,
    /// Tokens that one row stands for, as a fraction: numerator; 0 means 1.
    pub tokens_per_state_num: u64,
    /// Its denominator; 0 means 1.
    pub tokens_per_state_den: u64,
    /// Pages are padded to a multiple of so many bytes; 0 means 1.
    pub page_align: u64,
}

// SAFETY: `repr(C)`, 56 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_rows {
    const NAME: &'static str = "kvffi_rows";
    const FIRST_SIZE: usize = 56;
}

/// The element type that a number from C stands for.
pub(crate) fn element(value: i32, default: Element, argument: &str) -> Result<Element, Failure> {
    Ok(match value {
        KVFFI_ELEMENT_DEFAULT => default,
        KVFFI_ELEMENT_F32 => Element::F32,
        KVFFI_ELEMENT_F16 => Element::F16,
        KVFFI_ELEMENT_BF16 => Element::BF16,
        KVFFI_ELEMENT_FP8_E4M3 => Element::FP8_E4M3,
        KVFFI_ELEMENT_FP8_E5M2 => Element::FP8_E5M2,
        KVFFI_ELEMENT_INT8 => Element::INT8,
        KVFFI_ELEMENT_INT4 => Element::INT4,
        KVFFI_ELEMENT_FP4_E2M1 => Element::FP4_E2M1,
        other => return Err(Failure::invalid(format!("{argument} is {other}, expected a KVFFI_ELEMENT_ (0 to 8)"))),
    })
}

/// Hands out the page of a kind.
pub(crate) fn hand_out(kind: &impl Describe, out_page: &Out<'_, *mut kvffi_page>) -> Result<(), Failure> {
    out_page.set(handle::into_handle(kind.describe()?));
    Ok(())
}

/// Rows from C: preset, and bytes and format if they are the caller's own.
struct Rows<'a> {
    raw: kvffi_rows,
    own: Option<(u64, &'a str)>,
}

/// # Safety
///
/// `rows` is NULL or as [`options::read`] and its fields say.
unsafe fn read_rows<'a>(rows: *const kvffi_rows) -> Result<Rows<'a>, Failure> {
    // SAFETY: by contract.
    let raw = unsafe { options::read(rows, "rows")? };
    // SAFETY: by contract.
    let format = unsafe { optional_name(raw.format, "rows->format")? };
    let own = match raw.preset {
        KVFFI_ROWS_OWN => Some((raw.row_bytes, format.unwrap_or_default())),
        KVFFI_ROWS_BF16 | KVFFI_ROWS_FP8 if raw.row_bytes != 0 || format.is_some() => {
            return Err(Failure::invalid(format!(
                "rows->preset {} has its own row_bytes and format; leave them 0 and NULL",
                raw.preset
            )));
        }
        KVFFI_ROWS_BF16 | KVFFI_ROWS_FP8 => None,
        other => return Err(Failure::invalid(format!("rows->preset is {other}, expected a KVFFI_ROWS_ (0 to 2)"))),
    };
    Ok(Rows { raw, own })
}

/// Describes multi-head latent attention: the part "latent", replicated.
///
/// rows: borrowed for the call.
/// out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_new_mla(
    rows: *const kvffi_rows,
    out_page: *mut *mut kvffi_page,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_page = unsafe { out_handle(out_page, "out_page")? };
        // SAFETY: the crate's contract.
        let rows = unsafe { read_rows(rows)? };
        let mla = match rows.own {
            Some((row_bytes, format)) => Mla::opaque(row_bytes, format),
            None if rows.raw.preset == KVFFI_ROWS_BF16 => Mla::bf16(),
            None => Mla::fp8(),
        };
        let mla = mla
            .tokens_per_state(tokens_per_state(rows.raw.tokens_per_state_num, rows.raw.tokens_per_state_den))
            .page_align(rows.raw.page_align.max(1));
        match rows.raw.span {
            KVFFI_SPAN_FULL => hand_out(&mla, &out_page),
            KVFFI_SPAN_WINDOW => hand_out(&SlidingWindowMla(mla), &out_page),
            other => {
                Err(Failure::invalid(format!("rows->span is {other}, expected KVFFI_SPAN_FULL (0) or _WINDOW (1)")))
            }
        }
    })
}

/// Describes the index cache of a sparse-attention layer: the part "index", replicated.
///
/// rows: borrowed for the call.
/// out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_new_indexer(
    rows: *const kvffi_rows,
    out_page: *mut *mut kvffi_page,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_page = unsafe { out_handle(out_page, "out_page")? };
        // SAFETY: the crate's contract.
        let rows = unsafe { read_rows(rows)? };
        let indexer = match rows.own {
            Some((row_bytes, format)) => Indexer::new(row_bytes, format),
            None if rows.raw.preset == KVFFI_ROWS_FP8 => Indexer::fp8(),
            None => return Err(Failure::invalid("rows->preset is KVFFI_ROWS_BF16, which an indexer does not have")),
        };
        if rows.raw.span != KVFFI_SPAN_FULL {
            return Err(Failure::invalid(format!("rows->span is {}, expected KVFFI_SPAN_FULL (0)", rows.raw.span)));
        }
        let indexer = indexer
            .tokens_per_state(tokens_per_state(rows.raw.tokens_per_state_num, rows.raw.tokens_per_state_den))
            .page_align(rows.raw.page_align.max(1));
        hand_out(&indexer, &out_page)
    })
}

/// Describes bytes that the library does not interpret: the part "aux", replicated.
///
/// bytes: bytes for a token or for a request.
/// format: what they mean; ends with a NUL; NULL for none.
/// block_usage: KVFFI_USAGE_TOKENS for bytes of each token, KVFFI_USAGE_STATE for bytes of each request.
/// out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_new_opaque(
    bytes: u64,
    format: *const c_char,
    block_usage: i32,
    out_page: *mut *mut kvffi_page,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_page, format) =
            unsafe { (out_handle(out_page, "out_page")?, optional_name(format, "format")?.unwrap_or_default()) };
        let opaque = match usage(block_usage, "block_usage")? {
            Usage::Tokens => Opaque::per_token(bytes, format),
            Usage::State => Opaque::per_request(bytes, format),
        };
        hand_out(&opaque, &out_page)
    })
}

/// Describes a circular buffer of each request: the part "ring".
///
/// capacity_tokens: rows of the ring.
/// row_bytes: bytes of one head's row.
/// format: what they mean; ends with a NUL.
/// num_heads: heads of the whole model; 0 means 1.
/// sharding: of the heads, KVFFI_SHARDING_REPLICATED or KVFFI_SHARDING_STANDARD.
/// out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_new_ring(
    capacity_tokens: u64,
    row_bytes: u64,
    format: *const c_char,
    num_heads: u64,
    sharding: i32,
    out_page: *mut *mut kvffi_page,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_page, format) = unsafe { (out_handle(out_page, "out_page")?, name(format, "format")?) };
        let ring = Ring::new(capacity_tokens, row_bytes, format);
        let ring = match sharding {
            KVFFI_SHARDING_REPLICATED => ring.heads(num_heads.max(1)),
            KVFFI_SHARDING_STANDARD => ring.sharded_heads(num_heads.max(1)),
            other => {
                return Err(Failure::invalid(format!(
                    "sharding is {other}, expected KVFFI_SHARDING_REPLICATED (0) or KVFFI_SHARDING_STANDARD (1)"
                )));
            }
        };
        hand_out(&ring, &out_page)
    })
}

/// Frees a page. NULL does nothing.
///
/// Threads: no other call may use this page, then or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_free(page: *mut kvffi_page) {
    ffi_value!((), {
        // SAFETY: the crate's contract.
        unsafe { handle::free(page) }
    })
}

/// A layer whose parts are those of a page. Starts as KVFFI_PAGE_LAYER_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_page_layer {
    /// Size of this struct.
    pub struct_size: usize,
    /// Name, unique in the spec: layers of two workers meet by it. Ends with a NUL.
    pub name: *const c_char,
    /// What its page holds; borrowed for the call.
    pub page: *const kvffi_page,
    /// The group whose block table addresses the layer.
    pub group: u32,
    /// KVFFI_ROLE_...
    pub role: i32,
    /// Any of KVFFI_LAYER_STAYS, or'ed.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, 40 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_page_layer {
    const NAME: &'static str = "kvffi_page_layer";
    const FIRST_SIZE: usize = 40;
}

/// What [`kvffi_page_layer`] says.
pub(crate) struct PageLayer<'a> {
    pub(crate) name: &'a str,
    pub(crate) page: Page,
    pub(crate) group: u32,
    pub(crate) role: kvspec::Role,
    pub(crate) transfer: bool,
}

/// # Safety
///
/// `layer` is NULL or as [`options::read`] and its fields say.
pub(crate) unsafe fn read_page_layer<'a>(layer: *const kvffi_page_layer) -> Result<PageLayer<'a>, Failure> {
    // SAFETY: by contract.
    let layer = unsafe { options::read(layer, "layer")? };
    reserved(layer.reserved, "layer->reserved")?;
    // SAFETY: by contract.
    let (name, page) = unsafe { (name(layer.name, "layer->name")?, handle::borrow(layer.page, "layer->page")?) };
    Ok(PageLayer {
        name,
        page: page.clone(),
        group: layer.group,
        role: crate::spec_builder::layer_role(layer.role)?,
        transfer: crate::spec_builder::layer_transfer(layer.flags)?,
    })
}
