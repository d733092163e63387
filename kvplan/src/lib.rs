//! Plans KV cache transfers.
#![forbid(unsafe_code)]

mod answer;
pub mod copy;
pub mod descriptor;
mod gap;
mod lane;
mod lists;
mod pair;
mod refine;
pub mod refusal;
pub mod request;
mod rows;
mod schedule;
mod serve;
mod template;

pub use descriptor::{Descriptor, Descriptors, ZeroRange};
pub use lane::LaneKey;
pub use pair::{PairOptions, PairPlan};
pub use refusal::{PairError, Refusal, RequestError, Side};
pub use request::{BlockList, Op, Request};
pub use rows::PartRef;
