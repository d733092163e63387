//! Calls that make specs: builders, pages, arrangements, tensors, JSON.

use std::ffi::CStr;

use arbitrary::Result;
use kvffi::*;

use super::Operation;
use super::machine::{Kind, Machine};

/// A spec of one layer, 8 blocks of 32 bytes.
pub const SPEC: &str = r#"{"version": 1, "fingerprint": {"model": "org/model"},
    "storages": [{"base": 4096, "len": 512, "mem": "dram"}],
    "groups": [{"pool": 0, "block_tokens": 4, "num_blocks": 8}],
    "layers": [{"name": "layers.0", "group": 0, "kind": "mla", "parts": [{"name": "latent", "storage": 0, "offset": 0,
      "block_stride": 64, "sharding": "replicated", "units": {"count": 1, "stride": 32},
      "tokens": [{"count": 4, "stride": 8}], "content": 8}]}]}"#;

/// What this file makes; what is here twice is made twice as often.
pub const OPERATIONS: &[Operation] = &[
    |m| m.free(),
    spec_from_json,
    spec_to_json,
    builder_new,
    builder_add_storage,
    builder_add_group,
    builder_add_layer,
    builder_add_part,
    builder_add_part,
    builder_build,
    page_rows,
    page_opaque,
    page_ring,
    page_attention,
    page_attention,
    page_state,
    arrangement_new,
    arrangement_add_pool,
    arrangement_add_group,
    arrangement_add_layer,
    arrangement_add_layer,
    arrangement_lens,
    arrangement_build,
    arrangement_build,
    arrange_at_once,
    arrange_at_once,
    tensors_new,
    tensors_add_storage,
    tensors_add_group,
    tensors_add_layer,
    tensors_add_tensor,
    tensors_build,
];

/// Names a function and calls it with an error place.
macro_rules! call {
    ($machine:ident, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the machine's arguments keep to what cannot be checked.
        $machine.call(stringify!($function), |error| unsafe { $function($($argument,)* error) })
    };
}
pub(super) use call;

/// Names a function and calls it with a place for its object and an error place.
macro_rules! make {
    ($machine:ident, $kind:ident, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the machine's arguments keep to what cannot be checked.
        $machine.make(stringify!($function), Kind::$kind, |made, error| unsafe { $function($($argument,)* made, error) })
    };
}
pub(super) use make;

fn spec_from_json(m: &mut Machine<'_>) -> Result<()> {
    let (json, len) = m.sized_text(&[SPEC])?;
    make!(m, Spec, kvffi_spec_from_json(json, len))
}

fn spec_to_json(m: &mut Machine<'_>) -> Result<()> {
    let spec = m.handle(Kind::Spec)?;
    make!(m, Text, kvffi_spec_to_json(spec))
}

fn builder_new(m: &mut Machine<'_>) -> Result<()> {
    let worker = m.worker()?;
    make!(m, SpecBuilder, kvffi_spec_builder_new(worker))
}

/// A place for an index that the caller may not want.
fn index(m: &mut Machine<'_>) -> Result<*mut u32> {
    if m.bytes.arbitrary()? { Ok(std::ptr::null_mut()) } else { Ok(m.memory(&[0]).cast()) }
}

fn builder_add_storage(m: &mut Machine<'_>) -> Result<()> {
    let (builder, storage, out) = (m.handle(Kind::SpecBuilder)?, m.storage()?, index(m)?);
    call!(m, kvffi_spec_builder_add_storage(builder, storage, out)).map(drop)
}

fn builder_add_group(m: &mut Machine<'_>) -> Result<()> {
    let (builder, group, out) = (m.handle(Kind::SpecBuilder)?, m.group()?, index(m)?);
    call!(m, kvffi_spec_builder_add_group(builder, group, out)).map(drop)
}

fn builder_add_layer(m: &mut Machine<'_>) -> Result<()> {
    let builder = m.handle(Kind::SpecBuilder)?;
    let layer = kvffi_layer {
        struct_size: 0,
        name: m.name()?,
        group: m.number32(&[0, 0, 1])?,
        kind: m.enumerated(0, 8)?,
        role: m.enumerated(0, 3)?,
        flags: m.flags(KVFFI_LAYER_STAYS)?,
    };
    let (layer, out) = (m.sized(layer)?, index(m)?);
    call!(m, kvffi_spec_builder_add_layer(builder, layer, out)).map(drop)
}

