//! The JSON form of a spec.
//!
//! The fields, their defaults and what they mean: `docs/JSON.md` in the repository.
//!
//! Every size and address is an integer of 64 bits; unknown fields are errors, since a misspelt field that is
//! silently left out would be a wrong byte later.

use crate::error::SpecError;
use crate::spec::CacheSpec;

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
        let mut json = serde_json::Deserializer::from_str(text);
        let spec = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| SpecError::Json { path: error.path().to_string(), source: error.into_inner() })?;
        json.end().map_err(|source| SpecError::Json { path: ".".to_owned(), source })?;
        Ok(spec)
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
