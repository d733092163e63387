//! What the shared library is called and which symbols it has.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use support::{has, library_dir, repository, run, soname};

fn listed() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("symbols.txt");
    let text = std::fs::read_to_string(file).expect("symbols.txt");
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_library_exports_what_the_list_says_and_nothing_else() {
    if !has("nm") {
        println!("skipped: nm is not installed, exported symbols were not looked at");
        return;
    }
    let output = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library_dir().join("libkvffi.so")));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let exported: BTreeSet<String> =
        text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect();
    assert_eq!(exported, listed(), "kvffi/symbols.txt lists what is exported; taking one away breaks the ABI");
}

#[test]
fn the_list_is_what_the_header_declares() {
    let header = std::fs::read_to_string(repository("include/kvffi.h")).expect("the header");
    let code: Vec<&str> = header.lines().filter(|line| !line.starts_with([' ', '/', '#'])).collect();
    let declared: BTreeSet<String> = code
        .iter()
        .filter_map(|line| line.split_once('('))
        .filter_map(|(start, _)| start.rsplit([' ', '*']).next())
        .map(str::to_owned)
        .collect();
    assert_eq!(declared, listed());
}

#[test]
fn programs_ask_for_the_library_by_its_abi_version() {
    if !has("readelf") {
        println!("skipped: readelf is not installed, the library's name was not looked at");
        return;
    }
    let output = run(Command::new("readelf").arg("-d").arg(library_dir().join("libkvffi.so")));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains(&format!("soname: [{}]", soname())), "{text}");
}
