//! Bytes that the library does not interpret.

use super::{Describe, KindError, Page, PartShape, Section, States, Units};
use crate::spec::{Kind, Usage};

/// Rows of bytes: one part `aux`, replicated over TP.
///
/// ```
/// use kvspec::Usage;
/// use kvspec::kinds::{Describe, Opaque};
///
/// // 4 KiB of auxiliary data for each request, such as a sampler's state.
/// assert_eq!(Opaque::per_request(4096, "sampler-v1").describe()?.usage, Usage::State);
/// // 16 bytes for each token.
/// assert_eq!(Opaque::per_token(16, "mrope").describe()?.usage, Usage::Tokens);
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opaque {
    bytes: u64,
    format: String,
    usage: Usage,
}

impl Opaque {
    /// `bytes` bytes for each request.
    #[must_use]
    pub fn per_request(bytes: u64, format: impl Into<String>) -> Self {
        Self { bytes, format: format.into(), usage: Usage::State }
    }

    /// `bytes` bytes for each token.
    #[must_use]
    pub fn per_token(bytes: u64, format: impl Into<String>) -> Self {
        Self { bytes, format: format.into(), usage: Usage::Tokens }
    }
}

impl Describe for Opaque {
    fn describe(&self) -> Result<Page, KindError> {
        let mut section = Section::of(PartShape {
            name: "aux".into(),
            units: Units::Replicated(1),
            content: self.bytes,
            format: self.format.clone(),
        });
        if self.usage == Usage::State {
            section.states = States::Fixed(Vec::new());
        }
        Ok(Page { kind: Kind::Opaque, usage: self.usage, sections: vec![section] })
    }
}
