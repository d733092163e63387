//! Every status and every kind of event of the header has its name.

mod support;

use std::ffi::{CStr, c_char};

use support::repository;

/// Constants of the header that begin so, with their numbers.
fn constants(prefix: &str) -> Vec<(String, i32)> {
    let header = std::fs::read_to_string(repository("include/kvffi.h")).expect("the header");
    let constant = |line: &str| {
        let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
        let number = value.trim_matches(['(', ')']).parse().ok()?;
        name.starts_with(prefix).then(|| (name.to_owned(), number))
    };
    let found: Vec<_> = header.lines().filter_map(constant).collect();
    assert!(found.len() > 10);
    found
}

fn text(name: *const c_char) -> String {
    // SAFETY: the texts are static.
    unsafe { CStr::from_ptr(name) }.to_str().expect("UTF-8").to_owned()
}

#[test]
fn every_status_and_every_event_is_named_as_in_the_header() {
    for (name, number) in constants("KVFFI_ERR_") {
        assert_eq!(text(kvffi::kvffi_status_name(number)), name);
    }
    for (name, number) in constants("KVFFI_EVENT_") {
        assert_eq!(text(kvffi::kvffi_event_name(number)), name);
    }
    assert_eq!(text(kvffi::kvffi_event_name(-1)), "unknown event");
    assert_eq!(text(kvffi::kvffi_event_name(i32::MAX)), "unknown event");
}
