//! Pages of attention with keys and values for each KV head, and its quantised forms.

use std::ffi::c_char;

use kvspec::kinds::{Attention, BlockScaled, ChunkedLocal, Element, KvPacking, Nvfp4, SlidingWindow, TokenHeadQuant};

use crate::argument::{optional_name, out_handle};
use crate::boundary::ffi_body;
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::options::{self, Grows};
use crate::page::{
    KVFFI_ELEMENT_DEFAULT, KVFFI_SPAN_CHUNK, KVFFI_SPAN_FULL, KVFFI_SPAN_WINDOW, element, hand_out, kvffi_page,
};
use crate::spec_builder::tokens_per_state;
use crate::status::kvffi_status;

/// K and V lie side by side in the row of one head and token: K V K V ... The default.
pub const KVFFI_PACKING_PACKED: i32 = 0;
/// In each block all of K, then all of V.
pub const KVFFI_PACKING_HALVES: i32 = 1;
/// K and V lie in buffers of their own.
pub const KVFFI_PACKING_APART: i32 = 2;

/// Attention with keys and values for each KV head: MHA, GQA or MQA. Starts as KVFFI_ATTENTION_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_attention {
    /// Size of this struct.
    pub struct_size: usize,
    /// KV heads of the whole model.
    pub num_kv_heads: u64,
    /// Elements of a key.
    pub head_size: u64,
    /// Elements of a value; 0 means head_size.
    pub value_head_size: u64,
    /// KVFFI_ELEMENT_...; the default is bf16.
    pub element: i32,
    /// KVFFI_PACKING_...
    pub packing: i32,
    /// KVFFI_SPAN_...
    pub span: i32,
    /// 0.
    pub flags: u32,
    /// What the bytes mean; ends with a NUL; NULL for the element type's name.
    pub format: *const c_char,
}

// SAFETY: `repr(C)`, 56 bytes without padding, `usize` first, integers and raw pointers only.
unsafe impl Grows for kvffi_attention {
    const NAME: &'static str = "kvffi_attention";
    const FIRST_SIZE: usize = 56;
}

/// # Safety
///
/// `attention` is NULL or as [`options::read`] says.
unsafe fn read(attention: *const kvffi_attention) -> Result<kvffi_attention, Failure> {
    // SAFETY: by contract.
    let mut raw = unsafe { options::read(attention, "attention")? };
    if raw.flags != 0 {
        return Err(Failure::invalid(format!("attention->flags has the unknown bits {:#x}", raw.flags)));
    }
    if raw.value_head_size == 0 {
        raw.value_head_size = raw.head_size;
    }
    Ok(raw)
}

fn packing(value: i32) -> Result<KvPacking, Failure> {
    Ok(match value {
        KVFFI_PACKING_PACKED => KvPacking::Packed,
        KVFFI_PACKING_HALVES => KvPacking::Halves,
        KVFFI_PACKING_APART => KvPacking::Apart,
        other => {
            return Err(Failure::invalid(format!("attention->packing is {other}, expected a KVFFI_PACKING_ (0 to 2)")));
        }
    })
}

/// # Safety
///
/// The format of `raw` is NULL or a text that ends with a NUL.
unsafe fn attention_of(raw: &kvffi_attention) -> Result<Attention, Failure> {
    let attention =
        Attention::new(raw.num_kv_heads, raw.head_size, element(raw.element, Element::BF16, "attention->element")?)
            .value_head_size(raw.value_head_size)
            .packing(packing(raw.packing)?);
    // SAFETY: by contract.
    let format = unsafe { optional_name(raw.format, "attention->format")? };
    Ok(match format {
        Some(format) => attention.format(format),
        None => attention,
    })
}

fn full_span(raw: &kvffi_attention) -> Result<(), Failure> {
    match raw.span {
        KVFFI_SPAN_FULL => Ok(()),
        other => Err(Failure::invalid(format!("attention->span is {other}, expected KVFFI_SPAN_FULL (0) with scales"))),
    }
}

