//! C and C++ programs that have only the headers: they compile without a warning, run, and leave nothing behind.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{
    Link, build_c, build_c_with, repository, run, under_valgrind, under_valgrind_to_the_end, under_valgrind_with,
    work_dir,
};

fn c_test(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

fn stdout(program: &Path) -> String {
    String::from_utf8(run(&mut Command::new(program)).stdout).expect("UTF-8")
}

#[test]
fn the_plan_example_prints_the_merged_descriptors() {
    let cpp = repository("examples/cpp/01_plan.cpp");
    let expected = "2 descriptors, 442368 bytes\n\
        local storage 0 + 737280 <- remote storage 0 + 147456, 294912 bytes\n\
        local storage 0 + 1327104 <- remote storage 0 + 1179648, 147456 bytes\n";
    for link in [Link::Shared, Link::Static] {
        for source in [&repository("examples/c/01_plan.c"), &cpp] {
            let program =
                build_c(source, &work_dir(&format!("plan_{link:?}_{}", source.ends_with("01_plan.cpp"))), link);
            assert_eq!(stdout(&program), expected, "{link:?} {}", source.display());
            under_valgrind(&program);
        }
    }
}

#[test]
fn the_describe_example_explains_the_split_row() {
    let dir = work_dir("describe_example");
    let program = build_c(&repository("examples/c/02_describe.c"), &dir, Link::Shared);
    let text = stdout(&program);
    for line in [
        "prefill: region at 0: 10 blocks of 147456 bytes, 147456 apart",
        "decode: region at 0: 10 blocks of 73728 bytes, 73728 apart",
        "decode: region at 737280: 10 blocks of 73728 bytes, 73728 apart",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(text.contains("2 descriptors a block") && text.contains("layers.1"), "{text}");
    under_valgrind(&program);
}

/// Not under valgrind, which reports errors inside NIXL and UCX: `transfers.c` makes the same calls on a loopback.
#[test]
fn the_transfer_example_moves_every_byte_between_two_processes_over_nixl() {
    for link in [Link::Shared, Link::Static] {
        let dir = work_dir(&format!("transfer_example_{link:?}"));
        let program = build_c(&repository("examples/c/03_transfer.c"), &dir, link);
        assert_eq!(stdout(&program), "221184 bytes read, 0 wrong\n", "{link:?}");
    }
}

#[test]
fn transfers_end_as_done_failed_settled_or_failed_unsettled() {
    let program = build_c(&c_test("transfers.c"), &work_dir("transfers"), Link::Shared);
    assert_eq!(stdout(&program), "transfers end as they should\n");
    under_valgrind(&program);
}

#[test]
fn the_leases_example_hands_blocks_back_and_tells_who_comes_late() {
    let program = build_c(&repository("examples/c/04_leases.c"), &work_dir("leases_example"), Link::Shared);
    let expected = "prefill: blocks 1 are free, all have read them\n\
        decode: blocks 1 may be used\n\
        right bytes\n\
        prefill: blocks 2 are free, nobody came in time\n\
        decode: KVFFI_ERR_LEASE_ENDED\n\
        decode: blocks 2 come back, not to be used\n";
    // On NIXL; and without it, under valgrind too.
    assert_eq!(stdout(&program), expected);
    let output = run(Command::new(&program).arg("loopback"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    under_valgrind_with(&program, &["loopback"]);
}

#[test]
fn pulls_pushes_and_peers_of_an_exchange_end_as_they_should() {
    let program = build_c(&c_test("exchange.c"), &work_dir("exchange"), Link::Shared);
    assert_eq!(stdout(&program), "blocks change hands as they should\n");
    under_valgrind(&program);
}

#[test]
fn every_bad_call_on_exchanges_gets_a_status_and_a_text() {
    let program = build_c(&c_test("bad_exchange.c"), &work_dir("bad_exchange"), Link::Static);
    assert_eq!(stdout(&program), "every bad call on exchanges was answered\n");
    under_valgrind(&program);
}

#[test]
fn log_records_are_taken_and_bounded() {
    for link in [Link::Shared, Link::Static] {
        let program = build_c(&c_test("logs.c"), &work_dir(&format!("logs_{link:?}")), link);
        assert_eq!(stdout(&program), "records are taken\n");
        // tracing keeps the one subscriber of the process.
        under_valgrind_to_the_end(&program);
    }
}

#[test]
fn process_defaults_are_set_on_loading_and_never_override() {
    for link in [Link::Shared, Link::Static] {
        let program = build_c(&c_test("defaults.c"), &work_dir(&format!("defaults_{link:?}")), link);
        let said = |command: &mut Command| String::from_utf8(run(command).stdout).expect("UTF-8");
        let unset = said(Command::new(&program).env_remove("UCX_LOG_FILE"));
        assert_eq!(unset, "stderr stderr\n");
        assert_eq!(said(Command::new(&program).env("UCX_LOG_FILE", "/dev/null")), "/dev/null /dev/null\n");
    }
}

#[test]
fn every_bad_call_on_agents_and_transfers_gets_a_status_and_a_text() {
    let program = build_c(&c_test("bad_agents.c"), &work_dir("bad_agents"), Link::Shared);
    assert_eq!(stdout(&program), "every bad call on agents was answered\n");
    under_valgrind(&program);
}

#[test]
fn agents_are_shared_by_threads() {
    let program = build_c(&c_test("agent_threads.c"), &work_dir("agent_threads"), Link::Static);
    assert_eq!(stdout(&program), "threads share agents\n");
}

#[test]
fn a_child_process_is_told_that_agents_are_its_parents() {
    let program = build_c(&c_test("fork.c"), &work_dir("fork"), Link::Shared);
    assert_eq!(stdout(&program), "what was forked is the parent's\n");
}

/// Not under valgrind, which reports errors inside NIXL and UCX.
#[test]
fn a_child_process_is_told_that_nixl_is_its_parents() {
    let program = build_c(&c_test("fork_nixl.c"), &work_dir("fork_nixl"), Link::Shared);
    assert_eq!(stdout(&program), "NIXL is the parent's\n");
}

#[test]
fn a_spec_built_in_c_equals_its_json_form() {
    let program = build_c(&c_test("builder.c"), &work_dir("builder"), Link::Shared);
    assert_eq!(stdout(&program), "built specs equal their JSON\n");
    under_valgrind(&program);
}

#[test]
fn threads_share_plans_and_are_told_about_busy_answers() {
    let program = build_c(&c_test("threads.c"), &work_dir("threads"), Link::Static);
    assert_eq!(stdout(&program), "threads share what they may\n");
}

/// With the address sanitizer in the C half; says so where the compiler has none.
#[test]
fn programs_are_clean_under_the_address_sanitizer() {
    for source in [
        "bad_input.c",
        "builder.c",
        "transfers.c",
        "bad_agents.c",
        "fork.c",
        "agent_threads.c",
        "exchange.c",
        "bad_exchange.c",
        "requests.c",
    ] {
        let dir = work_dir(&format!("asan_{source}"));
        match build_c_with(&c_test(source), &dir, Link::Shared, &["-fsanitize=address,undefined"]) {
            Ok(program) => drop(stdout(&program)),
            Err(why) => println!("skipped: the compiler has no address sanitizer: {why}"),
        }
    }
}

#[test]
fn requests_choose_layers() {
    let program = build_c(&c_test("requests.c"), &work_dir("requests"), Link::Shared);
    assert_eq!(stdout(&program), "requests say what they move\n");
    under_valgrind(&program);
}

#[test]
fn every_bad_input_gets_a_status_and_a_text() {
    let program = build_c(&c_test("bad_input.c"), &work_dir("bad_input"), Link::Shared);
    assert_eq!(stdout(&program), "every bad input was answered\n");
    under_valgrind(&program);
}

#[test]
fn cpp_programs_may_do_without_exceptions() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp/results.cpp");
    let program = build_c_with(&source, &work_dir("results"), Link::Shared, &["-fno-exceptions"]).unwrap();
    assert_eq!(stdout(&program), "results instead of exceptions\n");
    under_valgrind(&program);
}

#[test]
fn examples_are_short() {
    let mut folders = vec![repository("examples/c"), repository("examples/cpp")];
    let mut looked_at = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let lines = std::fs::read_to_string(&path).expect("an example").lines().count();
            assert!(lines < 150, "{} has {lines} lines", path.display());
            looked_at += 1;
        }
    }
    assert!(looked_at >= 10);
}
