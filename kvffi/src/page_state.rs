//! Pages of state-space and linear-attention layers: a convolution state and a temporal state for each request.

use kvspec::kinds::{ConvOrder, Element, GatedDeltaNet, Mamba1, Mamba2};

use crate::argument::out_handle;
use crate::boundary::ffi_body;
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::options::{self, Grows};
use crate::page::{element, hand_out, kvffi_page};
use crate::status::kvffi_status;

/// The convolution state keeps the inputs of a channel together. The default.
pub const KVFFI_CONV_CHANNELS_FIRST: i32 = 0;
/// The convolution state keeps, row by row, the channels of all projections.
pub const KVFFI_CONV_ROWS_FIRST: i32 = 1;

/// Of a state: every TP rank has the whole of it.
pub const KVFFI_STATE_REPLICATED: u32 = 1;
/// Of Mamba2: B and C are sharded by whole groups and not by channel.
pub const KVFFI_STATE_WHOLE_GROUPS: u32 = 2;

/// What kinds of state have in common. Starts as KVFFI_STATE_OPTIONS_INIT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct kvffi_state_options {
    /// Size of this struct.
    pub struct_size: usize,
    /// KVFFI_ELEMENT_... of the convolution state; the default is bf16.
    pub conv_element: i32,
    /// KVFFI_ELEMENT_... of the temporal state; the default is f32.
    pub state_element: i32,
    /// KVFFI_CONV_...
    pub conv_order: i32,
    /// Any of KVFFI_STATE_..., or'ed.
    pub flags: u32,
}

// SAFETY: `repr(C)`, 24 bytes without padding, `usize` first, integers only.
unsafe impl Grows for kvffi_state_options {
    const NAME: &'static str = "kvffi_state_options";
    const FIRST_SIZE: usize = 24;
}

struct Options {
    conv: Element,
    state: Element,
    order: ConvOrder,
    replicated: bool,
    whole_groups: bool,
}

/// # Safety
///
/// `options` is as for [`options::read`]; NULL gives the defaults.
unsafe fn read(options: *const kvffi_state_options, known_flags: u32) -> Result<Options, Failure> {
    let defaults = kvffi_state_options {
        struct_size: size_of::<kvffi_state_options>(),
        conv_element: 0,
        state_element: 0,
        conv_order: 0,
        flags: 0,
    };
    // SAFETY: by contract.
    let raw = if options.is_null() { defaults } else { unsafe { options::read(options, "options")? } };
    let unknown = raw.flags & !known_flags;
    if unknown != 0 {
        return Err(Failure::invalid(format!(
            "options->flags has the bits {unknown:#x}, which this kind does not have"
        )));
    }
    Ok(Options {
        conv: element(raw.conv_element, Element::BF16, "options->conv_element")?,
        state: element(raw.state_element, Element::F32, "options->state_element")?,
        order: match raw.conv_order {
            KVFFI_CONV_CHANNELS_FIRST => ConvOrder::ChannelsFirst,
            KVFFI_CONV_ROWS_FIRST => ConvOrder::RowsFirst,
            other => {
                return Err(Failure::invalid(format!(
                    "options->conv_order is {other}, expected a KVFFI_CONV_ (0 or 1)"
                )));
            }
        },
        replicated: raw.flags & KVFFI_STATE_REPLICATED != 0,
        whole_groups: raw.flags & KVFFI_STATE_WHOLE_GROUPS != 0,
    })
}

/// Applies what all kinds of state have in common.
macro_rules! with_options {
    ($kind:expr, $options:expr) => {{
        let kind = $kind.conv_element($options.conv).state_element($options.state).conv_order($options.order);
        if $options.replicated { kind.replicated() } else { kind }
    }};
}

/// Describes Mamba1: the parts "conv.x" and "ssm", sharded by channel.
///
/// intermediate_size: channels of the whole model.
/// state_size: elements of state of a channel.
/// conv_kernel: width of the convolution in tokens, at least 2.
/// options: NULL for the defaults.
/// out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_new_mamba1(
    intermediate_size: u64,
    state_size: u64,
    conv_kernel: u64,
    options: *const kvffi_state_options,
    out_page: *mut *mut kvffi_page,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_page = unsafe { out_handle(out_page, "out_page")? };
        // SAFETY: the crate's contract.
        let options = unsafe { read(options, KVFFI_STATE_REPLICATED)? };
        hand_out(&with_options!(Mamba1::new(intermediate_size, state_size, conv_kernel), options), &out_page)
    })
}

/// Describes Mamba2: the parts "conv.x", "conv.b", "conv.c" and "ssm", sharded by channel and head.
///
/// num_heads, head_size: heads of the whole model and channels of each.
/// num_groups: groups of B and C; with one group they are replicated.
/// state_size: elements of state of a channel.
/// conv_kernel: width of the convolution in tokens, at least 2.
/// options: NULL for the defaults.
/// out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_new_mamba2(
    num_heads: u64,
    head_size: u64,
    num_groups: u64,
    state_size: u64,
    conv_kernel: u64,
    options: *const kvffi_state_options,
    out_page: *mut *mut kvffi_page,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_page = unsafe { out_handle(out_page, "out_page")? };
        // SAFETY: the crate's contract.
        let options = unsafe { read(options, KVFFI_STATE_REPLICATED | KVFFI_STATE_WHOLE_GROUPS)? };
        let kind = Mamba2::new(num_heads, head_size, num_groups, state_size, conv_kernel);
        let kind = if options.whole_groups { kind.whole_groups() } else { kind };
        hand_out(&with_options!(kind, options), &out_page)
    })
}

/// Describes a gated delta net: the parts "conv.q", "conv.k", "conv.v" and "ssm", sharded by channel and head.
///
/// num_key_heads, key_size: query and key heads of the whole model, and elements of each.
/// num_value_heads, value_size: value heads of the whole model, and elements of each.
/// conv_kernel: width of the convolution in tokens, at least 2.
/// options: NULL for the defaults.
/// out_page: the page, to be freed with kvffi_page_free; NULL if the call fails.
///
/// KVFFI_ERR_INVALID_SPEC if the numbers do not make whole bytes or do not fit. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_page_new_gated_delta_net(
    num_key_heads: u64,
    key_size: u64,
    num_value_heads: u64,
    value_size: u64,
    conv_kernel: u64,
    options: *const kvffi_state_options,
    out_page: *mut *mut kvffi_page,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let out_page = unsafe { out_handle(out_page, "out_page")? };
        // SAFETY: the crate's contract.
        let options = unsafe { read(options, KVFFI_STATE_REPLICATED)? };
        let kind = GatedDeltaNet::new(num_key_heads, key_size, num_value_heads, value_size, conv_kernel);
        hand_out(&with_options!(kind, options), &out_page)
    })
}
