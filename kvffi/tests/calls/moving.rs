//! Calls that move bytes: agents on loopbacks, peers, transfers.
//!
//! Bytes are really copied. So only plans of this file's own memory are registered, which is never freed.

use std::sync::LazyLock;

use arbitrary::Result;
use kvffi::*;

use super::Operation;
use super::describe::{call, make};
use super::machine::{Kind, Machine};
use super::plan::request;

/// What this file makes; what is here twice is made twice as often.
pub const OPERATIONS: &[Operation] = &[
    loopback_new,
    two_workers,
    two_workers,
    agent_new,
    register,
    register,
    deregister,
    export,
    export,
    connect,
    connect,
    connect,
    peer_look,
    reach,
    foreign,
    notify,
    take_notifications,
    start,
    start,
    start,
    start_answer,
    start_request,
    start_request,
    transfer_look,
    transfer_look,
    faults,
    agent_look,
    descriptor,
    shutdown,
    look,
    logs,
];

/// Bytes of a cache: four blocks of 32, 64 apart.
const CACHE: usize = 256;

/// Addresses of two caches that are never freed.
static CACHES: LazyLock<[usize; 2]> =
    LazyLock::new(|| [0, 1].map(|_| Box::leak(vec![0_u8; CACHE].into_boxed_slice()).as_mut_ptr().expose_provenance()));

/// A spec over one of them.
fn spec(m: &mut Machine<'_>) -> Result<*mut kvffi_spec> {
    let (base, model) = (*m.bytes.choose(&*CACHES)?, if m.is_wrong()? { "another" } else { "org/model" });
    let json = format!(
        r#"{{"version": 1, "fingerprint": {{"model": "{model}"}},
            "storages": [{{"base": {base}, "len": {CACHE}, "mem": "dram"}}],
            "groups": [{{"pool": 0, "block_tokens": 4, "num_blocks": 4}}],
            "layers": [{{"name": "layers.0", "group": 0, "kind": "mla", "parts": [{{"name": "latent", "storage": 0,
                "offset": 0, "block_stride": 64, "sharding": "replicated", "units": {{"count": 1, "stride": 32}},
                "tokens": [{{"count": 4, "stride": 8}}], "content": 8}}]}}]}}"#
    );
    let mut spec = std::ptr::null_mut();
    // SAFETY: text with its length.
    let status = unsafe { kvffi_spec_from_json(json.as_ptr().cast(), json.len(), &raw mut spec, std::ptr::null_mut()) };
    assert_eq!(status, KVFFI_OK);
    Ok(spec)
}

fn loopback_new(m: &mut Machine<'_>) -> Result<()> {
    make!(m, Loopback, kvffi_loopback_new())
}

/// Two workers of one loopback that know each other: without them few sequences come to a transfer.
fn two_workers(m: &mut Machine<'_>) -> Result<()> {
    loopback_new(m)?;
    for _ in 0..2 {
        agent_new(m)?;
        register(m)?;
        export(m)?;
    }
    connect(m)?;
    connect(m)
}

fn limits(m: &mut Machine<'_>) -> Result<*const kvffi_limits> {
    if m.bytes.arbitrary()? {
        return Ok(std::ptr::null());
    }
    let value = kvffi_limits {
        struct_size: 0,
        descriptor_bytes: m.number(&[0, 5])?,
        request_bytes: m.number(&[0, 64])?,
        request_descriptors: m.number(&[0, 1])?,
        outstanding_requests: m.number(&[0, 1])?,
        in_flight_bytes: m.number(&[0, 40])?,
        in_flight_descriptors: m.number(&[0, 2])?,
    };
    m.sized(value)
}

fn agent_new(m: &mut Machine<'_>) -> Result<()> {
    let params = [kvffi_key_value { key: m.name()?, value: m.name()? }];
    let (backend_params, num_backend_params) = m.array(&params)?;
    let value = kvffi_agent_options {
        struct_size: 0,
        loopback: m.handle(Kind::Loopback)?,
        library: std::ptr::null(),
        backend: m.text_of(&[c"UCX"])?,
        backend_params,
        num_backend_params,
        progress_delay_us: m.number(&[0, 1000])?,
        flags: m.flags(0)?,
        reserved: m.number32(&[0])?,
        limits: limits(m)?,
    };
    // NULL would ask for the real NIXL, which this file is not about.
    let real = value.loopback.is_null();
    let (options, name) = (m.sized(value)?, m.text_of(&[c"decode", c"prefill"])?);
    if options.is_null() || real {
        return Ok(());
    }
    make!(m, Agent, kvffi_agent_new(name, options))
}

