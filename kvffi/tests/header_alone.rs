//! The headers compile alone, twice, in every C and C++ that engines use.

mod support;

use std::process::Command;

use support::{WARNINGS, compiler, has, repository, run, work_dir};

/// Uses every initialiser, so that a field without a value would be a warning.
fn source() -> String {
    let initialisers = include_str!("../header/init.h");
    let mut source = "#include \"kvffi.h\"\n#include \"kvffi.h\"\nint main(void)\n{\n".to_owned();
    for name in initialisers.lines().filter_map(|line| line.split_whitespace().nth(1)) {
        let name = name.trim_end_matches("_INIT");
        let c_type = name.to_lowercase();
        source += &format!("    const {c_type} {name}_ = {name}_INIT;\n    if ({name}_.struct_size == 0) return 1;\n");
    }
    source + "    return (int)(KVFFI_GAP_ANY + KVFFI_BLOCK_HOLE + KVFFI_VERSION) + KVFFI_ERR_PANIC;\n}\n"
}

#[test]
fn the_header_compiles_alone_and_twice() {
    let dir = work_dir("header_alone");
    let mut compiled = 0;
    for (language, extension, standards) in
        [("c", "c", ["c99", "c11", "c17"]), ("c++", "cpp", ["c++11", "c++17", "c++20"])]
    {
        let file = dir.join(format!("alone.{extension}"));
        std::fs::write(&file, source()).expect("the target folder is writable");
        let clang = if language == "c" { "clang" } else { "clang++" };
        let mut compilers = vec![compiler(language)];
        if has(clang) {
            compilers.push(clang.to_owned());
        }
        for (compiler, standard) in compilers.iter().flat_map(|c| standards.map(|s| (c, s))) {
            let mut command = Command::new(compiler);
            command.arg(format!("-std={standard}")).args(WARNINGS).arg("-fsyntax-only");
            run(command.arg("-I").arg(repository("include")).arg(&file));
            compiled += 1;
        }
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
        for standard in ["c++17", "c++20"] {
            let mut command = Command::new(compiler("c++"));
            command.arg(format!("-std={standard}")).args(WARNINGS).arg("-fsyntax-only");
            run(command.arg("-I").arg(repository("include")).arg(&file));
        }
    }
}