fn builder_add_part(m: &mut Machine<'_>) -> Result<()> {
    let builder = m.handle(Kind::SpecBuilder)?;
    let axes = [
        kvffi_axis { count: m.number(&[4, 16])?, stride: m.number(&[8, 128])? },
        kvffi_axis { count: m.number(&[1, 4])?, stride: m.number(&[8, 32])? },
    ];
    let (tokens, num_tokens) = if m.bytes.arbitrary()? { m.array(&axes)? } else { m.array(&axes[..1])? };
    let sharding = m.enumerated(0, 2)?;
    let units = u64::from(sharding != 0);
    let part = kvffi_part {
        struct_size: 0,
        name: m.name()?,
        format: m.format()?,
        storage: m.number32(&[0])?,
        sharding,
        offset: m.number(&[0, 512, 1024])?,
        block_stride: m.number(&[2048, 4096])?,
        total_units: m.number(&[4 * units])?,
        first_unit: m.number(&[0])?,
        num_units: m.number(&[units, 2 * units, 4 * units])?,
        unit_stride: m.number(&[512, 64])?,
        tokens,
        num_tokens,
        content: m.number(&[8, 32])?,
        tokens_per_state_num: m.number(&[0, 1, 1, 4])?,
        tokens_per_state_den: m.number(&[0, 1])?,
    };
    let (layer, part) = (m.number32(&[0, 0, 1])?, m.sized(part)?);
    call!(m, kvffi_spec_builder_add_part(builder, layer, part)).map(drop)
}

fn builder_build(m: &mut Machine<'_>) -> Result<()> {
    let builder = m.handle(Kind::SpecBuilder)?;
    make!(m, Spec, kvffi_spec_builder_build(builder))
}

fn page_rows(m: &mut Machine<'_>) -> Result<()> {
    let preset = m.enumerated(0, 2)?;
    let own = preset == KVFFI_ROWS_OWN;
    let rows = kvffi_rows {
        struct_size: 0,
        preset,
        span: m.enumerated(0, 1)?,
        row_bytes: m.number(&[if own { 64 } else { 0 }])?,
        format: if own { m.format()? } else { std::ptr::null() },
        tokens_per_state_num: m.number(&[0, 1, 4])?,
        tokens_per_state_den: m.number(&[0, 1])?,
        page_align: m.number(&[0, 1, 512])?,
    };
    let rows = m.sized(rows)?;
    if m.bytes.arbitrary()? {
        make!(m, Page, kvffi_page_new_mla(rows))
    } else {
        make!(m, Page, kvffi_page_new_indexer(rows))
    }
}

fn page_opaque(m: &mut Machine<'_>) -> Result<()> {
    let (bytes, format, usage) = (m.number(&[1, 7, 64])?, m.format()?, m.enumerated(0, 1)?);
    make!(m, Page, kvffi_page_new_opaque(bytes, format, usage))
}

fn page_ring(m: &mut Machine<'_>) -> Result<()> {
    let (capacity, row, format) = (m.number(&[16, 32])?, m.number(&[64])?, m.text_of(&[c"bf16"])?);
    let (heads, sharding) = (m.number(&[0, 1, 4])?, m.enumerated(0, 1)?);
    make!(m, Page, kvffi_page_new_ring(capacity, row, format, heads, sharding))
}

fn attention(m: &mut Machine<'_>) -> Result<kvffi_attention> {
    Ok(kvffi_attention {
        struct_size: 0,
        num_kv_heads: m.number(&[1, 4, 8])?,
        head_size: m.number(&[32, 64])?,
        value_head_size: m.number(&[0, 0, 32])?,
        element: m.enumerated(0, 8)?,
        packing: m.enumerated(0, 2)?,
        span: KVFFI_SPAN_FULL,
        flags: m.number32(&[0])?,
        format: std::ptr::null(),
    })
}

