//! The installed library serves projects that have nothing else: found by CMake and by pkg-config, shared and static, after
//! the tree was moved.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use support::{WARNINGS, compiler, has, library_dir, repository, run, soname, work_dir};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const PLAN: &str = "2 descriptors, 442368 bytes\n";

/// Where the library lies: installed for a prefix that nobody has, and moved from there.
static INSTALLED: LazyLock<PathBuf> = LazyLock::new(|| {
    let moved = empty("installed");
    std::fs::remove_dir(&moved).expect("an empty folder");
    install("/nowhere/kv", "/nowhere/kv/lib", "staged", &moved);
    moved
});

/// A folder with nothing in it.
fn empty(name: &str) -> PathBuf {
    let dir = work_dir(name);
    std::fs::remove_dir_all(&dir).expect("the target folder is writable");
    work_dir(name)
}

/// Runs `make install` with the libraries of this test, and moves the prefix to its place.
fn install(prefix: &str, libdir: &str, staged: &str, moved: &Path) {
    let staged = empty(staged);
    let mut make = Command::new("make");
    // Not a part of the make that may be running this test.
    make.env_remove("MAKEFLAGS")
        .env_remove("MFLAGS")
        .env_remove("MAKELEVEL")
        .arg("-C")
        .arg(repository(""))
        .arg("install");
    make.args([format!("PREFIX={prefix}"), format!("LIBDIR={libdir}")]);
    make.args([format!("BUILT={}", library_dir().display()), format!("DESTDIR={}", staged.display())]);
    run(&mut make);
    std::fs::rename(staged.join(prefix.trim_start_matches('/')), moved).expect("the prefix");
}

/// Every file below a folder; links with what they point to.
fn files(folder: &Path, name: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let name = format!("{name}{}", entry.file_name().display());
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            files(&entry.path(), &format!("{name}/"), found);
        } else if kind.is_symlink() {
            let target = std::fs::read_link(entry.path()).expect("a link");
            found.insert(format!("{name} -> {}", target.display()));
        } else {
            found.insert(name);
        }
    }
}

fn stdout(command: &mut Command) -> String {
    String::from_utf8(run(command).stdout).expect("UTF-8")
}

/// What pkg-config says of the installed library.
fn pkg_config(args: &[&str]) -> Vec<String> {
    let tool = ["pkg-config", "pkgconf"].into_iter().find(|tool| has(tool));
    let tool = tool.expect("pkg-config is missing; `make deps` fetches it, .deps/env.sh says where it is");
    let mut command = Command::new(tool);
    command.env("PKG_CONFIG_PATH", INSTALLED.join("lib/pkgconfig"));
    stdout(command.args(args).arg("kvffi")).split_whitespace().map(str::to_owned).collect()
}

