//! Calls on exchanges. Everything is small, so that requests, leases and peers meet.

use arbitrary::Result;
use kvffi::*;

use super::Operation;
use super::describe::{call, make};
use super::machine::{Kind, Machine};
use super::moving::{answer_with, register_with};
use super::plan::lists;

/// What this file makes; what is here twice is made twice as often.
pub const OPERATIONS: &[Operation] = &[
    exchange_new,
    exchange_new,
    push,
    want,
    connect,
    connect,
    connect,
    peers,
    withdraw,
    hold,
    hold,
    lease,
    write,
    pull,
    pull,
    keep,
    reserve,
    reserve,
    cancel,
    poll,
    poll,
    poll,
    poll,
    look,
];

fn exchange_new(m: &mut Machine<'_>) -> Result<()> {
    let agent = m.handle::<kvffi_agent>(Kind::Agent)?;
    let value = kvffi_exchange_options {
        struct_size: 0,
        lease_ttl_ms: m.number(&[0, 1])?,
        lease_max_lifetime_ms: m.number(&[0])?,
        lease_remember_ms: m.number(&[0, 1])?,
        lost_readers: m.enumerated(0, 1)?,
        reserved: m.number32(&[0])?,
        heartbeat_every_ms: m.number(&[0, 1])?,
        max_registrations: m.number(&[0, 1])?,
        max_registered_blocks: m.number(&[0, 4])?,
        first_retry_ms: m.number(&[0, 1])?,
        max_retry_ms: m.number(&[0])?,
        fetch_timeout_ms: m.number(&[0, 1])?,
        peer_idle_ttl_ms: m.number(&[0])?,
        push_remember_ms: m.number(&[0, 1])?,
        max_ended_leases: m.number(&[0, 1])?,
        max_ended_registrations: m.number(&[0, 1])?,
        max_past_incarnations: m.number(&[0, 1])?,
    };
    let options = if m.bytes.arbitrary()? { std::ptr::null() } else { m.sized(value)? };
    make!(m, Exchange, kvffi_exchange_new(agent, options))
}

/// A peer that is known, or one that is not.
fn peer_id(m: &mut Machine<'_>) -> Result<kvffi_peer_id> {
    let peer = m.handle::<kvffi_peer>(Kind::Peer)?;
    // SAFETY: structs that calls fill are integers and pointers; the machine's handles are alive, NULL, or readable
    // memory. The name lives as long as the peer, which is not freed during a call.
    let info = unsafe {
        let mut info: kvffi_peer_info = std::mem::zeroed();
        info.struct_size = size_of::<kvffi_peer_info>();
        kvffi_peer_get_info(peer, &raw mut info, std::ptr::null_mut());
        info
    };
    let name = if m.is_wrong()? || info.name.is_null() { m.name()? } else { info.name };
    Ok(kvffi_peer_id { name, incarnation: m.number(&[info.incarnation])? })
}

fn request(m: &mut Machine<'_>) -> Result<*const std::ffi::c_char> {
    m.text_of(&[c"r1", c"r2"])
}

/// One of the first leases or reservations of a live agent.
fn number_of(m: &mut Machine<'_>, incarnation: u64) -> Result<u64> {
    let start = incarnation << 32;
    m.number(&[start + 1, start + 1, start + 2])
}

