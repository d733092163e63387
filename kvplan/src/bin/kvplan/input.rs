//! Reading specs and requests.

use std::io::Read;
use std::path::{Path, PathBuf};

use kvplan::{Deployment, Request};
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

/// Reads the specs of a deployment: files with one spec each, or with a JSON array of specs.
pub(crate) fn read_deployment(paths: &[PathBuf]) -> Result<Deployment, Failure> {
    let mut specs = Vec::new();
    for path in paths {
        let text = read_text(path)?;
        if text.trim_start().starts_with('[') {
            let mut json = serde_json::Deserializer::from_str(&text);
            let array: Vec<CacheSpec> =
                serde_path_to_error::deserialize(&mut json).map_err(|error| Failure::input(path, error))?;
            json.end().map_err(|error| Failure::input(path, error))?;
            for spec in array {
                specs.push(spec.validate().map_err(|error| Failure::spec(path, error))?);
            }
        } else {
            let spec = CacheSpec::from_json(&text).map_err(|error| Failure::spec(path, error))?;
            specs.push(spec.validate().map_err(|error| Failure::spec(path, error))?);
        }
    }
    Ok(Deployment::new(specs)?)
}

/// Reads a request.
pub(crate) fn read_request(path: &Path) -> Result<Request, Failure> {
    Request::from_json(&read_text(path)?).map_err(|error| Failure::input(path, error))
}
