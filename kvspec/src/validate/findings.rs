//! All that is wrong with a spec.

use std::fmt;
use std::ops::Deref;

use super::finding::Finding;

/// Everything that is wrong with a spec; never empty in an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings(pub(crate) Vec<Finding>);

impl Deref for Findings {
    type Target = [Finding];

    fn deref(&self) -> &[Finding] {
        &self.0
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => one.fmt(f),
            all => {
                write!(f, "{} findings", all.len())?;
                all.iter().try_for_each(|finding| write!(f, "\n  - {finding}"))
            }
        }
    }
}
