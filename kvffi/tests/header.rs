//! `include/kvffi.h` is what the crate says, and every declaration says what a caller must know.
//!
//! cbindgen turns the crate into C; what this file adds is order: one section for each source file, types before the
//! functions that use them.

use std::path::{Path, PathBuf};

/// Sections of the header: the source file and its heading.
const SECTIONS: &[(&str, &str)] = &[
    ("status", "Status"),
    ("error", "Errors"),
    ("version", "Versions"),
    ("text", "Texts"),
    ("spec", "Specs: what caches one worker has"),
    ("worker", "Workers, storages and groups: what specs are built from"),
    ("spec_builder", "Spec builders: a spec from its parts"),
    ("page", "Pages: what a layer's page holds, by kind"),
    ("page_attention", "Pages of attention"),
    ("page_state", "Pages of state-space and linear-attention layers"),
    ("arrangement", "Arrangements: where to put caches"),
    ("tensors", "Tensors: a spec from the tensors that an engine has"),
    ("local_plan", "Local plans: memory ranges and regions of one worker"),
    ("share", "Shares: from whom a rank reads and to whom it writes"),
    ("pair", "Pairs: a plan between this worker and one peer"),
    ("request", "Requests: which blocks to move"),
    ("answer", "Answers: which bytes to move"),
    ("bytes", "Bytes"),
    ("limits", "Limits: how transfers are cut, how much may be in flight"),
    ("loopback", "Loopback: agents of one process, for tests"),
    ("agent", "Agents: one worker's end of all transfers"),
    ("peer", "Peers: who an agent has connected"),
    ("foreign", "Foreign peers: on NIXL, and not of this library"),
    ("notification", "Notifications: short messages between agents"),
    ("transfer", "Transfers: bytes that move"),
    ("agent_fd", "A file descriptor to wait on"),
    ("quarantine", "Quarantine: what may still land"),
    ("agent_stats", "Statistics of an agent"),
    ("exchange", "Exchanges: leases, pulls, pushes and peers of one agent"),
    ("exchange_peers", "Peers of an exchange"),
    ("exchange_hold", "Holding and writing: the producer's side of an exchange"),
    ("exchange_pull", "Pulling and reserving: the consumer's side of an exchange"),
    ("event", "Events: what has happened at an exchange"),
    ("exchange_stats", "Statistics of an exchange"),
    ("log", "Logs: what the library says of itself"),
];

fn crate_file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn header_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../include/kvffi.h")
}

