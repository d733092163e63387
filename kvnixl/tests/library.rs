//! Finding NIXL. A process can load it once, so each case is a process of its own: this program again.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use kvnixl::library::LIBRARY_VARIABLE;
use kvnixl::{Error, Library};

const CASE: &str = "KVNIXL_TEST_CASE";
const REAL: &str = "KVNIXL_TEST_REAL";

#[test]
#[ignore = "other tests run it as a process of its own"]
fn load_process() {
    let retry = std::env::var_os(REAL).map(PathBuf::from);
    match std::env::var(CASE).expect("run by another test").as_str() {
        "load" => match Library::load(None) {
            Ok(library) => println!("@@loaded {}", library.path().display()),
            Err(error) => println!("@@{error}"),
        },
        "retry" => {
            let error = Library::load(None).unwrap_err();
            assert!(matches!(error, Error::LibraryNotFound { .. }), "{error}");
            let agent = kvnixl::Agent::nixl("early", &kvnixl::NixlOptions::default(), kvnixl::Limits::default());
            assert!(matches!(agent, Err(Error::LibraryNotFound { .. })));
            let library = Library::load(retry.as_deref()).unwrap();
            // What is loaded stays.
            assert_eq!(Library::load(None).unwrap(), library);
            assert_eq!(Library::load(retry.as_deref()).unwrap(), library);
            let other = Library::load(Some(Path::new("/nonexistent/libnixl_capi.so"))).unwrap_err();
            assert!(matches!(other, Error::LibraryConflict { .. }), "{other}");
            drop(common::nixl("late", common::Via::Default));
            println!("@@retried");
        }
        case => panic!("{case}"),
    }
}

/// Runs a case with nothing but this environment.
fn run(case: &str, environment: &[(&str, &Path)]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "load_process", "--ignored", "--nocapture", "--test-threads=1"])
        .env_clear()
        .env(CASE, case)
        .env("HOME", std::env::temp_dir())
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text.split_once("@@").map(|(_, answer)| answer.to_owned()).unwrap_or(text)
}

/// The library that this machine has: the tests cannot do without.
fn real() -> PathBuf {
    let library = Library::load(None).unwrap_or_else(|error| panic!("`make test` provides NIXL: {error}"));
    library.path().to_owned()
}

#[test]
fn a_missing_library_is_an_error_and_loading_can_be_tried_again() {
    let missing = Path::new("/nonexistent/libnixl_capi.so");
    let answer = run("load", &[(LIBRARY_VARIABLE, missing)]);
    assert!(answer.contains("/nonexistent/libnixl_capi.so: no such file"), "{answer}");
    let answer = run("retry", &[(LIBRARY_VARIABLE, missing), (REAL, &real())]);
    assert!(answer.starts_with("retried"), "{answer}");
}

#[test]
fn the_error_lists_every_place_that_was_looked_at() {
    let empty = Path::new("/nonexistent");
    let answer = run("load", &[("PYTHONPATH", empty), ("VIRTUAL_ENV", empty), ("PATH", empty)]);
    if let Some(path) = answer.strip_prefix("loaded ") {
        // This machine has NIXL where a bare process finds it.
        assert!(path.contains("libnixl_capi.so"), "{path}");
        return;
    }
    for place in [
        "libnixl_capi.so by the dynamic loader: ",
        "/opt/nvidia/nvda_nixl/lib64/",
        "/nonexistent (PYTHONPATH): ",
        "/nonexistent (VIRTUAL_ENV): ",
        "python3: ",
    ] {
        assert!(answer.contains(place), "{place} in {answer}");
    }
}

#[test]
fn the_folder_of_the_library_is_as_good_as_its_path() {
    let real = real();
    for path in [&*real, real.parent().unwrap()] {
        let answer = run("load", &[(LIBRARY_VARIABLE, path)]);
        assert!(answer.starts_with("loaded ") && answer.contains("libnixl_capi.so"), "{answer}");
    }
}

#[test]
fn an_installed_wheel_is_found() {
    let real = real();
    let wheel = real.parent().unwrap();
    if !wheel.file_name().unwrap().to_string_lossy().starts_with(".nixl") {
        println!("skipped: NIXL at {} is not from a wheel", real.display());
        return;
    }
    let site = wheel.parent().unwrap();
    let answer = run("load", &[("PYTHONPATH", site), ("PATH", Path::new("/nonexistent"))]);
    assert!(answer.starts_with("loaded "), "{answer}");
}

#[test]
fn a_file_that_is_not_nixl_is_refused_by_name() {
    let file = std::env::temp_dir().join(format!("kvnixl-test-{}.so", std::process::id()));
    std::fs::write(&file, "not a library").unwrap();
    let answer = run("load", &[(LIBRARY_VARIABLE, &file)]);
    std::fs::remove_file(&file).unwrap();
    assert!(answer.contains(file.to_str().unwrap()) && !answer.starts_with("loaded"), "{answer}");

    let sibling = real().with_file_name("libnixl.so");
    if sibling.exists() {
        let answer = run("load", &[(LIBRARY_VARIABLE, &sibling)]);
        assert!(answer.contains("it lacks nixl_capi_create_configured_agent"), "{answer}");
    }
}
