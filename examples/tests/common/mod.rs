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

/// Every page of the repository, by its path.
pub fn pages() -> Vec<String> {
    fn walk(folder: &Path, name: &str, pages: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let file = entry.file_name().to_string_lossy().into_owned();
            let name = if name.is_empty() { file.clone() } else { format!("{name}/{file}") };
            let left_out = file.starts_with('.') || file == "target" || file == "shared";
            if entry.file_type().unwrap().is_dir() && !left_out {
                walk(&entry.path(), &name, pages);
            } else if file.ends_with(".md") {
                pages.push(name);
            }
        }
    }
    let mut pages = Vec::new();
    walk(&repository(), "", &mut pages);
    pages.sort();
    pages
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