fn register(m: &mut Machine<'_>) -> Result<()> {
    let agent = m.handle::<kvffi_agent>(Kind::Agent)?;
    register_with(m, agent)
}

/// Registers one of the two caches.
pub(super) fn register_with(m: &mut Machine<'_>, agent: *mut kvffi_agent) -> Result<()> {
    let spec = spec(m)?;
    let mut plan = std::ptr::null_mut();
    // SAFETY: handles that are alive, freed once.
    unsafe {
        assert_eq!(kvffi_local_plan_new(spec, 0, &raw mut plan, std::ptr::null_mut()), KVFFI_OK);
        kvffi_spec_free(spec);
    }
    let given = if m.is_wrong()? { std::ptr::null_mut() } else { plan };
    let result = if m.bytes.arbitrary()? {
        call!(m, kvffi_agent_register(agent, given))
    } else {
        call!(m, kvffi_agent_reregister(agent, given))
    };
    // SAFETY: as above.
    unsafe { kvffi_local_plan_free(plan) };
    result.map(drop)
}

fn deregister(m: &mut Machine<'_>) -> Result<()> {
    let agent = m.handle::<kvffi_agent>(Kind::Agent)?;
    if m.bytes.int_in_range(0..=3u8)? > 0 {
        return Ok(());
    }
    call!(m, kvffi_agent_deregister(agent)).map(drop)
}

fn export(m: &mut Machine<'_>) -> Result<()> {
    let agent = m.handle::<kvffi_agent>(Kind::Agent)?;
    make!(m, Bytes, kvffi_agent_export(agent))
}

fn connect(m: &mut Machine<'_>) -> Result<()> {
    let (agent, bytes) = (m.handle::<kvffi_agent>(Kind::Agent)?, m.handle::<kvffi_bytes>(Kind::Bytes)?);
    // SAFETY: alive, NULL, or readable memory; the bytes live until they are freed.
    let blob = unsafe {
        match (kvffi_bytes_data(bytes), kvffi_bytes_len(bytes)) {
            (data, len) if !data.is_null() => std::slice::from_raw_parts(data, len).to_vec(),
            _ => Vec::new(),
        }
    };
    let (blob, len) = m.array(&blob)?;
    make!(m, Peer, kvffi_agent_connect(agent, blob, len))?;
    let name = m.text_of(&[c"decode", c"prefill"])?;
    make!(m, Peer, kvffi_agent_connect_named(agent, name, blob, len))
}

fn peer_look(m: &mut Machine<'_>) -> Result<()> {
    let peer = m.handle::<kvffi_peer>(Kind::Peer)?;
    let info = m.sized_out::<kvffi_peer_info>()?;
    call!(m, kvffi_peer_get_info(peer, info))?;
    make!(m, Spec, kvffi_peer_get_layout(peer))
}

fn reach(m: &mut Machine<'_>) -> Result<()> {
    let (agent, peer) = (m.handle::<kvffi_agent>(Kind::Agent)?, m.handle::<kvffi_peer>(Kind::Peer)?);
    match m.bytes.int_in_range(0..=3u8)? {
        0 => call!(m, kvffi_agent_disconnect(agent, peer)).map(drop),
        _ => call!(m, kvffi_agent_reconnect(agent, peer)).map(drop),
    }
}

/// Agents on a loopback have names that no foreign peer may have: connecting them is refused, whatever else is right.
fn foreign(m: &mut Machine<'_>) -> Result<()> {
    let (agent, other) = (m.handle::<kvffi_agent>(Kind::Agent)?, m.handle::<kvffi_agent>(Kind::Agent)?);
    make!(m, Text, kvffi_agent_get_nixl_name(other))?;
    make!(m, Bytes, kvffi_agent_get_nixl_metadata(other))?;
    let (metadata, metadata_len) = m.array(b"prefill")?;
    let peer = kvffi_foreign_peer {
        struct_size: 0,
        name: m.text_of(&[c"prefill"])?,
        metadata,
        metadata_len,
        layout: m.handle::<kvffi_spec>(Kind::Spec)?,
        generation: m.number(&[0, 1])?,
    };
    let peer = m.sized(peer)?;
    make!(m, Peer, kvffi_agent_connect_foreign(agent, peer))
}

