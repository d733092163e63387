//! Judges transfer plans without knowing how the planner works.
//!
//! The planner in `kvplan` thinks in strided copies. Nothing here does: every cell (layer, part, global unit,
//! stored state) of both sides is enumerated one by one, cells meet by name in a hash map, and what the planner
//! answered is held against that.
//!
//! | module | what |
//! |---|---|
//! | [`cells`] | where a cell lies and which position of the sequence it stands for |
//! | [`transfer`] | one transfer between two deployments, as data |
//! | [`judge`] | what a destination rank must receive, and whether it did |
//! | [`memory`] | the same by filling real buffers and copying |
//! | [`twin`] | a naive planner: one copy a cell, merged |
//! | [`run`] | asks `kvplan` for every pair of ranks of a transfer |
//! | [`run`] | asks `kvplan` for every pair of ranks of a transfer |
//! | [`vectors`] | the golden vectors |
//!
//! Not a library for users: internal to the tests of this workspace.

#![forbid(unsafe_code)]

pub mod cells;
pub mod judge;
pub mod memory;
pub mod run;
pub mod transfer;
pub mod twin;
pub mod vectors;