/// A whole push between two workers that are made for it: few sequences come to a write by chance.
fn push(m: &mut Machine<'_>) -> Result<()> {
    make!(m, Loopback, kvffi_loopback_new())?;
    // SAFETY: all zero is the default of every field.
    let mut options: kvffi_agent_options = unsafe { std::mem::zeroed() };
    (options.struct_size, options.loopback) = (size_of::<kvffi_agent_options>(), m.latest(Kind::Loopback));
    if options.loopback.is_null() {
        return Ok(());
    }
    let mut sides = Vec::new();
    for name in [c"decode", c"prefill"] {
        make!(m, Agent, kvffi_agent_new(name.as_ptr(), &raw const options))?;
        let agent: *mut kvffi_agent = m.latest(Kind::Agent);
        register_with(m, agent)?;
        make!(m, Exchange, kvffi_exchange_new(agent, std::ptr::null()))?;
        make!(m, Bytes, kvffi_agent_export(agent))?;
        sides.push((m.latest::<kvffi_exchange>(Kind::Exchange), m.latest::<kvffi_bytes>(Kind::Bytes)));
    }
    let [(decode, decode_blob), (prefill, prefill_blob)] = sides[..] else { return Ok(()) };
    let mut peers = Vec::new();
    for (exchange, blob) in [(decode, prefill_blob), (prefill, decode_blob)] {
        // SAFETY: alive or NULL; the bytes are not freed during a call.
        let (blob, len) = unsafe { (kvffi_bytes_data(blob), kvffi_bytes_len(blob)) };
        make!(m, Peer, kvffi_exchange_connect(exchange, blob, len))?;
        peers.push(m.latest::<kvffi_peer>(Kind::Peer));
    }
    // SAFETY: as in `peer_id`.
    let info = unsafe {
        let mut info: kvffi_peer_info = std::mem::zeroed();
        info.struct_size = size_of::<kvffi_peer_info>();
        kvffi_peer_get_info(peers[0], &raw mut info, std::ptr::null_mut());
        info
    };
    // Those that `answer_with` is for.
    let blocks = [3_u32, 1];
    let list = kvffi_block_list { group: 0, reserved: 0, first: 0, blocks: blocks.as_ptr(), num_blocks: blocks.len() };
    let source =
        kvffi_push_source { peer: info.name, incarnation: info.incarnation, lists: &raw const list, num_lists: 1 };
    let (reservation, lease) = (m.memory(&[0]), m.memory(&[0]));
    call!(m, kvffi_exchange_reserve(decode, c"r".as_ptr(), 1, &raw const source, 1, 1000, reservation))?;
    call!(m, kvffi_exchange_hold(prefill, c"r".as_ptr(), 2, 1, 2, lease))?;
    polls(m, &[decode, prefill])?;
    // SAFETY: memory of the machine's.
    let lease = unsafe { *lease };
    for part in 0..2 {
        // SAFETY: the machine's arguments keep to what cannot be checked.
        m.make_if_any("kvffi_exchange_ready", Kind::Pushes, |made, error| unsafe {
            kvffi_exchange_ready(prefill, lease, part, made, error)
        })?;
        let mut push = kvffi_push_id { peer: c"decode".as_ptr(), incarnation: 0, reservation: 0 };
        let (pushes, mut len) = (m.latest::<kvffi_pushes>(Kind::Pushes), 0);
        // SAFETY: room for one; the text lives as long as the list, which is not freed during a call.
        unsafe { kvffi_pushes_get(pushes, &raw mut push, 1, &raw mut len, std::ptr::null_mut()) };
        let answer = answer_with(m, peers[1], KVFFI_OP_WRITE)?;
        let block =
            kvffi_descriptor { local_storage: 0, remote_storage: 0, local_offset: 0, remote_offset: 64, len: 32 };
        let written = match part {
            0 => call!(m, kvffi_exchange_write(prefill, &raw const push, part, &raw const block, 1, 0)),
            _ => call!(m, kvffi_exchange_write_answer(prefill, &raw const push, part, answer)),
        };
        // SAFETY: made above, freed once.
        unsafe { kvffi_answer_free(answer) };
        written?;
    }
    polls(m, &[prefill, decode])
}

fn polls(m: &mut Machine<'_>, exchanges: &[*mut kvffi_exchange]) -> Result<()> {
    for &exchange in exchanges {
        // SAFETY: the machine's arguments keep to what cannot be checked.
        m.make_if_any("kvffi_exchange_poll", Kind::Events, |made, error| unsafe {
            kvffi_exchange_poll(exchange, made, error)
        })?;
    }
    Ok(())
}

fn want(m: &mut Machine<'_>) -> Result<()> {
    let (exchange, name) = (m.handle::<kvffi_exchange>(Kind::Exchange)?, m.text_of(&[c"decode", c"prefill"])?);
    let wanted = m.sized_out::<kvffi_wanted>()?;
    call!(m, kvffi_exchange_want(exchange, name, wanted))?;
    match m.bytes.int_in_range(0..=7u8)? {
        0 => call!(m, kvffi_exchange_release_peer(exchange, name)).map(drop),
        1 | 2 => call!(m, kvffi_exchange_fetch_failed(exchange, name)).map(drop),
        _ => Ok(()),
    }
}

fn connect(m: &mut Machine<'_>) -> Result<()> {
    let (exchange, bytes) = (m.handle::<kvffi_exchange>(Kind::Exchange)?, m.handle::<kvffi_bytes>(Kind::Bytes)?);
    // SAFETY: alive, NULL, or readable memory; the bytes are not freed during a call.
    let (blob, len) = unsafe { (kvffi_bytes_data(bytes), kvffi_bytes_len(bytes)) };
    make!(m, Peer, kvffi_exchange_connect(exchange, blob, len))?;
    let name = m.text_of(&[c"decode", c"prefill"])?;
    make!(m, Peer, kvffi_exchange_connect_named(exchange, name, blob, len))
}

