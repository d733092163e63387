//! Sizes and offsets of the structs in the header: one table, checked in Rust and in C.

mod support;

use std::process::Command;

use support::{WARNINGS, compiler, repository, run, work_dir};

struct Layout {
    name: &'static str,
    size: usize,
    rust_size: usize,
    /// Name, offset, offset in Rust.
    fields: &'static [(&'static str, usize, usize)],
}

macro_rules! layouts {
    ($($name:ident: $size:literal { $($field:ident: $offset:literal),* $(,)? })*) => {
        &[$(Layout {
            name: stringify!($name),
            size: $size,
            rust_size: size_of::<kvffi::$name>(),
            fields: &[$((stringify!($field), $offset, std::mem::offset_of!(kvffi::$name, $field))),*],
        }),*]
    };
}

/// A frozen struct's row never changes; a growing one's gains fields at the end.
const LAYOUTS: &[Layout] = layouts! {
    kvffi_descriptor: 32 { local_storage: 0, remote_storage: 4, local_offset: 8, remote_offset: 16, len: 24 }
    kvffi_zero_range: 24 { storage: 0, reserved: 4, offset: 8, len: 16 }
    kvffi_answer_totals: 32 { num_descriptors: 0, num_zero_ranges: 8, bytes: 16, padding_bytes: 24 }
    kvffi_block_list: 32 { group: 0, reserved: 4, first: 8, blocks: 16, num_blocks: 24 }
    kvffi_request: 72 {
        struct_size: 0, op: 8, flags: 12, local: 16, num_local: 24, remote: 32, num_remote: 40, layers: 48, num_layers: 56,
        from_layer: 64, to_layer: 68
    }
    kvffi_key_value: 16 { key: 0, value: 8 }
    kvffi_worker: 72 {
        struct_size: 0, model: 8, revision: 16, extra: 24, num_extra: 32, tp_rank: 40, tp_size: 44, pp_rank: 48,
        pp_size: 52, dcp_rank: 56, dcp_size: 60, dcp_interleave: 64
    }
    kvffi_storage: 40 { struct_size: 0, base: 8, len: 16, mem: 24, device: 28, flags: 32, reserved: 36 }
    kvffi_group: 32 { struct_size: 0, block_tokens: 8, num_blocks: 16, pool: 24, usage: 28 }
    kvffi_axis: 16 { count: 0, stride: 8 }
    kvffi_layer: 32 { struct_size: 0, name: 8, group: 16, kind: 20, role: 24, flags: 28 }
    kvffi_part: 120 {
        struct_size: 0, name: 8, format: 16, storage: 24, sharding: 28, offset: 32, block_stride: 40, total_units: 48,
        first_unit: 56, num_units: 64, unit_stride: 72, tokens: 80, num_tokens: 88, content: 96,
        tokens_per_state_num: 104, tokens_per_state_den: 112
    }
    kvffi_rows: 56 {
        struct_size: 0, preset: 8, span: 12, row_bytes: 16, format: 24, tokens_per_state_num: 32,
        tokens_per_state_den: 40, page_align: 48
    }
    kvffi_page_layer: 40 { struct_size: 0, name: 8, page: 16, group: 24, role: 28, flags: 32, reserved: 36 }
    kvffi_attention: 56 {
        struct_size: 0, num_kv_heads: 8, head_size: 16, value_head_size: 24, element: 32, packing: 36, span: 40,
        flags: 44, format: 48
    }
    kvffi_state_options: 24 { struct_size: 0, conv_element: 8, state_element: 12, conv_order: 16, flags: 20 }
    kvffi_pool: 48 {
        struct_size: 0, layout: 8, mem: 12, device: 16, flags: 20, num_blocks: 24, row_align: 32, page_align: 40
    }
    kvffi_blocks: 32 { struct_size: 0, block_tokens: 8, kernel_tokens: 16, usage: 24, reserved: 28 }
    kvffi_tensor: 88 {
        struct_size: 0, ptr: 8, shape: 16, strides: 24, num_axes: 32, axes: 40, element_size: 48, parts: 56,
        num_parts: 64, mem: 72, device: 76, flags: 80, reserved: 84
    }
    kvffi_memory_range: 32 { storage: 0, mem: 4, device: 8, reserved: 12, base: 16, len: 24 }
    kvffi_region: 48 {
        storage: 0, reserved: 4, offset: 8, block_len: 16, block_stride: 24, num_blocks: 32, num_members: 40
    }
    kvffi_member: 40 { layer: 0, part: 8, group: 16, reserved: 20, offset: 24, len: 32 }
    kvffi_share: 56 {
        tp_rank: 0, pp_rank: 4, part: 8, reserved: 12, first_unit: 16, num_units: 24, run_tokens: 32, first_run: 40,
        every: 48
    }
    kvffi_pair_options: 32 { struct_size: 0, op: 8, flags: 12, max_gap: 16, min_run: 24 }
    kvffi_limits: 56 {
        struct_size: 0, descriptor_bytes: 8, request_bytes: 16, request_descriptors: 24, outstanding_requests: 32,
        in_flight_bytes: 40, in_flight_descriptors: 48
    }
    kvffi_agent_options: 72 {
        struct_size: 0, loopback: 8, library: 16, backend: 24, backend_params: 32, num_backend_params: 40,
        progress_delay_us: 48, flags: 56, reserved: 60, limits: 64
    }
    kvffi_agent_info: 40 { struct_size: 0, name: 8, incarnation: 16, generation: 24, unsettled: 32 }
    kvffi_foreign_peer: 48 { struct_size: 0, name: 8, metadata: 16, metadata_len: 24, layout: 32, generation: 40 }
    kvffi_peer_info: 56 {
        struct_size: 0, name: 8, incarnation: 16, generation: 24, unsettled: 32, locality: 40, barriers: 44,
        is_gone: 48, reserved: 52
    }
    kvffi_notification: 40 {
        sender: 0, incarnation: 8, has_incarnation: 16, reserved: 20, message: 24, message_len: 32
    }
    kvffi_transfer_options: 56 {
        struct_size: 0, notify: 8, notify_len: 16, deadline_ms: 24, request: 32, padding_bytes: 40, limits: 48
    }
    kvffi_transfer_stats: 80 {
        struct_size: 0, id: 8, bytes: 16, padding_bytes: 24, descriptors: 32, requests: 40, prepare_us: 48, post_us: 56,
        elapsed_us: 64, cause: 72, is_settled: 76
    }
    kvffi_quarantined: 88 {
        transfer: 0, request: 8, peer: 16, incarnation: 24, op: 32, cause: 36, message: 40, age_us: 48, bytes: 56,
        num_ranges: 64, in_progress: 72, unproven: 80
    }
    kvffi_quarantined_range: 40 {
        local: 0, remote: 8, len: 16, local_mem: 24, local_device: 28, remote_mem: 32, remote_device: 36
    }
    kvffi_agent_stats: 208 {
        struct_size: 0, transfers_started: 8, transfers_done: 16, failed_deadline: 24, failed_cancelled: 32,
        failed_shut_down: 40, failed_transport: 48, failed_notification: 56, transfers_refused: 64, bytes: 72,
        padding_bytes: 80, descriptors: 88, requests: 96, post_us: 104, transfer_us: 112, notifications_sent: 120,
        notifications_failed: 128, notifications_received: 136, notifications_dropped: 144, quarantine_left: 152,
        in_flight_transfers: 160, in_flight_bytes: 168, in_flight_descriptors: 176, unsettled: 184, quarantined: 192,
        quarantined_bytes: 200
    }
    kvffi_log_options: 24 { struct_size: 0, level: 8, reserved: 12, capacity: 16 }
    kvffi_log_record: 32 { time_ns: 0, level: 8, reserved: 12, target: 16, message: 24 }
    kvffi_bucket: 16 { upper_seconds: 0, count: 8 }
    kvffi_exchange_options: 128 {
        struct_size: 0, lease_ttl_ms: 8, lease_max_lifetime_ms: 16, lease_remember_ms: 24, lost_readers: 32,
        reserved: 36, heartbeat_every_ms: 40, max_registrations: 48, max_registered_blocks: 56, first_retry_ms: 64,
        max_retry_ms: 72, fetch_timeout_ms: 80, peer_idle_ttl_ms: 88, push_remember_ms: 96,
        max_ended_leases: 104, max_ended_registrations: 112, max_past_incarnations: 120
    }
    kvffi_peer_id: 16 { name: 0, incarnation: 8 }
    kvffi_wanted: 32 { struct_size: 0, what: 8, reserved: 12, incarnation: 16, wait_ms: 24 }
    kvffi_push_id: 24 { peer: 0, incarnation: 8, reservation: 16 }
    kvffi_pull_part: 64 {
        peer: 0, incarnation: 8, request: 16, lease: 24, answer: 32, descriptors: 40, num_descriptors: 48,
        padding_bytes: 56
    }
    kvffi_push_source: 32 { peer: 0, incarnation: 8, lists: 16, num_lists: 24 }
    kvffi_event: 128 {
        struct_size: 0, kind: 8, why: 12, cookie: 16, request: 24, lease: 32, pull: 40, reservation: 48, peer: 56,
        incarnation: 64, old_incarnation: 72, part: 80, status: 84, message: 88, lists: 96, num_lists: 104, data: 112,
        data_len: 120
    }
    kvffi_exchange_stats: 480 {
        struct_size: 0, lease_held: 8, lease_live: 16, lease_all_read: 24, lease_readers_lost: 32,
        lease_expired: 40, lease_aborted: 48, lease_completions: 56, lease_duplicate_completions: 64,
        lease_late_completions: 72, lease_premature_completions: 80, lease_unknown_completions: 88,
        lease_extensions: 96, lease_stale_heartbeats: 104, push_registered: 112, push_waiting: 120,
        push_writing: 128, push_duplicates: 136, push_refused: 144, push_written: 152, push_released: 160,
        push_expired: 168, pull_started: 176, pull_live: 184, pull_quarantined: 192, pull_pulled: 200,
        pull_lease_ended: 208, pull_deadline: 216, pull_transfer: 224, pull_unreachable: 232, pull_cancelled: 240,
        pull_returned: 248, pull_stray_confirmations: 256, reservation_reserved: 264, reservation_live: 272,
        reservation_quarantined: 280, reservation_arrived: 288, reservation_failed: 296, reservation_expired: 304,
        reservation_returned: 312, reservation_duplicates: 320, reservation_unknown: 328, peer_ready: 336,
        peer_not_ready: 344, peer_fetches: 352, peer_failed_fetches: 360, peer_lost: 368, peer_replaced: 376,
        peer_stale: 384, peer_idle: 392, message_sent: 400, message_not_sent: 408, message_received: 416,
        message_malformed: 424, message_unsupported: 432, message_anonymous: 440, refused_chunks: 448,
        lease_given_up: 456, message_repeated: 464, message_unanswered: 472
    }
};

