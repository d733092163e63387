//! The commands that pages name: their targets are in the Makefile, their benchmarks, tests and examples exist.

mod common;

use std::path::PathBuf;

use common::{pages, read, repository};

/// Pieces of code in a page: lines of blocks, and spans in the text, which may go over line ends.
fn code(page: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut paragraph = String::new();
    let mut fence: Option<&str> = None;
    for line in page.lines().chain([""]) {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language) };
        } else if let Some(language) = fence {
            if !matches!(language, "rust" | "c" | "cpp" | "json" | "python") {
                pieces.push(line.to_owned());
            }
        } else if line.starts_with("    ") {
            pieces.push(line.to_owned());
        } else if line.is_empty() {
            pieces.extend(paragraph.split('`').skip(1).step_by(2).map(str::to_owned));
            paragraph.clear();
        } else {
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    pieces
}

/// The commands of a piece of code, as words.
fn commands(piece: &str) -> Vec<Vec<&str>> {
    let piece = piece.split(" #").next().unwrap_or_default();
    piece
        .split("&&")
        .flat_map(|part| part.split(';'))
        .map(|command| {
            let words = command.split_whitespace().map(|word| word.trim_matches(['\'', '"']));
            words.skip_while(|word| *word == "$" || word.contains('=')).collect()
        })
        .collect()
}

/// Targets that the Makefile's `.PHONY` names.
fn targets(makefile: &str) -> Vec<&str> {
    let line = makefile.lines().find_map(|line| line.strip_prefix(".PHONY:")).expect("the list of targets");
    line.split_whitespace().collect()
}

/// Folders and manifests of all crates.
fn crates() -> Vec<(PathBuf, String)> {
    let folders = std::fs::read_dir(repository()).unwrap().map(|entry| entry.unwrap().path());
    folders
        .filter_map(|folder| Some((folder.clone(), std::fs::read_to_string(folder.join("Cargo.toml")).ok()?)))
        .collect()
}

/// Whether a crate, of this name if one is given, has such a target.
fn exists(package: Option<&str>, kind: &str, name: &str) -> bool {
    let folder = match kind {
        "bench" => "benches",
        "example" => "examples",
        "test" => "tests",
        _ => "src/bin",
    };
    crates().iter().any(|(root, manifest)| {
        let named = |name: &str| format!("name = \"{name}\"\n");
        let section =
            manifest.split(&format!("[[{kind}]]\n")).skip(1).find(|section| section.starts_with(&named(name)));
        let path = section.and_then(|section| section.lines().nth(1)?.strip_prefix("path = \"")?.strip_suffix('"'));
        let files = match path {
            Some(path) => vec![path.to_owned()],
            None => vec![format!("{folder}/{name}.rs"), format!("{folder}/{name}/main.rs")],
        };
        package.is_none_or(|package| manifest.contains(&named(package)))
            && files.iter().any(|file| root.join(file).is_file())
    })
}

#[test]
fn every_make_target_that_a_page_names_is_in_the_makefile() {
    let makefile = read("Makefile");
    let targets = targets(&makefile);
    let mut found = 0;
    for page in pages() {
        for piece in code(&read(&page)) {
            for command in commands(&piece) {
                if let ["make", target, ..] = command[..] {
                    assert!(targets.contains(&target), "{page}: {piece}");
                    found += 1;
                }
            }
        }
    }
    assert!(found >= 5, "{found} commands");
}

#[test]
fn every_make_target_is_defined_and_described_at_the_head_of_the_makefile() {
    let makefile = read("Makefile");
    for target in targets(&makefile) {
        assert!(makefile.contains(&format!("\n{target}:")), "{target} is not defined");
        assert!(makefile.contains(&format!("\n#   make {target} ")), "{target} is not described");
    }
}

#[test]
fn every_benchmark_test_example_and_program_that_a_page_names_exists() {
    let mut found = 0;
    for page in pages() {
        for piece in code(&read(&page)) {
            for command in commands(&piece) {
                let after = |flags: &[&str]| {
                    let at = command.iter().position(|word| flags.contains(word))?;
                    command.get(at + 1).copied()
                };
                let package = after(&["-p", "--package"]);
                for kind in ["bench", "example", "test", "bin"] {
                    let flag = format!("--{kind}");
                    // As in `ARGS='--bench settling'`.
                    let quoted = format!("ARGS='{flag}");
                    if let Some(name) = after(&[&flag, &quoted]) {
                        assert!(exists(package, kind, name), "{page}: {piece}");
                        found += 1;
                    }
                }
            }
        }
    }
    assert!(found >= 4, "{found} commands");
}

#[test]
fn pages_that_build_against_nixl_with_bare_cargo_name_the_environment() {
    let mut found = 0;
    for page in pages() {
        let text = read(&page);
        let bare = |command: &Vec<&str>| {
            matches!(command[..], ["cargo", "run" | "bench" | "test" | "build", ..])
                && command.iter().any(|word| matches!(*word, "kvnixl" | "examples"))
        };
        if code(&text).iter().any(|piece| commands(piece).iter().any(bare)) {
            assert!(text.contains(".deps/env.sh"), "{page}");
            found += 1;
        }
    }
    assert!(found >= 1, "{found} pages");
}