/// Configures the project against a tree; what CMake says if it fails.
fn configure(tree: &Path, version: &str, build: &Path) -> Result<(), String> {
    assert!(has("cmake"), "cmake is missing; `make deps` fetches it, .deps/env.sh says where it is");
    let source = empty(&format!("{}_source", build.file_name().expect("a name").display()));
    for (from, to) in [
        ("kvffi/tests/install/CMakeLists.txt", "CMakeLists.txt"),
        ("examples/c/01_plan.c", "plan.c"),
        ("examples/cpp/01_plan.cpp", "plan.cpp"),
    ] {
        std::fs::copy(repository(from), source.join(to)).expect("a source");
    }
    let mut command = Command::new("cmake");
    command.arg("-S").arg(&source).arg("-B").arg(build).arg(format!("-DASK_FOR={version}"));
    let output = command.arg(format!("-DCMAKE_PREFIX_PATH={}", tree.display())).output().expect("cmake");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn the_tree_holds_what_the_documentation_says() {
    let mut found = BTreeSet::new();
    files(&INSTALLED, "", &mut found);
    let expected = [
        "include/kvffi.h".to_owned(),
        "include/kvffi.hpp".to_owned(),
        "lib/cmake/kvffi/kvffiConfig.cmake".to_owned(),
        "lib/cmake/kvffi/kvffiConfigVersion.cmake".to_owned(),
        "lib/libkvffi.a".to_owned(),
        format!("lib/libkvffi.so -> {}", soname()),
        format!("lib/libkvffi.so.{VERSION}"),
        format!("lib/{} -> libkvffi.so.{VERSION}", soname()),
        "lib/pkgconfig/kvffi.pc".to_owned(),
        "share/licenses/kvffi/LICENSE".to_owned(),
    ];
    assert_eq!(found, BTreeSet::from(expected));
}

#[test]
fn no_installed_file_leads_back_to_where_it_came_from() {
    for file in
        ["lib/pkgconfig/kvffi.pc", "lib/cmake/kvffi/kvffiConfig.cmake", "lib/cmake/kvffi/kvffiConfigVersion.cmake"]
    {
        let text = std::fs::read_to_string(INSTALLED.join(file)).expect("an installed file");
        assert!(!text.contains("/nowhere") && !text.contains('@'), "{file}:\n{text}");
        assert!(!text.contains(env!("CARGO_MANIFEST_DIR").trim_end_matches("/kvffi")), "{file}:\n{text}");
    }
    if !has("readelf") {
        println!("skipped: readelf is not installed, the library's search path was not looked at");
        return;
    }
    let dynamic = stdout(Command::new("readelf").arg("-d").arg(INSTALLED.join(format!("lib/libkvffi.so.{VERSION}"))));
    assert!(!dynamic.contains("RPATH") && !dynamic.contains("RUNPATH"), "{dynamic}");
    assert!(dynamic.contains(&format!("[{}]", soname())), "{dynamic}");
    assert!(!dynamic.contains("libnixl"), "NIXL is looked for at run time, not by the loader: {dynamic}");
}

#[test]
fn a_cmake_project_outside_the_repository_builds_and_runs_with_either_library() {
    let build = empty("cmake_build");
    configure(&INSTALLED, VERSION, &build).unwrap_or_else(|error| panic!("{error}"));
    run(Command::new("cmake").arg("--build").arg(&build));
    for program in ["plan_c_kvffi", "plan_c_static", "plan_cpp_kvffi", "plan_cpp_static"] {
        let text = stdout(Command::new(build.join(program)).env_clear());
        assert!(text.starts_with(PLAN), "{program}: {text}");
    }
}

#[test]
fn cmake_takes_this_line_of_versions_and_no_other() {
    let mut numbers = VERSION.split('.').map(|number| number.parse::<u32>().expect("a number"));
    let [major, minor, patch] = [(); 3].map(|()| numbers.next().expect("three numbers"));
    let fit = [
        format!("{major}.{minor}"),
        format!("{VERSION} EXACT"),
        format!("{major}.{minor}...{major}.{}", minor + 5),
        String::new(),
    ];
    let others = [
        format!("{major}.{minor}.{}", patch + 1),
        format!("{major}.{}", minor + 1),
        format!("{}.0", major + 1),
        format!("{}.0...{}.0", major + 1, major + 2),
    ];
    let mut project = "cmake_minimum_required(VERSION 3.19)\nproject(versions LANGUAGES C)\n".to_owned();
    for version in fit.iter().chain(&others) {
        project += &format!("find_package(kvffi {version} CONFIG QUIET)\nmessage(\"<{version}> ${{kvffi_FOUND}}\")\n");
        project += "unset(kvffi_DIR CACHE)\n";
    }
    let source = empty("cmake_versions");
    std::fs::write(source.join("CMakeLists.txt"), project).expect("the target folder is writable");
    let mut command = Command::new("cmake");
    command.arg("-S").arg(&source).arg("-B").arg(empty("cmake_versions_build"));
    let output = run(command.arg(format!("-DCMAKE_PREFIX_PATH={}", INSTALLED.display())));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for (version, found) in fit.iter().map(|v| (v, 1)).chain(others.iter().map(|v| (v, 0))) {
        assert!(text.contains(&format!("<{version}> {found}\n")), "{version}: {text}");
    }
}

#[test]
fn libraries_may_lie_deeper_and_a_file_that_is_missing_is_named() {
    let moved = empty("deeper");
    std::fs::remove_dir(&moved).expect("an empty folder");
    install("/usr", "/usr/lib/some-machine", "deeper_staged", &moved);
    assert!(moved.join("lib/some-machine/libkvffi.a").exists());
    // CMake finds folders of this machine's own name by itself.
    let package = moved.join("lib/some-machine/cmake/kvffi");
    configure(&package, VERSION, &empty("cmake_deeper")).unwrap_or_else(|error| panic!("{error}"));

    std::fs::remove_file(moved.join("include/kvffi.h")).expect("the header");
    let error = configure(&package, VERSION, &empty("cmake_missing")).expect_err("the header is missing");
    assert!(error.contains("kvffi.h is missing"), "{error}");
}

#[test]
fn a_pkg_config_build_runs_with_the_shared_and_with_the_static_library() {
    assert_eq!(pkg_config(&["--modversion"]), [VERSION]);
    let dir = empty("pkg_config");
    for (source, standard) in [("examples/c/01_plan.c", "c11"), ("examples/cpp/01_plan.cpp", "c++17")] {
        let file = dir.join(Path::new(source).file_name().expect("a name"));
        std::fs::copy(repository(source), &file).expect("a source");
        let compile = |libraries: Vec<String>, program: &Path| {
            let mut command = Command::new(compiler(if standard == "c11" { "c" } else { "c++" }));
            command.arg(format!("-std={standard}")).args(WARNINGS).args(pkg_config(&["--cflags"])).arg(&file);
            run(command.args(libraries).arg("-o").arg(program));
        };

        let shared = dir.join(format!("shared_{standard}"));
        compile(pkg_config(&["--libs"]), &shared);
        let mut command = Command::new(&shared);
        let text = stdout(command.env_clear().env("LD_LIBRARY_PATH", INSTALLED.join("lib")));
        assert!(text.starts_with(PLAN), "{text}");

        let archive = dir.join(format!("static_{standard}"));
        let mut libraries = pkg_config(&["--variable=static_library"]);
        libraries.extend(pkg_config(&["--static", "--libs"]).into_iter().filter(|option| option != "-lkvffi"));
        compile(libraries, &archive);
        assert!(stdout(Command::new(&archive).env_clear()).starts_with(PLAN));
    }
}

/// The block of code in a language that has a word in it.
fn block(page: &str, language: &str, word: &str) -> String {
    let text = std::fs::read_to_string(repository(page)).expect("a page");
    let blocks = text.split("```").skip(1).step_by(2);
    let mut blocks = blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    blocks.find(|block| block.contains(word)).unwrap_or_else(|| panic!("no {language} block has {word}")).to_owned()
}

#[test]
fn the_installed_library_looks_for_nixl_when_it_is_needed() {
    let dir = empty("installed_transfer");
    let program = dir.join("transfer");
    let mut command = Command::new(compiler("c"));
    command.arg("-std=c11").args(pkg_config(&["--cflags"])).arg(repository("examples/c/03_transfer.c"));
    run(command.args(pkg_config(&["--libs"])).arg("-o").arg(&program));
    let with = |nixl: Option<&str>| {
        let mut command = Command::new(&program);
        command.env_clear().env("LD_LIBRARY_PATH", INSTALLED.join("lib")).current_dir(&dir);
        command.envs(nixl.map(|path| ("KVNIXL_LIBRARY", path)));
        command
    };
    // Where this machine has it.
    let here = std::env::var("KVNIXL_LIBRARY").ok();
    assert_eq!(stdout(&mut with(here.as_deref())), "221184 bytes read, 0 wrong\n");
    let output = with(Some("/nowhere")).output().expect("the program");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("KVFFI_ERR_NO_LIBRARY") && text.contains("/nowhere"), "{text}");
}

