//! Plans KV cache transfers: the fewest byte ranges that are exactly right for the peer at hand.
//!
//! A worker describes its caches with [`kvspec`]; this crate folds them into regions to register, pairs them with a
//! peer's, and answers requests with descriptors. It is pure functions: no I/O, no threads, no transport.
//!
//! ```
//! use kvplan::{BlockList, Descriptors, PairOptions, PairPlan, Request};
//! use kvspec::{BlockId, CacheSpec, GroupId};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // One MLA layer, 4 blocks of 64 tokens; both workers describe their caches alike.
//! let spec = CacheSpec::from_json(r#"{
//!     "version": 1,
//!     "fingerprint": {"model": "org/model"},
//!     "storages": [{"base": 4096, "len": 294912, "mem": "dram"}],
//!     "groups": [{"pool": 0, "block_tokens": 64, "num_blocks": 4}],
//!     "layers": [{"name": "layers.0", "group": 0, "kind": "mla", "parts": [
//!         {"name": "latent", "storage": 0, "offset": 0, "block_stride": 73728, "sharding": "replicated",
//!          "units": {"count": 1, "stride": 73728}, "tokens": [{"count": 64, "stride": 1152}], "content": 1152}]}]
//! }"#)?.validate()?;
//!
//! let plan = PairPlan::new(&spec, &spec, &PairOptions::default())?;
//! let list = |blocks: &[u32]| BlockList {
//!     group: GroupId(0), first: None, blocks: blocks.iter().copied().map(BlockId).collect(),
//! };
//! let request = Request { local: vec![list(&[2, 3])], remote: vec![list(&[0, 1])], ..Default::default() };
//! let mut answer = Descriptors::new();
//! plan.descriptors(&request, &mut answer)?;
//! // Blocks 2, 3 from 0, 1: neighbours on both sides, so one descriptor.
//! assert_eq!(answer.as_slice().len(), 1);
//! assert_eq!(answer.as_slice()[0].len, 2 * 73728);
//! println!("{}", plan.explain());
//! # Ok(())
//! # }
//! ```
//!
//! # Where is what
//!
//! | question | module |
//! |---|---|
//! | what does a worker register and advertise? | [`local`] |
//! | how do layers of two workers meet, and what is refused? | `pair`, [`refusal`] |
//! | from whom does a rank read what? | [`serve`] |
//! | do all ranks together make up the model? | [`deployment`] |
//! | who moves what to whom, and how evenly? | [`flow`] |
//! | how do blocks of different sizes, or of context-parallel ranks, meet? | `timeline`, `schedule` |
//! | how do token axes cut into kernel blocks meet? | `refine` |
//! | what is a plan made of? | `copy`, `lane`, `template` |
//! | what is a row, and when may a gap in it travel as padding? | `rows`, `gap` |
//! | what does a request become? | [`request`], `lists`, `answer`, [`descriptor`] |
//! | where does a list begin that does not say it? | `align` |
//! | what of a request for some of the layers? | [`layers`] |
//! | why is a block more than one descriptor? | [`explain`] |
//! | is an answer right? | [`verify`] |
//! | what does a row look like? | [`picture`] |
//!
//! # Reading order
//!
//! The words and the idea first: [`planning`]. Then along the way that a plan takes, each file short and its module
//! documentation first:
//!
//! 1. `rows`: which pages of a block lie together, and what a place in a spec is called;
//! 2. `copy`: the strided-copy algebra and its normal form;
//! 3. `timeline`, `schedule`: which tokens of my block lie in which block of yours;
//! 4. `refine`: the same within a block, where token axes are cut into factors;
//! 5. `pair`: parts meet by name, and the four above become a plan, with `serve` to say who serves whom;
//! 6. `lane`: copies of everything that moves between two groups, in normal form;
//! 7. `template`: what they unroll to for one block, with `gap` to say which bytes may travel as padding;
//! 8. `answer`: a request's blocks, sorted, walked and joined.
//!
//! `explain`, `verify` and `flow` look at what came of it; `local` needs nothing but `rows`.
//!
//! # What it does not do
//!
//! It moves no bytes, holds no blocks and knows no transport: see the crate `kvnixl`. It does not decide which blocks a
//! request owns; the engine's block manager does.
#![forbid(unsafe_code)]

mod align;
mod answer;
mod copy;
pub mod deployment;
pub mod descriptor;
pub mod explain;
pub mod flow;
mod gap;
mod lane;
pub mod layers;
mod lists;
pub mod local;
mod names;
mod pair;
pub mod picture;
#[cfg(doc)]
pub mod planning {
    #![doc = include_str!("../docs/planning.md")]
}
mod refine;
pub mod refusal;
pub mod request;
mod rows;
mod schedule;
pub mod serve;
mod template;
mod timeline;
pub mod verify;

pub use deployment::{Deployment, DeploymentError, DeploymentFinding, Rank, Union, check_union};
pub use descriptor::{AnswerError, Descriptor, Descriptors, ZeroRange};
pub use explain::Explanation;
pub use flow::{Flow, Flows, Load, flows};
pub use lane::LaneKey;
pub use layers::{Layers, SomeLayers};
pub use lists::check_destination;
pub use local::{LocalPlan, Member, MemoryRange, Region, RowBroken, memory_ranges};
pub use pair::{PairOptions, PairPlan};
pub use picture::{RowPicture, SegmentKind};
pub use refusal::{PairError, Refusal, RequestError, Side};
pub use request::{Align, BlockList, JsonError, Op, Request};
pub use rows::PartRef;
pub use serve::{Positions, Share, readers, sources, targets};
pub use verify::{NotFree, VerifyError};
