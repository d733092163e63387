//! The README: its snippets are lines of example files, its commands print what it says. Links of all pages lead somewhere.

mod common;

use common::{kvplan, pages, read, repository};

/// Blocks of code: language and text.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language, body.join("\n")));
        }
    }
    blocks
}

/// Lines without indentation.
fn trimmed(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_snippet_is_part_of_a_file_that_ci_runs() {
    let readme = read("README.md");
    let files = [
        ("rust", "examples/rust/02_plan.rs"),
        ("rust", "examples/rust/03_transfer.rs"),
        ("c", "examples/c/01_plan.c"),
        ("cpp", "examples/cpp/01_plan.cpp"),
    ]
    .map(|(language, file)| (language, trimmed(&read(file))));
    for (language, snippet) in blocks(&readme) {
        let mut files = files.iter().filter(|file| file.0 == language).peekable();
        if files.peek().is_some() {
            assert!(files.any(|(_, file)| file.contains(&trimmed(&snippet))), "in no example:\n{snippet}");
        }
    }
    for (language, file) in &files {
        let shown = blocks(&readme).into_iter().any(|block| block.0 == *language && file.contains(&trimmed(&block.1)));
        assert!(shown, "the README shows nothing of an example in {language}:\n{file}");
    }
}

#[test]
fn every_kvplan_command_prints_what_the_readme_shows() {
    let mut found = 0;
    for (language, block) in blocks(&read("README.md")) {
        if language != "console" {
            continue;
        }
        for command in block.split("$ ").skip(1) {
            let (line, shown) = command.split_once('\n').unwrap_or((command, ""));
            let Some(args) = line.strip_prefix("target/release/kvplan ") else { continue };
            let printed = kvplan(&args.split_whitespace().collect::<Vec<_>>());
            assert_eq!(trimmed(printed.trim_end()), trimmed(shown.trim_end()), "{line}");
            found += 1;
        }
    }
    assert!(found >= 2, "{found} commands");
}

#[test]
fn every_linked_file_exists() {
    let mut found = 0;
    for page in pages() {
        let folder = repository().join(&page).parent().unwrap().to_owned();
        let text = read(&page);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            if !link.is_empty() && !link.starts_with("http") {
                assert!(folder.join(link).exists(), "{page}: {link}");
                found += 1;
            }
        }
    }
    assert!(found >= 20, "{found} links");
}