#[test]
fn structs_lie_in_rust_as_the_table_says() {
    for layout in LAYOUTS {
        assert_eq!(layout.rust_size, layout.size, "{}", layout.name);
        for (field, offset, in_rust) in layout.fields {
            assert_eq!(in_rust, offset, "{}.{field}", layout.name);
        }
    }
}

#[test]
fn structs_lie_in_c_as_the_table_says() {
    let mut source = "#include \"kvffi.h\"\n".to_owned();
    for layout in LAYOUTS {
        let name = layout.name;
        source += &format!("_Static_assert(sizeof({name}) == {}, \"size of {name}\");\n", layout.size);
        for (field, offset, _) in layout.fields {
            source += &format!("_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");\n");
        }
    }
    let file = work_dir("layout").join("layout.c");
    std::fs::write(&file, source).expect("the target folder is writable");
    let mut command = Command::new(compiler("c"));
    command.arg("-std=c11").args(WARNINGS).arg("-fsyntax-only").arg("-I").arg(repository("include"));
    run(command.arg(file));
}

#[test]
fn every_struct_of_the_header_is_in_the_table() {
    let header = std::fs::read_to_string(repository("include/kvffi.h")).expect("the header");
    let mut num_structs = 0;
    for line in header.lines().filter(|line| line.starts_with("typedef struct ") && line.ends_with('{')) {
        let name = line.split_whitespace().nth(2).expect("a struct has a name");
        let layout = LAYOUTS.iter().find(|layout| layout.name == name);
        let layout = layout.unwrap_or_else(|| panic!("{name} is not in LAYOUTS"));
        let body = header.split_once(line).expect("the line").1.split_once("\n}").expect("an end").0;
        let num_fields = body.lines().filter(|line| line.ends_with(';') && !line.trim().starts_with('*')).count();
        assert_eq!(layout.fields.len(), num_fields, "{name}");
        num_structs += 1;
    }
    assert_eq!(num_structs, LAYOUTS.len());
}
