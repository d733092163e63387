//! What a destination rank must receive, and whether it did.
//!
//! [`Expectation::of`] enumerates; [`judge`] compares the answers of all source ranks with it. Who serves whom is
//! left free: every needed byte must come from exactly one source rank that holds it.

mod expectation;
mod gaps;
mod rows;
mod verdict;

pub use expectation::{Expectation, Piece, owns, union};
pub use gaps::{Owner, may_bridge, owners};
pub use rows::{Row, Rows};
pub use verdict::{Finding, Summary, judge};
