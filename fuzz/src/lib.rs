//! What the fuzz targets share: specs and requests made from bytes, and everything that may be done with them.
//!
//! | target | bytes become |
//! |---|---|
//! | `spec_json` | the JSON form of a spec |
//! | `plan` | two deployments that are nearly valid, and a request: [`deployment`] |
//! | `edits` | a golden vector in which some numbers were changed: [`edits`] |
//! | `calls` | calls through the C ABI, some of them wrong: [`calls`] |
//!
//! ```text
//! cargo install cargo-fuzz
//! cargo run --example seeds                       # once: specs of the golden vectors for spec_json
//! cargo fuzz run -s none plan -- -max_total_time=300 -timeout=10
//! cargo run --example show plan artifacts/plan/…  # what an artifact stands for, as JSON
//! ```
//!
//! Without a sanitizer the stable toolchain will do: the planner's crates forbid unsafe code. `cargo +nightly fuzz
//! run calls` adds one.
//!
//! Nothing may panic, run for seconds or eat memory; that an answer is right is proved by the planner itself, since
//! debug assertions are on.

use kvplan::{Descriptors, LocalPlan, PairOptions, PairPlan, Request};
use kvspec::ValidSpec;

#[path = "../../kvffi/tests/calls/mod.rs"]
pub mod calls;
pub mod deployment;
pub mod edits;

/// What one worker does with its own spec.
pub fn use_alone(spec: &ValidSpec) {
    let plan = LocalPlan::new(spec);
    assert!(plan.memory_ranges().len() <= spec.storages.len());
    if let Err(broken) = LocalPlan::with_whole_rows(spec) {
        assert!(!broken.to_string().is_empty());
    }
}

/// What two workers do with each other's.
pub fn use_together(local: &ValidSpec, remote: &ValidSpec, options: &PairOptions, request: &Request) {
    match PairPlan::new(local, remote, options) {
        Err(refused) => assert!(!refused.to_string().is_empty()),
        Ok(plan) => {
            assert!(!plan.explain().to_string().is_empty());
            let mut answer = Descriptors::new();
            match plan.descriptors(request, &mut answer) {
                Err(refused) => {
                    assert!(!refused.to_string().is_empty());
                    assert!(answer.as_slice().is_empty() && answer.zero().is_empty());
                }
                Ok(()) => assert!(answer.padding_bytes() <= answer.num_bytes()),
            }
        }
    }
}