fn peers(m: &mut Machine<'_>) -> Result<()> {
    let (exchange, id) = (m.handle::<kvffi_exchange>(Kind::Exchange)?, peer_id(m)?);
    let (id, _) = m.array(&[id])?;
    make!(m, Peer, kvffi_exchange_get_peer(exchange, id))?;
    match m.bytes.int_in_range(0..=7u8)? {
        0 => call!(m, kvffi_exchange_peer_is_gone(exchange, id)).map(drop),
        _ => Ok(()),
    }
}

fn withdraw(m: &mut Machine<'_>) -> Result<()> {
    let (exchange, out) = (m.handle::<kvffi_exchange>(Kind::Exchange)?, m.memory(&[0]).cast());
    match m.bytes.int_in_range(0..=7u8)? {
        0 => call!(m, kvffi_exchange_withdraw(exchange)).map(drop),
        1 => call!(m, kvffi_exchange_goodbye(exchange)).map(drop),
        2 => call!(m, kvffi_exchange_registered(exchange)).map(drop),
        _ => call!(m, kvffi_exchange_count_withdrawing(exchange, out)).map(drop),
    }
}

fn hold(m: &mut Machine<'_>) -> Result<()> {
    let (exchange, request) = (m.handle::<kvffi_exchange>(Kind::Exchange)?, request(m)?);
    let (readers, num_parts) = (m.number(&[1, 1, 2, KVFFI_READERS_UNKNOWN])?, m.number32(&[0, 0, 1, 2])?);
    let out = m.memory(&[0]);
    call!(m, kvffi_exchange_hold(exchange, request, 7, readers, num_parts, out)).map(drop)
}

/// The incarnation of a live agent; 0 if there is none.
fn own(m: &mut Machine<'_>) -> Result<u64> {
    let agent = m.handle::<kvffi_agent>(Kind::Agent)?;
    // SAFETY: as in `peer_id`.
    let info = unsafe {
        let mut info: kvffi_agent_info = std::mem::zeroed();
        info.struct_size = size_of::<kvffi_agent_info>();
        kvffi_agent_get_info(agent, &raw mut info, std::ptr::null_mut());
        info
    };
    Ok(info.incarnation)
}

fn lease(m: &mut Machine<'_>) -> Result<()> {
    let (exchange, incarnation) = (m.handle::<kvffi_exchange>(Kind::Exchange)?, own(m)?);
    let (lease, out) = (number_of(m, incarnation)?, m.memory(&[0]).cast());
    match m.bytes.int_in_range(0..=4u8)? {
        0 => call!(m, kvffi_exchange_abort(exchange, lease, out)).map(drop),
        1 => call!(m, kvffi_exchange_set_readers(exchange, lease, 1, out)).map(drop),
        _ => {
            let part = m.number32(&[0, 1])?;
            // SAFETY: the machine's arguments keep to what cannot be checked.
            m.make_if_any("kvffi_exchange_ready", Kind::Pushes, |made, error| unsafe {
                kvffi_exchange_ready(exchange, lease, part, made, error)
            })
        }
    }
}

/// To a registration that was handed out, or to any other.
fn write(m: &mut Machine<'_>) -> Result<()> {
    let (exchange, pushes) =
        (m.handle::<kvffi_exchange>(Kind::Exchange)?, m.handle::<kvffi_pushes>(Kind::Pushes)?.cast_const());
    // SAFETY: the machine's arguments keep to what cannot be checked.
    m.list("kvffi_pushes_get", |array, capacity, len, error| unsafe {
        kvffi_pushes_get(pushes, array, capacity, len, error)
    })?;
    let reader = peer_id(m)?;
    let mut push = kvffi_push_id {
        peer: reader.name,
        incarnation: reader.incarnation,
        reservation: number_of(m, reader.incarnation)?,
    };
    let mut found = [push; 32];
    let mut len = 0;
    // SAFETY: room for as many as is said; the texts live as long as the list, which is not freed during a call.
    if unsafe { kvffi_pushes_get(pushes, found.as_mut_ptr(), found.len(), &raw mut len, std::ptr::null_mut()) } == 0 {
        push = *found.get(..len).and_then(<[_]>::first).unwrap_or(&push);
    }
    let block = kvffi_descriptor { local_storage: 0, remote_storage: 0, local_offset: 0, remote_offset: 64, len: 32 };
    let ((push, _), (descriptors, num), part) = (m.array(&[push])?, m.array(&[block])?, m.number32(&[0, 0, 1])?);
    match m.bytes.int_in_range(0..=4u8)? {
        0 => {
            let answer = m.handle::<kvffi_answer>(Kind::Answer)?;
            return call!(m, kvffi_exchange_write_answer(exchange, push, part, answer)).map(drop);
        }
        1 => {
            let was_open = m.memory(&[0]).cast();
            return call!(m, kvffi_exchange_refuse(exchange, push, c"no room".as_ptr(), was_open)).map(drop);
        }
        _ => {}
    }
    call!(m, kvffi_exchange_write(exchange, push, part, descriptors, num, 0)).map(drop)
}