/// What cbindgen makes of the crate.
fn raw() -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(dir.join("header/cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::Builder::new().with_crate(dir).with_config(config).generate().expect("the crate");
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

/// One declaration with its comment.
#[derive(Debug, Clone, PartialEq)]
struct Declaration {
    name: String,
    text: String,
}

/// Takes cbindgen's output apart: every declaration starts with a comment at the margin.
fn declarations(raw: &str) -> Vec<Declaration> {
    let mut found = Vec::new();
    for text in raw.split("\n/**\n").skip(1) {
        let text = text.split("\n#ifdef __cplusplus").next().unwrap_or(text);
        let (comment, code) = text.split_once(" */\n").expect("a comment has an end");
        let name = declared_name(code);
        let code = code.trim_end();
        // Negative numbers in parentheses, so that they are safe in any expression.
        let code = match code.rsplit_once(' ') {
            Some((define, number)) if code.starts_with("#define") && number.starts_with('-') => {
                format!("{define} ({number})")
            }
            _ => one_line_comments(code),
        };
        // Every type has a typedef.
        let code = code.replace("struct kvffi_", "kvffi_").replace("typedef kvffi_", "typedef struct kvffi_");
        let comment = one_line_comments(&format!("/**\n{comment} */"));
        found.push(Declaration { name, text: format!("{comment}\n{code}\n") });
    }
    found
}

fn declared_name(code: &str) -> String {
    let words = |text: &str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
    let words: Vec<String> = match code.split_once('(') {
        Some((start, _)) if !code.starts_with("#define") && !code.starts_with("typedef") => words(start),
        _ => words(code),
    };
    let name = match words.first().map(String::as_str) {
        Some("#define" | "define") => words.get(1),
        _ => words.last(),
    };
    name.expect("a declaration has a name").clone()
}

/// Comments of a single line on one line.
fn one_line_comments(code: &str) -> String {
    let lines: Vec<&str> = code.lines().collect();
    let mut out: Vec<String> = Vec::new();
    let mut i = 0;
    while i < lines.len() {
        let [open, text, close] = [0, 1, 2].map(|k| lines.get(i + k).copied().unwrap_or(""));
        if open.trim() == "/**" && close.trim() == "*/" {
            let indent = &open[..open.len() - open.trim_start().len()];
            out.push(format!("{indent}/** {} */", text.trim().trim_start_matches('*').trim()));
            i += 3;
        } else {
            out.push(open.to_owned());
            i += 1;
        }
    }
    out.join("\n")
}

/// The source file that declares a name.
fn section_of(name: &str) -> &'static str {
    let declares = |section: &str| {
        let source = crate_file(&format!("src/{section}.rs"));
        ["fn NAME(", "struct NAME ", "const NAME:", "type NAME "]
            .iter()
            .any(|pattern| source.contains(&format!("pub {}", pattern.replace("NAME", name))))
            || source.contains(&format!("extern \"C\" fn {name}("))
    };
    let section = SECTIONS.iter().map(|(file, _)| *file).find(|file| declares(file));
    section.unwrap_or_else(|| panic!("{name} is in no section; add its file to SECTIONS"))
}

fn generate() -> String {
    let declarations = declarations(&raw());
    let initialisers = crate_file("header/init.h");
    let mut text = crate_file("header/chapters.h");
    text += "\n#ifndef KVFFI_H\n#define KVFFI_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n";
    text += "#if UINTPTR_MAX != UINT64_MAX\n#error \"kvffi is for 64-bit targets\"\n#endif\n\n";
    text += "#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    for (file, heading) in SECTIONS {
        text += &format!("\n\n/* ---- {heading} {} */\n", "-".repeat(108 - heading.len()));
        let mut last_is_define = false;
        for declaration in declarations.iter().filter(|d| section_of(&d.name) == *file) {
            let is_define = declaration.text.contains("\n#define");
            if !(is_define && last_is_define) {
                text.push('\n');
            }
            text += &declaration.text;
            last_is_define = is_define;
            let init = format!("sizeof({})", declaration.name);
            for line in initialisers.lines().filter(|line| line.contains(&init)) {
                text += &format!("{line}\n");
            }
        }
    }
    text + "\n#ifdef __cplusplus\n}\n#endif\n\n#endif /* KVFFI_H */\n"
}

#[test]
fn the_committed_header_is_what_the_crate_says() {
    let generated = generate();
    if std::env::var_os("KVFFI_BLESS").is_some() {
        std::fs::write(header_path(), &generated).expect("include/ is writable");
    }
    let committed = std::fs::read_to_string(header_path()).unwrap_or_default();
    let differs = committed.lines().zip(generated.lines()).position(|(a, b)| a != b);
    assert!(
        committed == generated,
        "include/kvffi.h differs from the crate at line {}; write it anew with \
         `KVFFI_BLESS=1 cargo test -p kvffi --test header`",
        differs.unwrap_or_else(|| committed.lines().count().min(generated.lines().count())) + 1
    );
}

#[test]
fn every_function_says_what_may_happen_at_the_same_time() {
    let functions: Vec<Declaration> = declarations(&raw()).into_iter().filter(|d| d.text.ends_with(");\n")).collect();
    assert!(functions.len() > 10, "{functions:?}");
    for function in functions {
        assert!(function.text.to_lowercase().contains("threads"), "{} does not say", function.name);
    }
}

#[test]
fn every_function_that_can_fail_ends_with_an_error_parameter() {
    for function in declarations(&raw()) {
        let fails = function.text.contains("\nkvffi_status kvffi_") && function.name != "kvffi_error_status";
        assert!(!fails || function.text.ends_with("kvffi_error **out_error);\n"), "{}", function.text);
    }
}

#[test]
fn every_struct_that_grows_has_an_initialiser_for_all_its_fields() {
    let initialisers = crate_file("header/init.h");
    let mut checked = 0;
    for grows in declarations(&raw()).iter().filter(|d| d.text.contains("size_t struct_size;")) {
        let init = initialisers.lines().find(|line| line.contains(&format!("sizeof({})", grows.name)));
        let init = init.unwrap_or_else(|| panic!("{} has no initialiser in header/init.h", grows.name));
        let is_field = |line: &&str| line.ends_with(';') && line.starts_with("    ") && !line.trim().starts_with('*');
        let num_fields = grows.text.lines().filter(is_field).count();
        assert_eq!(init.matches(", ").count() + 1, num_fields, "{init}");
        assert!(init.contains(&format!("{}_INIT ", grows.name.to_uppercase())), "{init}");
        checked += 1;
    }
    assert!(checked >= 2);
}