fn page_attention(m: &mut Machine<'_>) -> Result<()> {
    let mut attention = attention(m)?;
    match m.bytes.int_in_range(0..=5u8)? {
        0 => {
            let (attention, scale) = (m.sized(attention)?, m.number(&[2, 4])?);
            make!(m, Page, kvffi_page_new_token_head_quant(attention, scale))
        }
        1 => {
            let (attention, element) = (m.sized(attention)?, m.enumerated(0, 8)?);
            let (scales, tokens) = (m.number(&[1, 2])?, m.number(&[0, 1, 16])?);
            make!(m, Page, kvffi_page_new_block_scaled(attention, element, scales, tokens))
        }
        2 => {
            (attention.element, attention.packing) = (0, 0);
            let attention = m.sized(attention)?;
            make!(m, Page, kvffi_page_new_nvfp4(attention))
        }
        _ => {
            attention.span = m.enumerated(0, 2)?;
            attention.format = m.format()?;
            let attention = m.sized(attention)?;
            make!(m, Page, kvffi_page_new_attention(attention))
        }
    }
}

fn page_state(m: &mut Machine<'_>) -> Result<()> {
    let options = kvffi_state_options {
        struct_size: 0,
        conv_element: m.enumerated(0, 3)?,
        state_element: m.enumerated(0, 3)?,
        conv_order: m.enumerated(0, 1)?,
        flags: m.flags(KVFFI_STATE_REPLICATED)?,
    };
    let options = if m.bytes.arbitrary()? { std::ptr::null() } else { m.sized(options)? };
    let (heads, size, groups) = (m.number(&[4, 8])?, m.number(&[16, 32])?, m.number(&[1, 4])?);
    let (state, kernel) = (m.number(&[16])?, m.number(&[4])?);
    match m.bytes.int_in_range(0..=2u8)? {
        0 => make!(m, Page, kvffi_page_new_mamba1(heads, state, kernel, options)),
        1 => make!(m, Page, kvffi_page_new_mamba2(heads, size, groups, state, kernel, options)),
        _ => make!(m, Page, kvffi_page_new_gated_delta_net(heads, size, heads, size, kernel, options)),
    }
}

fn arrangement_new(m: &mut Machine<'_>) -> Result<()> {
    let worker = m.worker()?;
    make!(m, Arrangement, kvffi_arrangement_new(worker))
}

fn arrangement_add_pool(m: &mut Machine<'_>) -> Result<()> {
    let arrangement = m.handle(Kind::Arrangement)?;
    let pool = kvffi_pool {
        struct_size: 0,
        layout: m.enumerated(1, 6)?,
        mem: m.enumerated(0, 1)?,
        device: m.number32(&[0])?,
        flags: m.flags(KVFFI_STORAGE_SHARED)?,
        num_blocks: m.number(&[8, 16])?,
        row_align: m.number(&[0, 1, 256])?,
        page_align: m.number(&[0, 1, 64])?,
    };
    let pool = m.sized(pool)?;
    call!(m, kvffi_arrangement_add_pool(arrangement, pool)).map(drop)
}

fn arrangement_add_group(m: &mut Machine<'_>) -> Result<()> {
    let arrangement = m.handle(Kind::Arrangement)?;
    let usage = if m.bytes.int_in_range(0..=3u8)? == 0 { m.enumerated(0, 1)? } else { 0 };
    let blocks = kvffi_blocks {
        struct_size: 0,
        block_tokens: m.number(&[16, 16, 64])?,
        kernel_tokens: m.number(&[0, 0, 4])?,
        usage,
        reserved: m.number32(&[0])?,
    };
    let (blocks, out) = (m.sized(blocks)?, index(m)?);
    call!(m, kvffi_arrangement_add_group(arrangement, blocks, out)).map(drop)
}

fn page_layer(m: &mut Machine<'_>) -> Result<*const kvffi_page_layer> {
    let layer = kvffi_page_layer {
        struct_size: 0,
        name: m.name()?,
        page: m.handle(Kind::Page)?,
        group: m.number32(&[0, 0, 0, 1])?,
        role: m.enumerated(0, 3)?,
        flags: m.flags(KVFFI_LAYER_STAYS)?,
        reserved: m.number32(&[0])?,
    };
    m.sized(layer)
}

fn arrangement_add_layer(m: &mut Machine<'_>) -> Result<()> {
    let (arrangement, layer) = (m.handle(Kind::Arrangement)?, page_layer(m)?);
    call!(m, kvffi_arrangement_add_layer(arrangement, layer)).map(drop)
}

