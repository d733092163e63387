//! C++ programs that have only `kvffi.hpp`.

mod support;

use std::path::Path;
use std::process::Command;

use support::{Link, build_c, run, under_valgrind, work_dir};

#[test]
fn caches_are_described_in_cpp_without_a_pointer_and_a_length() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp/kinds.cpp");
    let program = build_c(&source, &work_dir("cpp_kinds"), Link::Shared);
    let text = String::from_utf8(run(&mut Command::new(&program)).stdout).expect("UTF-8");
    assert_eq!(text, "every kind has its place\n");
    under_valgrind(&program);
}