fn pull(m: &mut Machine<'_>) -> Result<()> {
    let exchange = m.handle::<kvffi_exchange>(Kind::Exchange)?;
    let mut parts = Vec::new();
    for _ in 0..m.bytes.int_in_range(0..=2u8)? {
        let peer = peer_id(m)?;
        let block =
            kvffi_descriptor { local_storage: 0, remote_storage: 0, local_offset: 0, remote_offset: 64, len: 32 };
        let (descriptors, num_descriptors) = m.array(&[block])?;
        let answer = if m.is_wrong()? { m.handle::<kvffi_answer>(Kind::Answer)? } else { std::ptr::null_mut() };
        parts.push(kvffi_pull_part {
            peer: peer.name,
            incarnation: peer.incarnation,
            request: request(m)?,
            lease: number_of(m, peer.incarnation)?,
            answer,
            descriptors,
            num_descriptors,
            padding_bytes: m.number(&[0])?,
        });
    }
    let ((parts, num_parts), deadline, out) = (m.array(&parts)?, m.number(&[5, 1000, KVFFI_FOREVER])?, m.memory(&[0]));
    call!(m, kvffi_exchange_pull(exchange, 8, parts, num_parts, deadline, out)).map(drop)
}

fn keep(m: &mut Machine<'_>) -> Result<()> {
    let (exchange, peer) = (m.handle::<kvffi_exchange>(Kind::Exchange)?, peer_id(m)?);
    let (lease, (peer, _)) = (number_of(m, peer.incarnation)?, m.array(&[peer])?);
    call!(m, kvffi_exchange_keep(exchange, peer, lease))?;
    call!(m, kvffi_exchange_let_go(exchange, peer, lease)).map(drop)
}

fn reserve(m: &mut Machine<'_>) -> Result<()> {
    let (exchange, request, peer) = (m.handle::<kvffi_exchange>(Kind::Exchange)?, request(m)?, peer_id(m)?);
    let (lists, num_lists) = lists(m)?;
    let source = kvffi_push_source { peer: peer.name, incarnation: peer.incarnation, lists, num_lists };
    let ((sources, num), deadline, out) = (m.array(&[source])?, m.number(&[5, 1000])?, m.memory(&[0]));
    call!(m, kvffi_exchange_reserve(exchange, request, 9, sources, num, deadline, out)).map(drop)
}

fn cancel(m: &mut Machine<'_>) -> Result<()> {
    let (exchange, incarnation) = (m.handle::<kvffi_exchange>(Kind::Exchange)?, own(m)?);
    let (reservation, pull, out) = (number_of(m, incarnation)?, m.number(&[1, 2])?, m.memory(&[0]).cast());
    call!(m, kvffi_exchange_cancel_reservation(exchange, reservation, out))?;
    call!(m, kvffi_exchange_cancel_pull(exchange, pull, out)).map(drop)
}

fn poll(m: &mut Machine<'_>) -> Result<()> {
    let exchange = m.handle::<kvffi_exchange>(Kind::Exchange)?;
    // SAFETY: the machine's arguments keep to what cannot be checked.
    m.make_if_any("kvffi_exchange_poll", Kind::Events, |made, error| unsafe {
        kvffi_exchange_poll(exchange, made, error)
    })?;
    let events = m.handle::<kvffi_events>(Kind::Events)?.cast_const();
    // SAFETY: alive, NULL, or readable memory.
    let len = unsafe { kvffi_events_len(events) };
    m.called("kvffi_events_len");
    let index = usize::try_from(m.number(&[0, len.saturating_sub(1) as u64])?).unwrap_or(usize::MAX);
    let event = m.sized_out::<kvffi_event>()?;
    call!(m, kvffi_events_get(events, index, event)).map(drop)
}

fn look(m: &mut Machine<'_>) -> Result<()> {
    let exchange = m.handle::<kvffi_exchange>(Kind::Exchange)?;
    let (stats, out) = (m.sized_out::<kvffi_exchange_stats>()?, m.memory(&[0]));
    call!(m, kvffi_exchange_get_stats(exchange, stats))?;
    call!(m, kvffi_exchange_get_timeout(exchange, out)).map(drop)
}
