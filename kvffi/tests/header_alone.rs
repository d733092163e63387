//! The header compiles alone, twice, in every C and C++ that engines use.

mod support;

use std::process::Command;

use support::{WARNINGS, compiler, has, repository, run, work_dir};

/// Uses every initialiser, so that a missing field would be a warning.
const SOURCE: &str = "#include \"kvffi.h\"\n#include \"kvffi.h\"\n\
    static const kvffi_pair_options options = KVFFI_PAIR_OPTIONS_INIT;\n\
    static const kvffi_request request = KVFFI_REQUEST_INIT;\n\
    static const uint64_t numbers[] = { KVFFI_GAP_ANY, KVFFI_BLOCK_HOLE, KVFFI_VERSION };\n\
    int main(void) { return options.op + request.op + KVFFI_ERR_PANIC + (int)numbers[2]; }\n";

#[test]
fn the_header_compiles_alone_and_twice() {
    let dir = work_dir("header_alone");
    let mut compiled = 0;
    for (language, extension, standards) in
        [("c", "c", ["c99", "c11", "c17"]), ("c++", "cpp", ["c++11", "c++17", "c++20"])]
    {
        let source = dir.join(format!("alone.{extension}"));
        std::fs::write(&source, SOURCE).expect("the target folder is writable");
        let clang = if language == "c" { "clang" } else { "clang++" };
        let mut compilers = vec![compiler(language)];
        if has(clang) {
            compilers.push(clang.to_owned());
        }
        for (compiler, standard) in compilers.iter().flat_map(|c| standards.map(|s| (c, s))) {
            let mut command = Command::new(compiler);
            command.arg(format!("-std={standard}")).args(WARNINGS).arg("-fsyntax-only");
            run(command.arg("-I").arg(repository("include")).arg(&source));
            compiled += 1;
        }
    }
    assert!(compiled >= 6);
}
