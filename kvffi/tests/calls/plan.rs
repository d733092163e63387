//! Calls that make plans and answers, and those that only look at things.

use std::ffi::CStr;

use arbitrary::Result;
use kvffi::*;

use super::Operation;
use super::describe::{call, make};
use super::machine::{Kind, Machine};

/// What this file makes; what is here twice is made twice as often.
pub const OPERATIONS: &[Operation] = &[
    look,
    abi_check,
    local_plan_new,
    local_plan_lists,
    shares,
    count_readers,
    pair_new,
    pair_new,
    pair_new,
    pair_look,
    answer_new,
    pair_answer,
    pair_answer,
    pair_answer,
    pair_answer_json,
    answer_look,
    answer_look,
    pair_verify,
];

/// Calls that answer something to every argument.
fn look(m: &mut Machine<'_>) -> Result<()> {
    let (error, text) = (m.handle::<kvffi_error>(Kind::Error)?, m.handle::<kvffi_text>(Kind::Text)?);
    let (status, index) = (m.bytes.arbitrary()?, m.bytes.arbitrary()?);
    // SAFETY: the machine's handles are alive, NULL, or readable memory.
    unsafe {
        assert!(CStr::from_ptr(kvffi_error_message(error)).to_str().is_ok());
        assert!(kvffi_error_status(error) < 0);
        assert!(kvffi_error_finding(error, index).is_null() || index < kvffi_error_num_findings(error));
        assert_eq!(CStr::from_ptr(kvffi_text_data(text)).count_bytes(), kvffi_text_len(text));
        assert!(!CStr::from_ptr(kvffi_status_name(status)).is_empty());
        assert!(!CStr::from_ptr(kvffi_event_name(status)).is_empty());
        assert!(!CStr::from_ptr(kvffi_version_text()).is_empty());
    }
    assert_eq!(kvffi_version(), KVFFI_VERSION);
    for name in [
        "kvffi_error_message",
        "kvffi_error_status",
        "kvffi_error_finding",
        "kvffi_error_num_findings",
        "kvffi_text_data",
        "kvffi_text_len",
        "kvffi_status_name",
        "kvffi_event_name",
        "kvffi_version_text",
        "kvffi_version",
    ] {
        m.called(name);
    }
    Ok(())
}

fn abi_check(m: &mut Machine<'_>) -> Result<()> {
    let version = m.number32(&[KVFFI_VERSION, KVFFI_VERSION + 1])?;
    call!(m, kvffi_abi_check(version)).map(drop)
}

fn local_plan_new(m: &mut Machine<'_>) -> Result<()> {
    let (spec, flags) = (m.handle(Kind::Spec)?, m.flags(KVFFI_LOCAL_PLAN_REQUIRE_WHOLE_ROWS)?);
    make!(m, LocalPlan, kvffi_local_plan_new(spec, flags))
}

fn local_plan_lists(m: &mut Machine<'_>) -> Result<()> {
    let plan = m.handle::<kvffi_local_plan>(Kind::LocalPlan)?;
    let region = usize::try_from(m.number(&[0, 1])?).unwrap_or(usize::MAX);
    // SAFETY: the machine's arguments keep to what cannot be checked.
    unsafe {
        m.list("kvffi_local_plan_get_memory_ranges", |array, capacity, len, error| {
            kvffi_local_plan_get_memory_ranges(plan, array, capacity, len, error)
        })?;
        m.list("kvffi_local_plan_get_regions", |array, capacity, len, error| {
            kvffi_local_plan_get_regions(plan, array, capacity, len, error)
        })?;
        m.list("kvffi_local_plan_get_members", |array, capacity, len, error| {
            kvffi_local_plan_get_members(plan, region, array, capacity, len, error)
        })
    }
}

fn shares(m: &mut Machine<'_>) -> Result<()> {
    let (local, remote) = (m.handle::<kvffi_spec>(Kind::Spec)?, m.handle::<kvffi_spec>(Kind::Spec)?);
    let layer = m.name()?;
    // SAFETY: the machine's arguments keep to what cannot be checked.
    unsafe {
        m.list("kvffi_spec_get_sources", |array, capacity, len, error| {
            kvffi_spec_get_sources(local, remote, layer, array, capacity, len, error)
        })?;
        m.list("kvffi_spec_get_targets", |array, capacity, len, error| {
            kvffi_spec_get_targets(local, remote, layer, array, capacity, len, error)
        })
    }
}

fn count_readers(m: &mut Machine<'_>) -> Result<()> {
    let source = m.handle::<kvffi_spec>(Kind::Spec)?;
    let stages = [m.handle::<kvffi_spec>(Kind::Spec)?.cast_const(), m.handle::<kvffi_spec>(Kind::Spec)?.cast_const()];
    let ((stages, num_stages), out) = (m.array(&stages)?, m.memory(&[0]).cast());
    call!(m, kvffi_spec_count_readers(source, stages, num_stages, out)).map(drop)
}

