//! The JSON form of a spec.
//!
//! The fields, their defaults and what they mean: `docs/JSON.md` in the repository.
//!
//! Every size and address is an integer of 64 bits; unknown fields are errors, since a misspelt field that is
//! silently left out would be a wrong byte later.

use serde::de::{DeserializeOwned, Error};

use crate::error::SpecError;
use crate::spec::CacheSpec;

/// Reads one JSON object; an error comes with the path to the field, `.` for the whole text.
///
/// # Errors
///
/// The path, and what was found and expected there. A top-level array is refused: its elements would be taken for
/// fields by position.
pub fn read_object<T: DeserializeOwned>(text: &str) -> Result<T, (String, serde_json::Error)> {
    let whole = || ".".to_owned();
    if text.trim_start().starts_with('[') {
        return Err((
            whole(),
            serde_json::Error::custom("invalid type: sequence, expected an object with named fields"),
        ));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let object = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        (if path == "?" { whole() } else { path }, error.into_inner())
    })?;
    json.end().map_err(|source| (whole(), source))?;
    Ok(object)
}

impl CacheSpec {
    /// Reads a spec. It is not validated yet: see [`CacheSpec::validate`].
    ///
    /// ```
    /// use kvspec::CacheSpec;
    ///
    /// let error = CacheSpec::from_json(r#"{
    ///     "version": 1, "fingerprint": {"model": "m"}, "groups": [], "layers": [],
    ///     "storages": [{"base": 0, "len": -5, "mem": "dram"}]
    /// }"#).unwrap_err();
    /// assert!(error.to_string().starts_with("storages[0].len: invalid value: integer `-5`, expected u64"));
    /// ```
    ///
    /// # Errors
    ///
    /// [`SpecError::Json`] with the path to the field and what was expected there.
    pub fn from_json(text: &str) -> Result<Self, SpecError> {
        read_object(text).map_err(|(path, source)| SpecError::Json { path, source })
    }

    /// Writes the spec as indented JSON that [`CacheSpec::from_json`] reads back to an equal spec.
    ///
    /// # Errors
    ///
    /// [`SpecError::Write`], which no spec is known to cause.
    pub fn to_json(&self) -> Result<String, SpecError> {
        serde_json::to_string_pretty(self).map_err(|source| SpecError::Write { source })
    }
}
