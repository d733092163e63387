//! A `struct_size` below the size that a struct was first released with is an error, whatever the struct.

mod support;

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::process::Command;
use std::ptr::{null, null_mut};

use kvffi::*;
use support::{compiler, repository, run, work_dir};

/// A loopback, an agent on it that is connected to another, and what hangs on them.
struct Objects {
    spec: *mut kvffi_spec,
    builder: *mut kvffi_spec_builder,
    arrangement: *mut kvffi_arrangement,
    tensors: *mut kvffi_tensors,
    page: *mut kvffi_page,
    pair: *mut kvffi_pair,
    answer: *mut kvffi_answer,
    agent: *mut kvffi_agent,
    peer: *mut kvffi_peer,
    transfer: *mut kvffi_transfer,
    exchange: *mut kvffi_exchange,
    events: *mut kvffi_events,
}

const JSON: &str = r#"{"version": 1, "fingerprint": {"model": "m"},
    "storages": [{"base": BASE, "len": 256, "mem": "dram"}],
    "groups": [{"pool": 0, "block_tokens": 4, "num_blocks": 4}],
    "layers": [{"name": "l", "group": 0, "kind": "mla", "parts": [{"name": "latent", "storage": 0, "offset": 0,
        "block_stride": 64, "sharding": "replicated", "units": {"count": 1, "stride": 32},
        "tokens": [{"count": 4, "stride": 8}], "content": 8}]}]}"#;

fn ok(status: kvffi_status) {
    assert_eq!(status, KVFFI_OK);
}

/// All zero but for its size: what an `_INIT` macro makes.
fn init<T: Copy>() -> T {
    // SAFETY: the structs of the header are valid when all their bytes are 0, and begin with their size.
    unsafe {
        let mut value = std::mem::zeroed::<T>();
        (&raw mut value).cast::<usize>().write(size_of::<T>());
        value
    }
}

fn objects() -> Objects {
    let cache = || Box::leak(vec![0u8; 256].into_boxed_slice()).as_ptr().expose_provenance();
    let json = || JSON.replace("BASE", &cache().to_string());
    // SAFETY: every pointer is to a live value of the right type.
    unsafe {
        let mut objects = std::mem::zeroed::<Objects>();
        let (mut network, mut bytes, mut other_spec) = (null_mut(), null_mut(), null_mut());
        ok(kvffi_loopback_new(&raw mut network, null_mut()));
        let agent = |name: &CStr, json: &str, spec: &mut *mut kvffi_spec| {
            let options = kvffi_agent_options { loopback: network, ..init() };
            let (mut agent, mut plan) = (null_mut(), null_mut());
            ok(kvffi_agent_new(name.as_ptr(), &raw const options, &raw mut agent, null_mut()));
            ok(kvffi_spec_from_json(json.as_ptr().cast(), json.len(), spec, null_mut()));
            ok(kvffi_local_plan_new(*spec, 0, &raw mut plan, null_mut()));
            ok(kvffi_agent_register(agent, plan, null_mut()));
            agent
        };
        objects.agent = agent(c"decode", &json(), &mut objects.spec);
        let other = agent(c"prefill", &json(), &mut other_spec);
        ok(kvffi_agent_export(other, &raw mut bytes, null_mut()));
        let blob = (kvffi_bytes_data(bytes), kvffi_bytes_len(bytes));
        ok(kvffi_agent_connect(objects.agent, blob.0, blob.1, &raw mut objects.peer, null_mut()));
        let (agent, peer) = (objects.agent, objects.peer);
        ok(kvffi_agent_start(agent, peer, KVFFI_OP_READ, null(), 0, null(), &raw mut objects.transfer, null_mut()));
        ok(kvffi_transfer_wait(objects.transfer, 60_000, null_mut()));
        ok(kvffi_exchange_new(other, null(), &raw mut objects.exchange, null_mut()));
        let mut lease = 0;
        ok(kvffi_exchange_hold(objects.exchange, c"r".as_ptr(), 5, 0, 0, &raw mut lease, null_mut()));
        ok(kvffi_exchange_poll(objects.exchange, &raw mut objects.events, null_mut()));
        ok(kvffi_pair_new(objects.spec, other_spec, null(), &raw mut objects.pair, null_mut()));
        ok(kvffi_answer_new(&raw mut objects.answer, null_mut()));
        let worker = kvffi_worker { model: c"m".as_ptr(), ..init() };
        ok(kvffi_spec_builder_new(&raw const worker, &raw mut objects.builder, null_mut()));
        ok(kvffi_arrangement_new(&raw const worker, &raw mut objects.arrangement, null_mut()));
        ok(kvffi_tensors_new(&raw const worker, &raw mut objects.tensors, null_mut()));
        let rows = kvffi_rows { preset: KVFFI_ROWS_FP8, ..init() };
        ok(kvffi_page_new_mla(&raw const rows, &raw mut objects.page, null_mut()));
        objects
    }
}

