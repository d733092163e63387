//! All that is wrong with a spec.

use std::fmt;
use std::ops::Deref;

use super::finding::Finding;

/// Everything that is wrong with a spec; never empty in an error. Of very many the first are listed, and the last entry
/// counts the others.
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
                let more = all.iter().map(|finding| if let Finding::More { more } = finding { more - 1 } else { 0 });
                write!(f, "{} findings", all.len() + more.sum::<usize>())?;
                all.iter().try_for_each(|finding| write!(f, "\n  - {finding}"))
            }
        }
    }
}
