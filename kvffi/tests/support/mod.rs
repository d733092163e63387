//! Builds C and C++ against the header and the library that cargo has just built, and runs what comes out.

#![allow(dead_code, reason = "each test program uses its share")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Warnings that a user's build may have turned into errors.
pub(crate) const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"];

/// A path below the root of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The folder in which cargo leaves libkvffi.so and libkvffi.a for this test.
pub(crate) fn library_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.parent().expect("a test lies in a folder").to_owned()
}

/// Which of the two libraries a program is linked with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Link {
    Shared,
    Static,
}

/// The compiler: `$CC` or `cc`, `$CXX` or `c++`.
pub(crate) fn compiler(language: &str) -> String {
    let (variable, fallback) = if language == "c" { ("CC", "cc") } else { ("CXX", "c++") };
    std::env::var(variable).unwrap_or_else(|_| fallback.to_owned())
}

/// Runs a command and fails the test, with all its output, if the command fails.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Whether a tool is there.
pub(crate) fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A folder of one test's own.
pub(crate) fn work_dir(test: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&dir).expect("the target folder is writable");
    dir
}

/// Compiles a C or C++ program and links it with the library.
pub(crate) fn build_c(source: &Path, dir: &Path, link: Link) -> PathBuf {
    build_c_with(source, dir, link, &[]).unwrap_or_else(|error| panic!("{}: {error}", source.display()))
}

/// Compiles a C or C++ program with further options; what the compiler says if it fails.
pub(crate) fn build_c_with(source: &Path, dir: &Path, link: Link, options: &[&str]) -> Result<PathBuf, String> {
    build_c_against(&repository("include"), source, dir, link, options)
}

/// Like [`build_c_with`], with the headers of a folder.
pub(crate) fn build_c_against(
    headers: &Path,
    source: &Path,
    dir: &Path,
    link: Link,
    options: &[&str],
) -> Result<PathBuf, String> {
    let name = source.file_stem().expect("a source has a name").to_string_lossy();
    let program = dir.join(format!("{name}_{link:?}").to_lowercase());
    let (language, standard) =
        if source.extension().is_some_and(|e| e == "cpp") { ("c++", "-std=c++17") } else { ("c", "-std=c11") };
    let mut command = Command::new(compiler(language));
    command.args([standard, "-g", "-pthread"]).args(WARNINGS).args(options);
    command.arg("-I").arg(headers).arg(source).arg("-o").arg(&program);
    match link {
        Link::Static => command.arg(library_dir().join("libkvffi.a")).args(["-lpthread", "-ldl", "-lm", "-lstdc++"]),
        Link::Shared => {
            let versioned = dir.join(soname());
            let _ = std::fs::remove_file(&versioned);
            std::os::unix::fs::symlink(library_dir().join("libkvffi.so"), &versioned).expect("a link to the library");
            command.arg(&versioned).arg(format!("-Wl,-rpath,{}", dir.display()))
        }
    };
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(program);
    }
    Err(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

/// Runs a program under valgrind: any error and any leak fails it. Says so where there is no valgrind.
pub(crate) fn under_valgrind(program: &Path) {
    valgrind("all", program, &[]);
}

/// As [`under_valgrind`], for a program with arguments.
pub(crate) fn under_valgrind_with(program: &Path, arguments: &[&str]) {
    valgrind("all", program, arguments);
}

/// As [`under_valgrind`], for a program in which something is kept, and can be reached, to the end of the process.
pub(crate) fn under_valgrind_to_the_end(program: &Path) {
    valgrind("definite,indirect,possible", program, &[]);
}

fn valgrind(leaks: &str, program: &Path, arguments: &[&str]) {
    if !has("valgrind") {
        println!("skipped: valgrind is not installed, leaks in {} were not looked for", program.display());
        return;
    }
    let mut command = Command::new("valgrind");
    // Fair, or a thread that looks again and again keeps all others from running.
    command.args(["--fair-sched=try", "--quiet", "--error-exitcode=99", "--leak-check=full", "--track-origins=yes"]);
    command.args([format!("--show-leak-kinds={leaks}"), format!("--errors-for-leak-kinds={leaks}")]);
    run(command.arg(program).args(arguments));
}

/// The name under which programs ask for the shared library.
pub(crate) fn soname() -> String {
    let mut numbers = env!("CARGO_PKG_VERSION").split('.');
    let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
    if major == "0" { format!("libkvffi.so.0.{minor}") } else { format!("libkvffi.so.{major}") }
}