/// Describes attention: the parts "k" and "v", sharded by KV head.
///
/// attention: borrowed for the call.
/// out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_new_attention(
    attention: *const kvffi_attention,
    out_page: *mut *mut kvffi_page,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_page = unsafe { out_handle(out_page, "out_page")? };
        // SAFETY: the crate's contract.
        let raw = unsafe { read(attention)? };
        // SAFETY: the crate's contract.
        let attention = unsafe { attention_of(&raw)? };
        match raw.span {
            KVFFI_SPAN_FULL => hand_out(&attention, &out_page),
            KVFFI_SPAN_WINDOW => hand_out(&SlidingWindow(attention), &out_page),
            KVFFI_SPAN_CHUNK => hand_out(&ChunkedLocal(attention), &out_page),
            other => Err(Failure::invalid(format!("attention->span is {other}, expected a KVFFI_SPAN_ (0 to 2)"))),
        }
    })
}

/// Describes attention with a scale for each token and head inside the row: the parts "k" and "v", sharded by KV head.
///
/// attention: borrowed for the call; its span is KVFFI_SPAN_FULL and its format NULL.
/// scale_bytes: bytes of scale behind each key and each value.
/// out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_new_token_head_quant(
    attention: *const kvffi_attention,
    scale_bytes: u64,
    out_page: *mut *mut kvffi_page,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_page = unsafe { out_handle(out_page, "out_page")? };
        // SAFETY: the crate's contract.
        let raw = unsafe { read(attention)? };
        full_span(&raw)?;
        if !raw.format.is_null() {
            return Err(Failure::invalid("attention->format is set; it follows from element and scale_bytes here"));
        }
        let element = element(raw.element, Element::BF16, "attention->element")?;
        let kind = TokenHeadQuant::new(raw.num_kv_heads, raw.head_size, element, scale_bytes)
            .value_head_size(raw.value_head_size)
            .packing(packing(raw.packing)?);
        hand_out(&kind, &out_page)
    })
}

/// Describes attention whose scales lie in buffers of their own: the parts "k", "v", "k_scale" and "v_scale", sharded by
/// KV head.
///
/// attention: borrowed for the call; its span is KVFFI_SPAN_FULL.
/// scale_element: KVFFI_ELEMENT_...; the default is f32.
/// scales_per_head: scales for each head and state.
/// tokens_per_scale: tokens that share a scale; 0 means 1.
/// out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_new_block_scaled(
    attention: *const kvffi_attention,
    scale_element: i32,
    scales_per_head: u64,
    tokens_per_scale: u64,
    out_page: *mut *mut kvffi_page,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_page = unsafe { out_handle(out_page, "out_page")? };
        // SAFETY: the crate's contract.
        let raw = unsafe { read(attention)? };
        full_span(&raw)?;
        // SAFETY: the crate's contract.
        let attention = unsafe { attention_of(&raw)? };
        let scale = element(scale_element, Element::F32, "scale_element")?;
        let kind =
            BlockScaled::new(attention, scale, scales_per_head).tokens_per_scale(tokens_per_state(tokens_per_scale, 1));
        hand_out(&kind, &out_page)
    })
}

/// Describes NVFP4 attention: the parts "k", "k_scale", "v" and "v_scale", each for all heads before the next.
///
/// attention: borrowed for the call; of it num_kv_heads, head_size and value_head_size count, the rest is default.
/// out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC if a head is not a whole number of scale blocks. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_new_nvfp4(
    attention: *const kvffi_attention,
    out_page: *mut *mut kvffi_page,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_page = unsafe { out_handle(out_page, "out_page")? };
        // SAFETY: the crate's contract.
        let raw = unsafe { read(attention)? };
        full_span(&raw)?;
        let default = raw.element == KVFFI_ELEMENT_DEFAULT && raw.packing == KVFFI_PACKING_PACKED;
        if !default || !raw.format.is_null() {
            return Err(Failure::invalid("attention has an element, packing or format; NVFP4 has its own"));
        }
        let kind = Nvfp4::new(raw.num_kv_heads, raw.head_size).value_head_size(raw.value_head_size);
        hand_out(&kind, &out_page)
    })
}