fn notify(m: &mut Machine<'_>) -> Result<()> {
    let (agent, peer) = (m.handle::<kvffi_agent>(Kind::Agent)?, m.handle::<kvffi_peer>(Kind::Peer)?);
    let (message, len) = m.array(b"hello")?;
    call!(m, kvffi_agent_notify(agent, peer, message, len)).map(drop)
}

fn take_notifications(m: &mut Machine<'_>) -> Result<()> {
    let agent = m.handle::<kvffi_agent>(Kind::Agent)?;
    // SAFETY: the machine's arguments keep to what cannot be checked.
    m.make_if_any("kvffi_agent_take_notifications", Kind::Notifications, |made, error| unsafe {
        kvffi_agent_take_notifications(agent, made, error)
    })?;
    let taken = m.handle::<kvffi_notifications>(Kind::Notifications)?;
    // SAFETY: as above.
    m.list("kvffi_notifications_get", |array, capacity, len, error| unsafe {
        kvffi_notifications_get(taken, array, capacity, len, error)
    })
}

fn transfer_options(m: &mut Machine<'_>) -> Result<*const kvffi_transfer_options> {
    if m.bytes.arbitrary()? {
        return Ok(std::ptr::null());
    }
    let (notify, notify_len) = m.array(b"done")?;
    let value = kvffi_transfer_options {
        struct_size: 0,
        notify,
        notify_len,
        deadline_ms: m.number(&[0, 1000])?,
        request: if m.bytes.arbitrary()? { std::ptr::null() } else { m.name()? },
        padding_bytes: m.number(&[0])?,
        limits: limits(m)?,
    };
    m.sized(value)
}

fn start(m: &mut Machine<'_>) -> Result<()> {
    let (agent, peer) = (m.handle::<kvffi_agent>(Kind::Agent)?, m.handle::<kvffi_peer>(Kind::Peer)?);
    let mut descriptors = Vec::new();
    for _ in 0..m.bytes.int_in_range(0..=3u8)? {
        descriptors.push(kvffi_descriptor {
            local_storage: m.number32(&[0])?,
            remote_storage: m.number32(&[0])?,
            local_offset: m.number(&[0, 64, 224])?,
            remote_offset: m.number(&[0, 128])?,
            len: m.number(&[32, 1])?,
        });
    }
    let ((array, len), op, options) = (m.array(&descriptors)?, m.enumerated(0, 1)?, transfer_options(m)?);
    make!(m, Transfer, kvffi_agent_start(agent, peer, op, array, len, options))
}

/// A plan with a peer's own layout, to be freed; NULL if there is no peer.
fn pair_with(m: &mut Machine<'_>, peer: *const kvffi_peer, op: i32) -> Result<*mut kvffi_pair> {
    let (own, none) = (spec(m)?, std::ptr::null_mut());
    let (mut layout, mut pair) = (std::ptr::null_mut(), std::ptr::null_mut());
    let struct_size = size_of::<kvffi_pair_options>();
    let options = kvffi_pair_options { struct_size, op, flags: 0, max_gap: 0, min_run: 0 };
    // SAFETY: handles that are alive or NULL, which is an error; freed once.
    unsafe {
        kvffi_peer_get_layout(peer, &raw mut layout, none);
        kvffi_pair_new(own, layout, &raw const options, &raw mut pair, none);
        kvffi_spec_free(layout);
        kvffi_spec_free(own);
    }
    Ok(pair)
}

/// An answer of the plan with a peer's own layout, to be freed; empty if there is no peer.
pub(super) fn answer_with(m: &mut Machine<'_>, peer: *const kvffi_peer, op: i32) -> Result<*mut kvffi_answer> {
    let (pair, none, mut answer) = (pair_with(m, peer, op)?, std::ptr::null_mut(), std::ptr::null_mut());
    let word = if op == KVFFI_OP_READ { "read" } else { "write" };
    let request = format!(
        r#"{{"op": "{word}", "local": [{{"group": 0, "blocks": [0, 2]}}], "remote": [{{"group": 0, "blocks": [3, 1]}}]}}"#
    );
    // SAFETY: as above.
    unsafe {
        kvffi_answer_new(&raw mut answer, none);
        kvffi_pair_answer_json(pair, request.as_ptr().cast(), request.len(), answer, none);
        kvffi_pair_free(pair);
    }
    Ok(answer)
}

