//! Plans KV cache transfers.
#![forbid(unsafe_code)]

mod answer;
pub mod copy;
pub mod descriptor;
pub mod explain;
mod gap;
mod lane;
mod lists;
pub mod local;
mod pair;
mod refine;
pub mod refusal;
pub mod request;
mod rows;
mod schedule;
mod serve;
mod template;
pub mod verify;

pub use descriptor::{Descriptor, Descriptors, ZeroRange};
pub use explain::Explanation;
pub use lane::LaneKey;
pub use local::{LocalPlan, Member, MemoryRange, Region, RowBroken};
pub use pair::{PairOptions, PairPlan};
pub use refusal::{PairError, Refusal, RequestError, Side};
pub use request::{BlockList, Op, Request};
pub use rows::PartRef;
pub use verify::VerifyError;
