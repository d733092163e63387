//! Whole-spec validation.

use crate::error::SpecError;
use crate::spec::CacheSpec;

pub(crate) fn check(_spec: &CacheSpec) -> Result<(), SpecError> {
    Ok(())
}
