//! Reading specs and requests.

use std::io::Read;
use std::path::Path;

use kvplan::Request;
use kvspec::{CacheSpec, ValidSpec};

use crate::output::Failure;

/// Longest input that is read; a spec of a thousand layers has about a megabyte.
const MAX_INPUT: u64 = 1 << 30;

fn read_text(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(MAX_INPUT).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_INPUT).read_to_string(&mut text))
    };
    read.map_err(|source| Failure::input(path, source))?;
    Ok(text)
}

/// Reads and validates a spec.
pub(crate) fn read_spec(path: &Path) -> Result<ValidSpec, Failure> {
    let spec = CacheSpec::from_json(&read_text(path)?).map_err(|error| Failure::spec(path, error))?;
    spec.validate().map_err(|error| Failure::spec(path, error))
}

/// Reads a request.
pub(crate) fn read_request(path: &Path) -> Result<Request, Failure> {
    Request::from_json(&read_text(path)?).map_err(|error| Failure::input(path, error))
}