/// From the plan with the peer's own layout, so that it succeeds at times.
fn start_answer(m: &mut Machine<'_>) -> Result<()> {
    let (agent, peer) = (m.handle::<kvffi_agent>(Kind::Agent)?, m.handle::<kvffi_peer>(Kind::Peer)?);
    let answer = answer_with(m, peer, KVFFI_OP_READ)?;
    let given = if m.is_wrong()? { m.handle(Kind::Answer)? } else { answer };
    let options = transfer_options(m)?;
    let result = make!(m, Transfer, kvffi_agent_start_answer(agent, peer, given, options));
    // SAFETY: made above, freed once.
    unsafe { kvffi_answer_free(answer) };
    result
}

/// From the plan with the peer's own layout, too.
fn start_request(m: &mut Machine<'_>) -> Result<()> {
    let (agent, peer) = (m.handle::<kvffi_agent>(Kind::Agent)?, m.handle::<kvffi_peer>(Kind::Peer)?);
    let op = m.enumerated(0, 1)?;
    let pair = pair_with(m, peer, op)?;
    let given = if m.is_wrong()? { m.handle(Kind::Pair)? } else { pair };
    let (request, answer, options) = (request(m)?, m.handle::<kvffi_answer>(Kind::Answer)?, transfer_options(m)?);
    let result = make!(m, Transfer, kvffi_agent_start_request(agent, peer, given, request, answer, options));
    // SAFETY: made above, freed once.
    unsafe { kvffi_pair_free(pair) };
    result
}

fn transfer_look(m: &mut Machine<'_>) -> Result<()> {
    let transfer = m.handle::<kvffi_transfer>(Kind::Transfer)?;
    let timeout = m.bytes.int_in_range(0..=2u64)?;
    match m.bytes.int_in_range(0..=5u8)? {
        0 => call!(m, kvffi_transfer_cancel(transfer)).map(drop),
        1 => call!(m, kvffi_transfer_wait(transfer, timeout)).map(drop),
        2 => call!(m, kvffi_transfer_wait_settled(transfer, timeout)).map(drop),
        3 => call!(m, kvffi_transfer_poll(transfer)).map(drop),
        _ => {
            let stats = m.sized_out::<kvffi_transfer_stats>()?;
            call!(m, kvffi_transfer_get_stats(transfer, stats)).map(drop)
        }
    }
}

/// Something fails under way; in the end it has settled, so that no agent waits for it when it is freed.
fn faults(m: &mut Machine<'_>) -> Result<()> {
    const FAULTS: u32 = KVFFI_LOOPBACK_STALL | KVFFI_LOOPBACK_BREAK | KVFFI_LOOPBACK_LOSE_NOTIFICATIONS;
    let loopback = m.handle::<kvffi_loopback>(Kind::Loopback)?;
    let faults = if m.is_wrong()? {
        m.bytes.arbitrary()?
    } else {
        *m.bytes.choose(&[
            KVFFI_LOOPBACK_BREAK,
            KVFFI_LOOPBACK_BREAK,
            FAULTS,
            KVFFI_LOOPBACK_STALL,
            KVFFI_LOOPBACK_LOSE_NOTIFICATIONS,
            0,
        ])?
    };
    call!(m, kvffi_loopback_set_faults(loopback, faults))?;
    let result = under_faults(m);
    // SAFETY: alive, NULL, or readable memory.
    unsafe { kvffi_loopback_set_faults(loopback, 0, std::ptr::null_mut()) };
    result
}

fn under_faults(m: &mut Machine<'_>) -> Result<()> {
    start(m)?;
    let (agent, peer) = (m.handle::<kvffi_agent>(Kind::Agent)?, m.handle::<kvffi_peer>(Kind::Peer)?);
    let block = kvffi_descriptor { local_storage: 0, remote_storage: 0, local_offset: 0, remote_offset: 64, len: 32 };
    let (mut transfer, none) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the machine's handles are alive, NULL, or readable memory; the transfer is freed once, and goes on.
    unsafe {
        if kvffi_agent_start(agent, peer, 0, &raw const block, 1, std::ptr::null(), &raw mut transfer, none) == KVFFI_OK
        {
            kvffi_transfer_wait(transfer, 5, none);
            kvffi_transfer_free(transfer);
        }
    }
    // SAFETY: the machine's arguments keep to what cannot be checked.
    m.make_if_any("kvffi_agent_get_quarantine", Kind::Quarantine, |made, error| unsafe {
        kvffi_agent_get_quarantine(agent, made, error)
    })?;
    let list = m.handle::<kvffi_quarantine>(Kind::Quarantine)?;
    let entry = usize::try_from(m.number(&[0, 1])?).unwrap_or(usize::MAX);
    // SAFETY: as above.
    unsafe {
        m.list("kvffi_quarantine_get_entries", |array, capacity, len, error| {
            kvffi_quarantine_get_entries(list, array, capacity, len, error)
        })?;
        m.list("kvffi_quarantine_get_ranges", |array, capacity, len, error| {
            kvffi_quarantine_get_ranges(list, entry, array, capacity, len, error)
        })?;
    }
    call!(m, kvffi_peer_declare_gone(peer)).map(drop)
}