#[test]
fn the_readme_s_commands_install_and_build_what_they_say() {
    let mut shell = Command::new("bash");
    shell.arg("-euc").arg(block("README.md", "sh", "pkg-config")).current_dir(repository(""));
    shell.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("MAKELEVEL");
    // What the test run has built is what is installed.
    let text = stdout(shell.env("HOME", empty("readme_home")).env("BUILT", library_dir()));
    assert!(text.contains(PLAN), "{text}");
}

#[test]
fn the_documented_command_links_the_static_library() {
    let dir = empty("documented_static");
    std::fs::copy(repository("examples/c/01_plan.c"), dir.join("engine.c")).expect("a source");
    let mut shell = Command::new("bash");
    shell.arg("-euc").arg(block("docs/ABI.md", "sh", "static_library")).current_dir(&dir);
    run(shell.env("PKG_CONFIG_PATH", INSTALLED.join("lib/pkgconfig")));
    assert!(stdout(Command::new(dir.join("a.out")).env_clear()).starts_with(PLAN));
}

#[test]
fn the_readme_s_lines_of_cmake_are_all_that_a_project_needs() {
    let source = empty("readme_cmake");
    let project = "cmake_minimum_required(VERSION 3.16)\nproject(engine LANGUAGES C)\nadd_executable(engine plan.c)\n";
    let lines = project.to_owned() + &block("README.md", "cmake", "find_package");
    std::fs::write(source.join("CMakeLists.txt"), lines).expect("the target folder is writable");
    std::fs::copy(repository("examples/c/01_plan.c"), source.join("plan.c")).expect("a source");
    let build = empty("readme_cmake_build");
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", INSTALLED.display());
    run(Command::new("cmake").arg("-S").arg(&source).arg("-B").arg(&build).arg(prefix));
    run(Command::new("cmake").arg("--build").arg(&build));
    assert!(stdout(&mut Command::new(build.join("engine"))).starts_with(PLAN));
}

#[test]
fn programs_of_earlier_headers_run_with_the_installed_library() {
    let folders = std::fs::read_dir(repository("kvffi/tests/frozen")).expect("the folder");
    let mut ran = 0;
    for folder in folders.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()) {
        let program = empty("frozen_installed").join("client");
        let mut command = Command::new(compiler("c"));
        command.args(["-std=c11", "-I"]).arg(&folder).arg(folder.join("client.c")).arg("-o").arg(&program);
        run(command.args(pkg_config(&["--libs"])));
        let text = stdout(Command::new(&program).env_clear().env("LD_LIBRARY_PATH", INSTALLED.join("lib")));
        assert_eq!(text, std::fs::read_to_string(folder.join("expected.txt")).expect("what it prints"));
        ran += 1;
    }
    assert!(ran > 0);
}

#[test]
fn what_cannot_be_installed_is_said() {
    let script = |built: &Path, prefix: &str, libdir: &str| {
        let mut command = Command::new(repository("scripts/install.sh"));
        command.arg(built).env("PREFIX", prefix).env("LIBDIR", libdir).env("DESTDIR", empty("refused"));
        let output = command.output().expect("the script");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let nothing = empty("nothing_built");
    assert!(script(&nothing, "/usr", "/usr/lib").contains("libkvffi.so is missing: cargo build"));
    assert!(script(&library_dir(), "usr", "usr/lib").contains("has to be an absolute path"));
    assert!(script(&library_dir(), "/usr", "/opt/lib").contains("has to lie below PREFIX"));
}
