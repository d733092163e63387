//! Where things are.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of the repository.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A program that the same build left beside the tests.
fn built(path: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).unwrap().join(path);
    assert!(built.exists(), "{} is missing; build it with the whole workspace: make test", built.display());
    built
}

/// What the `kvplan` command prints in the root of the repository.
pub fn kvplan(args: &[&str]) -> String {
    run(Command::new(built("kvplan")).args(args))
}

/// What an example prints.
pub fn example(name: &str) -> String {
    run(&mut Command::new(built("examples").join(name)))
}

fn run(command: &mut Command) -> String {
    let output = command.current_dir(repository()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