fn arrangement_lens(m: &mut Machine<'_>) -> Result<()> {
    let arrangement = m.handle::<kvffi_arrangement>(Kind::Arrangement)?;
    m.list("kvffi_arrangement_get_storage_lens", |lens, capacity, len, error| {
        // SAFETY: the machine's arguments keep to what cannot be checked.
        unsafe { kvffi_arrangement_get_storage_lens(arrangement, lens, capacity, len, error) }
    })
}

fn arrangement_build(m: &mut Machine<'_>) -> Result<()> {
    let arrangement = m.handle(Kind::Arrangement)?;
    let bases = [m.number(&[0x10_0000])?, m.number(&[0x4000_0000])?];
    let (bases, num_bases) = if m.bytes.arbitrary()? { m.array(&bases[..1])? } else { m.array(&bases)? };
    make!(m, Spec, kvffi_arrangement_build(arrangement, bases, num_bases))
}

/// All steps in order, so that there is often a spec.
fn arrange_at_once(m: &mut Machine<'_>) -> Result<()> {
    page_attention(m)?;
    page_rows(m)?;
    arrangement_new(m)?;
    arrangement_add_pool(m)?;
    arrangement_add_group(m)?;
    for _ in 0..m.bytes.int_in_range(1..=3u8)? {
        arrangement_add_layer(m)?;
    }
    arrangement_lens(m)?;
    arrangement_build(m)
}

fn tensors_new(m: &mut Machine<'_>) -> Result<()> {
    let worker = m.worker()?;
    make!(m, Tensors, kvffi_tensors_new(worker))
}

fn tensors_add_storage(m: &mut Machine<'_>) -> Result<()> {
    let (tensors, storage) = (m.handle(Kind::Tensors)?, m.storage()?);
    call!(m, kvffi_tensors_add_storage(tensors, storage)).map(drop)
}

fn tensors_add_group(m: &mut Machine<'_>) -> Result<()> {
    let (tensors, group, out) = (m.handle(Kind::Tensors)?, m.group()?, index(m)?);
    call!(m, kvffi_tensors_add_group(tensors, group, out)).map(drop)
}

fn tensors_add_layer(m: &mut Machine<'_>) -> Result<()> {
    let (tensors, layer, out) = (m.handle(Kind::Tensors)?, page_layer(m)?, index(m)?);
    call!(m, kvffi_tensors_add_layer(tensors, layer, out)).map(drop)
}

fn tensors_add_tensor(m: &mut Machine<'_>) -> Result<()> {
    const AXES: [&CStr; 5] = [c"BNC", c"BHNC", c"BNHC", c"2BNHC", c"B1N"];
    let tensors = m.handle(Kind::Tensors)?;
    let axes = m.text_of(&AXES)?;
    let num_axes = m.bytes.int_in_range(3..=5usize)?;
    let (mut shape, mut strides) = ([0; 5], [0; 5]);
    let mut stride: i64 = 2;
    for i in (0..num_axes).rev() {
        shape[i] = m.number(&[4, 8, 16])?;
        strides[i] = if m.is_wrong()? { m.bytes.arbitrary()? } else { stride };
        stride = stride.wrapping_mul(shape[i].cast_signed());
    }
    let names = [m.name()?, m.name()?];
    let (parts, num_parts) = if m.bytes.arbitrary()? { (std::ptr::null(), 0) } else { m.array(&names)? };
    // The arrays have 5 each.
    let (shape, counted) = m.array(&shape)?;
    let (strides, _) = m.array(&strides)?;
    let num_axes = if counted == 5 { num_axes } else { counted };
    let tensor = kvffi_tensor {
        struct_size: 0,
        ptr: m.number(&[0x10_0000, 0x20_0000])?,
        shape,
        strides,
        num_axes,
        axes,
        element_size: m.number(&[2])?,
        parts,
        num_parts,
        mem: m.enumerated(0, 1)?,
        device: m.number32(&[0])?,
        flags: m.flags(KVFFI_TENSOR_SIDE_BY_SIDE)?,
        reserved: m.number32(&[0])?,
    };
    let (layer, tensor) = (m.number32(&[0, 0, 1])?, m.sized(tensor)?);
    call!(m, kvffi_tensors_add_tensor(tensors, layer, tensor)).map(drop)
}

fn tensors_build(m: &mut Machine<'_>) -> Result<()> {
    let tensors = m.handle(Kind::Tensors)?;
    make!(m, Spec, kvffi_tensors_build(tensors))
}