/// A call that takes the struct, or fills it.
type Call = unsafe fn(&Objects, *mut c_void, *mut *mut kvffi_error) -> kvffi_status;

/// A struct that grows: its name, its size when it was first released, and a call with it.
struct Row(&'static str, usize, Call);

macro_rules! rows {
    ($($name:ident: $first:literal, |$objects:pat_param, $value:ident, $error:ident| $call:expr;)*) => {
        &[$(Row(stringify!($name), $first, {
            /// # Safety
            ///
            /// `value` is readable and writable for as many bytes as its first word says.
            unsafe fn call($objects: &Objects, value: *mut c_void, $error: *mut *mut kvffi_error) -> kvffi_status {
                let $value: *mut $name = value.cast();
                // SAFETY: by contract; the objects live as long as the test.
                unsafe { $call }
            }
            call
        })),*]
    };
}

/// The numbers never change. Of a new struct it is the size that it has.
const ROWS: &[Row] = rows! {
    kvffi_request: 48, |o, value, error| kvffi_pair_answer(o.pair, value, o.answer, error);
    kvffi_pair_options: 32, |o, value, error| kvffi_pair_new(o.spec, o.spec, value, &mut null_mut(), error);
    kvffi_worker: 72, |_, value, error| kvffi_spec_builder_new(value, &mut null_mut(), error);
    kvffi_storage: 40, |o, value, error| kvffi_spec_builder_add_storage(o.builder, value, &mut 0, error);
    kvffi_group: 32, |o, value, error| kvffi_spec_builder_add_group(o.builder, value, &mut 0, error);
    kvffi_layer: 32, |o, value, error| kvffi_spec_builder_add_layer(o.builder, value, null_mut(), error);
    kvffi_part: 120, |o, value, error| kvffi_spec_builder_add_part(o.builder, 0, value, error);
    kvffi_rows: 56, |_, value, error| kvffi_page_new_mla(value, &mut null_mut(), error);
    kvffi_page_layer: 40, |o, value, error| kvffi_arrangement_add_layer(o.arrangement, value, error);
    kvffi_attention: 56, |_, value, error| kvffi_page_new_attention(value, &mut null_mut(), error);
    kvffi_state_options: 24, |_, value, error| kvffi_page_new_mamba1(1, 1, 2, value, &mut null_mut(), error);
    kvffi_pool: 48, |o, value, error| kvffi_arrangement_add_pool(o.arrangement, value, error);
    kvffi_blocks: 32, |o, value, error| kvffi_arrangement_add_group(o.arrangement, value, null_mut(), error);
    kvffi_tensor: 88, |o, value, error| kvffi_tensors_add_tensor(o.tensors, 0, value, error);
    kvffi_agent_options: 72, |_, value, error| kvffi_agent_new(c"a".as_ptr(), value, &mut null_mut(), error);
    kvffi_agent_info: 40, |o, value, error| kvffi_agent_get_info(o.agent, value, error);
    kvffi_limits: 56, |_, value, error| {
        let options = kvffi_agent_options { limits: value, ..init() };
        kvffi_agent_new(c"a".as_ptr(), &raw const options, &mut null_mut(), error)
    };
    kvffi_peer_info: 56, |o, value, error| kvffi_peer_get_info(o.peer, value, error);
    kvffi_foreign_peer: 48, |o, value, error| kvffi_agent_connect_foreign(o.agent, value, &mut null_mut(), error);
    kvffi_transfer_options: 56, |o, value, error| {
        kvffi_agent_start(o.agent, o.peer, KVFFI_OP_READ, null(), 0, value, &mut null_mut(), error)
    };
    kvffi_transfer_stats: 80, |o, value, error| kvffi_transfer_get_stats(o.transfer, value, error);
    kvffi_agent_stats: 208, |o, value, error| kvffi_agent_get_stats(o.agent, value, error);
    kvffi_exchange_options: 96, |o, value, error| kvffi_exchange_new(o.agent, value, &mut null_mut(), error);
    kvffi_wanted: 32, |o, value, error| kvffi_exchange_want(o.exchange, c"a".as_ptr(), value, error);
    kvffi_event: 128, |o, value, error| kvffi_events_get(o.events, 0, value, error);
    kvffi_exchange_stats: 456, |o, value, error| kvffi_exchange_get_stats(o.exchange, value, error);
    kvffi_log_options: 24, |_, value, error| kvffi_logs_new(value, &mut null_mut(), error);
};

#[test]
fn a_struct_that_is_smaller_than_it_ever_was_is_refused_with_both_sizes() {
    let objects = objects();
    for Row(name, first, call) in ROWS {
        for size in (0..*first).step_by(8).chain([1, 4, first - 1]) {
            let mut words = vec![0u64; 1024];
            words[0] = size as u64;
            let mut error = null_mut();
            // SAFETY: the value is longer than it says.
            let status = unsafe { call(&objects, words.as_mut_ptr().cast(), &raw mut error) };
            assert_eq!(status, KVFFI_ERR_STRUCT_SIZE, "{name} of {size} bytes");
            assert!(words[1..].iter().all(|word| *word == 0), "{name} of {size} bytes was written to");
            // SAFETY: the error that was handed out, freed once.
            let text = unsafe { CStr::from_ptr(kvffi_error_message(error)).to_str().unwrap().to_owned() };
            // SAFETY: as above.
            unsafe { kvffi_error_free(error) };
            let expected = format!("struct_size {size} is no size of {name}, whose first version has {first} bytes");
            assert!(text.contains(&expected), "{text}");
        }
        // What the first clients set is taken as far as its size goes: whatever is wrong is something else.
        let mut words = vec![0u64; 1024];
        words[0] = *first as u64;
        // SAFETY: as above.
        let status = unsafe { call(&objects, words.as_mut_ptr().cast(), null_mut()) };
        assert_ne!(status, KVFFI_ERR_STRUCT_SIZE, "{name} of {first} bytes");
    }
}

/// Growing structs of a header with their sizes.
fn sizes(header: &std::path::Path) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(header.join("kvffi.h")).expect("a header");
    let names = text.lines().filter_map(|line| line.strip_prefix("#define KVFFI_")?.split_once("_INIT { sizeof("));
    let mut source = "#include <stdio.h>\n#include \"kvffi.h\"\nint main(void) {\n".to_owned();
    for name in names.map(|(_, rest)| rest.split_once(')').expect("a macro has an end").0) {
        source += &format!("    printf(\"{name} %zu\\n\", sizeof({name}));\n");
    }
    source += "    return 0;\n}\n";
    let dir = work_dir("struct_sizes");
    std::fs::write(dir.join("sizes.c"), source).expect("the target folder is writable");
    let program = dir.join("sizes");
    run(Command::new(compiler("c")).arg("-I").arg(header).arg(dir.join("sizes.c")).arg("-o").arg(&program));
    let said = String::from_utf8(run(&mut Command::new(program)).stdout).expect("UTF-8");
    let line = |line: &str| {
        let (name, size) = line.split_once(' ').expect("two words");
        (name.to_owned(), size.parse().expect("a number"))
    };
    said.lines().map(line).collect()
}

#[test]
fn the_table_has_every_struct_that_grows_with_its_size_in_the_oldest_header() {
    let mut first = sizes(&repository("include"));
    for folder in std::fs::read_dir(repository("kvffi/tests/frozen")).expect("the folder") {
        let folder = folder.expect("an entry").path();
        for (name, size) in if folder.is_dir() { sizes(&folder) } else { BTreeMap::new() } {
            let known = first.get_mut(&name).unwrap_or_else(|| panic!("{name} is in no header any more"));
            *known = size.min(*known);
        }
    }
    let table: BTreeMap<String, usize> = ROWS.iter().map(|Row(name, first, _)| ((*name).to_owned(), *first)).collect();
    assert_eq!(table, first);
}