fn agent_look(m: &mut Machine<'_>) -> Result<()> {
    let agent = m.handle::<kvffi_agent>(Kind::Agent)?;
    let (info, stats) = (m.sized_out::<kvffi_agent_info>()?, m.sized_out::<kvffi_agent_stats>()?);
    call!(m, kvffi_agent_get_info(agent, info))?;
    call!(m, kvffi_agent_get_stats(agent, stats))?;
    let histogram = m.enumerated(0, 1)?;
    // SAFETY: the machine's arguments keep to what cannot be checked.
    m.list("kvffi_agent_get_histogram", |array, capacity, len, error| unsafe {
        kvffi_agent_get_histogram(agent, histogram, array, capacity, len, error)
    })
}

fn descriptor(m: &mut Machine<'_>) -> Result<()> {
    let agent = m.handle::<kvffi_agent>(Kind::Agent)?;
    let (every, out) = (m.number(&[0, 200])?, m.memory(&[0]).cast());
    call!(m, kvffi_agent_get_fd(agent, every, out))?;
    call!(m, kvffi_agent_raise_fd(agent))?;
    call!(m, kvffi_agent_clear_fd(agent)).map(drop)
}

fn shutdown(m: &mut Machine<'_>) -> Result<()> {
    let (agent, timeout) = (m.handle::<kvffi_agent>(Kind::Agent)?, m.bytes.int_in_range(0..=5u64)?);
    if m.bytes.int_in_range(0..=7u8)? > 0 {
        return Ok(());
    }
    call!(m, kvffi_agent_shutdown(agent, timeout)).map(drop)
}

/// Calls that answer something to every argument.
fn look(m: &mut Machine<'_>) -> Result<()> {
    let bytes = m.handle::<kvffi_bytes>(Kind::Bytes)?;
    let arrived = m.handle::<kvffi_notifications>(Kind::Notifications)?;
    // SAFETY: the machine's handles are alive, NULL, or readable memory.
    unsafe {
        assert_eq!(kvffi_bytes_data(bytes).is_null(), kvffi_bytes_len(bytes) == 0);
        assert!(kvffi_notifications_len(arrived) < 1000);
    }
    for name in ["kvffi_bytes_data", "kvffi_bytes_len", "kvffi_notifications_len"] {
        m.called(name);
    }
    Ok(())
}

fn logs(m: &mut Machine<'_>) -> Result<()> {
    let value = kvffi_log_options {
        struct_size: 0,
        level: m.enumerated(0, KVFFI_LOG_TRACE)?,
        reserved: m.number32(&[0])?,
        capacity: m.number(&[0, 1, 100])?,
    };
    let options = if m.bytes.arbitrary()? { std::ptr::null() } else { m.sized(value)? };
    make!(m, Logs, kvffi_logs_new(options))?;
    let (logs, fd, dropped) = (m.handle::<kvffi_logs>(Kind::Logs)?, m.memory(&[0]).cast(), m.memory(&[0]));
    call!(m, kvffi_logs_get_fd(logs, fd))?;
    // SAFETY: the machine's arguments keep to what cannot be checked.
    m.make_if_any("kvffi_logs_take", Kind::LogRecords, |made, error| unsafe {
        kvffi_logs_take(logs, made, dropped, error)
    })?;
    let records = m.handle::<kvffi_log_records>(Kind::LogRecords)?.cast_const();
    // SAFETY: alive, NULL, or readable memory.
    assert!(unsafe { kvffi_log_records_len(records) } <= 4096);
    m.called("kvffi_log_records_len");
    // SAFETY: as above.
    m.list("kvffi_log_records_get", |array, capacity, len, error| unsafe {
        kvffi_log_records_get(records, array, capacity, len, error)
    })
}
