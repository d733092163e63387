//! Programs that were compiled with an earlier header run with this library: see `frozen/README.md`.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Link, build_c_against, repository, run, under_valgrind, work_dir};

/// The folders of old clients.
fn frozen() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frozen");
    let entries = std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    let folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert!(!folders.is_empty());
    folders
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn programs_of_earlier_headers_run_with_this_library() {
    for folder in frozen() {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        for link in [Link::Shared, Link::Static] {
            let dir = work_dir(&format!("frozen_{name}_{link:?}"));
            let program = build_c_against(&folder, &folder.join("client.c"), &dir, link, &[]);
            let program = program.unwrap_or_else(|error| panic!("{name}: {error}"));
            let output = run(&mut Command::new(&program));
            assert_eq!(String::from_utf8_lossy(&output.stdout), read(&folder.join("expected.txt")), "{name} {link:?}");
            if link == Link::Shared {
                under_valgrind(&program);
            }
        }
    }
}

/// What a header declares: macros by name, and everything else by its whole text.
#[derive(Debug, Default)]
struct Declared {
    macros: BTreeMap<String, String>,
    /// Functions, opaque types, typedefs and frozen structs.
    fixed: Vec<String>,
    /// Structs that begin with their size: text up to the end of the last field, by name.
    growing: BTreeMap<String, String>,
}

fn without_comments(text: &str) -> String {
    let mut pieces = text.split("/*");
    let mut kept = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        kept += piece.split_once("*/").expect("a comment has an end").1;
    }
    kept
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn declared(header: &str) -> Declared {
    let mut declared = Declared::default();
    let mut code = String::new();
    for line in without_comments(header).lines() {
        if let Some(define) = line.strip_prefix("#define ") {
            let (name, value) = define.split_once(' ').unwrap_or((define, ""));
            declared.macros.insert(name.to_owned(), words(value));
        } else if !line.starts_with(['#', '}']) || line.starts_with("} kvffi_") {
            code += line.trim_start_matches("extern \"C\" {");
            code.push('\n');
        }
    }
    let mut statement = String::new();
    let mut depth = 0;
    for c in code.chars() {
        statement.push(c);
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => {
                let text = words(&statement);
                statement.clear();
                match text.rsplit_once('}') {
                    Some((fields, name)) if fields.contains("size_t struct_size;") => {
                        declared.growing.insert(name.to_owned(), fields.to_owned());
                    }
                    _ => declared.fixed.push(text),
                }
            }
            _ => {}
        }
    }
    assert_eq!(words(&statement), "", "the header ends in the middle of a declaration");
    declared
}

/// What an old header promises and a new one does not keep.
fn broken(old: &Declared, new: &Declared) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, value) in &old.macros {
        let kept = match new.macros.get(name) {
            // A newer library of the same line.
            Some(_) if name.starts_with("KVFFI_VERSION_") => true,
            Some(now) if name.ends_with("_INIT") => now.starts_with(value.trim_end_matches(" }")),
            Some(now) => now == value,
            None => false,
        };
        if !kept {
            broken.push(format!("#define {name} {value}"));
        }
    }
    broken.extend(old.fixed.iter().filter(|text| !new.fixed.contains(text)).cloned());
    for (name, fields) in &old.growing {
        if !new.growing.get(name).is_some_and(|now| now.starts_with(fields.trim_end())) {
            broken.push(format!("{fields}}}{name}"));
        }
    }
    broken
}

#[test]
fn everything_that_an_earlier_header_declares_is_declared_alike() {
    let new = declared(&read(&repository("include/kvffi.h")));
    for folder in frozen() {
        let old = declared(&read(&folder.join("kvffi.h")));
        assert!(old.macros.len() > 80 && old.fixed.len() > 80 && old.growing.len() > 12, "{old:?}");
        assert_eq!(broken(&old, &new), Vec::<String>::new(), "{}", folder.display());
    }
}

#[test]
fn a_change_of_any_kind_is_noticed_and_growth_is_not() {
    let header = read(&repository("include/kvffi.h"));
    let old = declared(&header);
    for (from, to) in [
        ("#define KVFFI_ERR_JSON (-11)", "#define KVFFI_ERR_JSON (-12)"),
        ("#define KVFFI_ERR_JSON (-11)\n", ""),
        ("uint32_t kvffi_version(void);", "uint64_t kvffi_version(void);"),
        ("uint32_t kvffi_version(void);", ""),
        ("    uint64_t local_offset;\n", "    uint64_t local_offset;\n    uint64_t more;\n"),
        ("    int32_t op;\n", "    int64_t op;\n"),
        ("typedef int32_t kvffi_status;", "typedef int64_t kvffi_status;"),
    ] {
        assert!(header.contains(from), "{from}");
        let changed = header.replacen(from, to, 1);
        assert_eq!(broken(&old, &declared(&changed)).len(), 1, "{from} -> {to}");
    }
    let grown = header
        .replacen("    uint64_t min_run;\n", "    uint64_t min_run;\n    uint64_t more;\n", 1)
        .replacen("{ sizeof(kvffi_pair_options), 0, 0, 0, 0 }", "{ sizeof(kvffi_pair_options), 0, 0, 0, 0, 0 }", 1)
        .replacen("uint32_t kvffi_version(void);", "uint32_t kvffi_version(void);\nvoid kvffi_more(void);", 1);
    assert_ne!(grown, header);
    assert_eq!(broken(&old, &declared(&grown)), Vec::<String>::new());
}
