//! The headers compile alone, twice, in every C and C++ that engines use.

mod support;

use std::path::Path;
use std::process::Command;

use support::{WARNINGS, compiler, has, library_dir, repository, run, work_dir};

/// Further warnings that projects turn on; a header has to be quiet under them too.
const STRICTER: [&str; 6] =
    ["-Wshadow", "-Wundef", "-Wsign-conversion", "-Wcast-qual", "-Wredundant-decls", "-Wmissing-declarations"];

/// What only one of the two languages has.
fn own_warnings(language: &str) -> &'static [&'static str] {
    if language == "c" {
        &["-Wstrict-prototypes", "-Wmissing-prototypes", "-Wold-style-definition"]
    } else {
        &["-Wold-style-cast", "-Wextra-semi", "-Wnon-virtual-dtor", "-Woverloaded-virtual"]
    }
}

/// The compilers of a language: the system's, and clang where it is installed.
fn compilers(language: &str) -> Vec<String> {
    let clang = if language == "c" { "clang" } else { "clang++" };
    let mut compilers = vec![compiler(language)];
    if has(clang) && !compilers.iter().any(|compiler| compiler == clang) {
        compilers.push(clang.to_owned());
    }
    compilers
}

/// Looks at a source in a language's standards, without leaving a file.
fn check(file: &Path, language: &str, standards: &[&str]) -> usize {
    let mut compiled = 0;
    for (compiler, standard) in compilers(language).iter().flat_map(|c| standards.iter().map(move |s| (c, s))) {
        let mut command = Command::new(compiler);
        command.arg(format!("-std={standard}")).args(WARNINGS).args(STRICTER).args(own_warnings(language));
        run(command.args(["-pedantic-errors", "-fsyntax-only", "-I"]).arg(repository("include")).arg(file));
        compiled += 1;
    }
    compiled
}

/// Uses every initialiser, so that a field without a value would be a warning, and what the preprocessor may be asked.
fn source() -> String {
    let initialisers = include_str!("../header/init.h");
    let mut numbers = env!("CARGO_PKG_VERSION").split('.');
    let mut number = || numbers.next().expect("a version has three numbers");
    let (major, minor, patch) = (number(), number(), number());
    let mut source = "#include \"kvffi.h\"\n#include \"kvffi.h\"\n".to_owned();
    source += &format!(
        "#if KVFFI_VERSION != {major} * 65536 + {minor} * 256 + {patch}\n#error \"not the manifest's\"\n#endif\n"
    );
    source += "#if KVFFI_OK || KVFFI_ERR_PANIC >= 0 || KVFFI_IN_PROGRESS <= 0\n#error \"signs\"\n#endif\n";
    source += "int main(void)\n{\n";
    for name in initialisers.lines().filter_map(|line| line.split_whitespace().nth(1)) {
        let name = name.trim_end_matches("_INIT");
        let c_type = name.to_lowercase();
        source += &format!("    const {c_type} {name}_ = {name}_INIT;\n    if ({name}_.struct_size == 0) return 1;\n");
    }
    source + "    return (int)((KVFFI_GAP_ANY + KVFFI_BLOCK_HOLE + KVFFI_VERSION) & 1) + KVFFI_ERR_PANIC;\n}\n"
}

#[test]
fn the_header_compiles_alone_and_twice() {
    let dir = work_dir("header_alone");
    let mut compiled = 0;
    for (language, extension, standards) in
        [("c", "c", ["c99", "c11", "c17"]), ("c++", "cpp", ["c++11", "c++17", "c++20"])]
    {
        let file = dir.join(format!("alone.{extension}"));
        // A cast in the way of either language.
        let source = if language == "c" { source() } else { source().replace("(int)(", "static_cast<int>(") };
        std::fs::write(&file, source).expect("the target folder is writable");
        compiled += check(&file, language, &standards);
    }
    assert!(compiled >= 6);
}

#[test]
fn the_cpp_header_compiles_alone_and_twice_with_exceptions_and_with_results() {
    let dir = work_dir("cpp_header_alone");
    for (name, define) in [("exceptions", ""), ("results", "#define KVFFI_RESULTS\n")] {
        let file = dir.join(format!("{name}.cpp"));
        let source = format!("{define}#include \"kvffi.hpp\"\n#include \"kvffi.hpp\"\nint main() {{ return 0; }}\n");
        std::fs::write(&file, source).expect("the target folder is writable");
        check(&file, "c++", &["c++17", "c++20"]);
    }
}

#[test]
fn two_files_of_a_program_may_include_the_cpp_header() {
    let dir = work_dir("cpp_header_in_two_files");
    let files = ["one", "two"].map(|name| {
        let file = dir.join(format!("{name}.cpp"));
        let main = if name == "one" { "int two();\nint main() { return two(); }\n" } else { "" };
        let source = format!(
            "#include \"kvffi.hpp\"\nint {name}();\nint {name}() {{ kvffi::abi_check(); return kvffi::request(0, {{}}, \
             {{}}).op; }}\n{main}"
        );
        std::fs::write(&file, source).expect("the target folder is writable");
        file
    });
    let program = dir.join("program");
    let mut command = Command::new(compiler("c++"));
    command.args(["-std=c++17", "-I"]).arg(repository("include")).args(&files).arg(library_dir().join("libkvffi.a"));
    run(command.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program));
    run(&mut Command::new(&program));
}
