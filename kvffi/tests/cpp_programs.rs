//! C++ programs that have only `kvffi.hpp`.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::{Link, build_c, build_c_with, repository, run, under_valgrind, under_valgrind_to_the_end, work_dir};

fn cpp_test(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp").join(name)
}

fn stdout(output: Output) -> String {
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn caches_are_described_in_cpp_without_a_pointer_and_a_length() {
    let program = build_c(&cpp_test("kinds.cpp"), &work_dir("cpp_kinds"), Link::Shared);
    assert_eq!(stdout(run(&mut Command::new(&program))), "every kind has its place\n");
    under_valgrind(&program);
}

#[test]
fn bytes_move_and_failures_are_told_apart_in_cpp() {
    let program = build_c(&cpp_test("transfers.cpp"), &work_dir("cpp_transfers"), Link::Shared);
    assert_eq!(stdout(run(&mut Command::new(&program))), "bytes moved both ways\n");
    // What listens to the library's log records stays.
    under_valgrind_to_the_end(&program);
}

#[test]
fn blocks_change_hands_under_leases_in_cpp() {
    let program = build_c(&cpp_test("exchange.cpp"), &work_dir("cpp_exchange"), Link::Shared);
    assert_eq!(stdout(run(&mut Command::new(&program))), "blocks changed hands\n");
    under_valgrind(&program);
}

#[test]
fn every_function_of_the_library_can_be_reached_from_cpp() {
    let header = std::fs::read_to_string(repository("include/kvffi.hpp")).expect("the header");
    let symbols = std::fs::read_to_string(repository("kvffi/symbols.txt")).expect("symbols.txt");
    let names: Vec<&str> =
        header.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.starts_with("kvffi_")).collect();
    // A number that an exception has from its call, and one that a text says better.
    let known = ["kvffi_error_status", "kvffi_version"];
    let missing: Vec<&str> = symbols
        .lines()
        .filter(|name| name.starts_with("kvffi_") && !names.contains(name) && !known.contains(name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "kvffi.hpp wraps every function of kvffi.h");
}

/// With the address sanitizer in the C++ half; says so where the compiler has none.
#[test]
fn cpp_programs_are_clean_under_the_address_sanitizer() {
    for source in ["kinds.cpp", "transfers.cpp", "exchange.cpp", "results.cpp"] {
        let dir = work_dir(&format!("cpp_asan_{source}"));
        match build_c_with(&cpp_test(source), &dir, Link::Shared, &["-fsanitize=address,undefined"]) {
            Ok(program) => drop(run(&mut Command::new(program))),
            Err(why) => println!("skipped: the compiler has no address sanitizer: {why}"),
        }
    }
}

/// The text after a word at the start of a line.
fn text_of<'a>(output: &'a str, who: &str) -> &'a str {
    let line = output.lines().find_map(|line| line.strip_prefix(who));
    line.unwrap_or_else(|| panic!("nothing of {who} in\n{output}"))
}

/// Real processes over NIXL: each token follows from every cached byte, so the text is the same only if all bytes are.
#[test]
fn the_toy_engine_writes_the_same_text_from_a_cache_that_was_moved() {
    let engine = build_c(&repository("examples/cpp/engine/main.cpp"), &work_dir("engine"), Link::Shared);
    let mut texts = Vec::new();
    for (prefill, decode, reads) in [("2", "4", 4), ("4", "2", 4), ("8", "1", 8)] {
        let output = run(Command::new(&engine).args(["--prefill-tp", prefill, "--decode-tp", decode]));
        let output = stdout(output);
        assert_eq!(text_of(&output, "alone:"), text_of(&output, "apart:"), "{output}");
        // Five blocks of 16 tokens hold the prompt: 2 layers, K and V, 8 heads, 16 bytes.
        let moved = format!("TP{prefill} -> TP{decode}: {reads} reads, 160 descriptors, 40960 bytes");
        assert!(output.contains(&moved), "{output}");
        assert!(output.contains(&format!("all blocks free after {reads} completions")), "{output}");
        texts.push(text_of(&output, "alone:").to_owned());
    }
    assert!(texts.iter().all(|text| *text == texts[0] && text.split_whitespace().count() == 12), "{texts:?}");
}

#[test]
fn one_wrong_byte_gives_the_toy_engine_another_text() {
    let engine = build_c(&repository("examples/cpp/engine/main.cpp"), &work_dir("engine_spoilt"), Link::Shared);
    let output = Command::new(&engine).arg("--spoil").output().expect("the engine");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let output = stdout(output);
    assert_ne!(text_of(&output, "alone:"), text_of(&output, "apart:"));
    assert!(output.contains("ANOTHER TEXT"), "{output}");
}