fn pair_new(m: &mut Machine<'_>) -> Result<()> {
    let local = m.handle::<kvffi_spec>(Kind::Spec)?;
    // Most specs fit to nothing but themselves.
    let remote = if m.bytes.arbitrary()? { local } else { m.handle(Kind::Spec)? };
    let options = kvffi_pair_options {
        struct_size: 0,
        op: m.enumerated(0, 1)?,
        flags: m.flags(KVFFI_PAIR_REQUIRE_WHOLE_ROWS)?,
        max_gap: m.number(&[0, 64, KVFFI_GAP_ANY])?,
        min_run: m.number(&[0, 0, 0, 256])?,
    };
    let options = if m.bytes.arbitrary()? { std::ptr::null() } else { m.sized(options)? };
    make!(m, Pair, kvffi_pair_new(local, remote, options))
}

fn pair_look(m: &mut Machine<'_>) -> Result<()> {
    let pair = m.handle::<kvffi_pair>(Kind::Pair)?;
    let out = if m.is_wrong()? { std::ptr::null_mut() } else { m.memory(&[0]).cast() };
    call!(m, kvffi_pair_is_empty(pair, out))?;
    let form = m.enumerated(0, 1)?;
    make!(m, Text, kvffi_pair_explain(pair, form))
}

fn answer_new(m: &mut Machine<'_>) -> Result<()> {
    make!(m, Answer, kvffi_answer_new())
}

/// Lists of blocks of one side.
pub(super) fn lists(m: &mut Machine<'_>) -> Result<(*const kvffi_block_list, usize)> {
    let mut lists = Vec::new();
    for group in 0..m.bytes.int_in_range(0..=2u32)? {
        let first = m.bytes.int_in_range(0..=5u32)?;
        let blocks = [m.number32(&[first])?, m.number32(&[first + 1, 7])?, m.number32(&[first + 2])?];
        let (blocks, num_blocks) = m.array(&blocks)?;
        lists.push(kvffi_block_list {
            group: m.number32(&[group])?,
            reserved: m.number32(&[0])?,
            first: m.number(&[0, 0, 0, 1])?,
            blocks,
            num_blocks,
        });
    }
    m.array(&lists)
}

pub(super) fn request(m: &mut Machine<'_>) -> Result<*const kvffi_request> {
    let ((local, num_local), (remote, num_remote)) = (lists(m)?, lists(m)?);
    let (layers, num_layers) = match m.bytes.int_in_range(0..=3u8)? {
        0 => {
            let names = [m.name()?];
            m.array(&names)?
        }
        _ => (std::ptr::null(), 0),
    };
    let by_name = if num_layers > 0 { KVFFI_REQUEST_LAYERS } else { 0 };
    let request = kvffi_request {
        struct_size: 0,
        op: m.enumerated(0, 1)?,
        flags: m.number32(&[by_name, by_name, KVFFI_REQUEST_LAYER_RANGE])? | m.number32(&[0, 0, 4, 8])?,
        local,
        num_local,
        remote,
        num_remote,
        layers,
        num_layers,
        from_layer: m.number32(&[0])?,
        to_layer: m.number32(&[0, 0, 1])?,
    };
    m.sized(request)
}

fn pair_answer(m: &mut Machine<'_>) -> Result<()> {
    let (pair, answer) = (m.handle::<kvffi_pair>(Kind::Pair)?, m.handle::<kvffi_answer>(Kind::Answer)?);
    let request = request(m)?;
    call!(m, kvffi_pair_answer(pair, request, answer)).map(drop)
}

fn pair_answer_json(m: &mut Machine<'_>) -> Result<()> {
    const REQUEST: &str =
        r#"{"op": "read", "local": [{"group": 0, "blocks": [0, 2]}], "remote": [{"group": 0, "blocks": [3, 1]}]}"#;
    let (pair, answer) = (m.handle::<kvffi_pair>(Kind::Pair)?, m.handle::<kvffi_answer>(Kind::Answer)?);
    let (json, len) = m.sized_text(&[REQUEST, r#"{"op": "write"}"#])?;
    call!(m, kvffi_pair_answer_json(pair, json, len, answer)).map(drop)
}

fn answer_look(m: &mut Machine<'_>) -> Result<()> {
    let answer = m.handle::<kvffi_answer>(Kind::Answer)?.cast_const();
    let totals = if m.is_wrong()? { std::ptr::null_mut() } else { m.memory(&[0; 4]).cast() };
    call!(m, kvffi_answer_get_totals(answer, totals))?;
    // SAFETY: the machine's arguments keep to what cannot be checked.
    unsafe {
        m.list("kvffi_answer_get_descriptors", |array, capacity, len, error| {
            kvffi_answer_get_descriptors(answer, array, capacity, len, error)
        })?;
        m.list("kvffi_answer_get_zero_ranges", |array, capacity, len, error| {
            kvffi_answer_get_zero_ranges(answer, array, capacity, len, error)
        })
    }
}

fn pair_verify(m: &mut Machine<'_>) -> Result<()> {
    let (pair, answer) = (m.handle::<kvffi_pair>(Kind::Pair)?, m.handle::<kvffi_answer>(Kind::Answer)?);
    call!(m, kvffi_pair_verify(pair, answer)).map(drop)
}
