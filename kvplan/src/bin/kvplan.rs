//! The `kvplan` command.
use kvplan::{Descriptors, PairOptions, PairPlan, Request};
use std::fs;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let spec = |p: &str| {
        let s: kvspec::CacheSpec = serde_json::from_str(&fs::read_to_string(p).unwrap()).unwrap();
        s.validate().unwrap()
    };
    let (l, r) = (spec(&args[0]), spec(&args[1]));
    let req: Request = serde_json::from_str(&fs::read_to_string(&args[2]).unwrap()).unwrap();
    let plan = match PairPlan::new(&l, &r, &PairOptions { op: req.op, max_gap: u64::MAX, ..Default::default() }) {
        Ok(p) => p,
        Err(e) => {
            println!("pair {e}");
            return;
        }
    };
    let mut out = Descriptors::new();
    if let Err(e) = plan.descriptors(&req, &mut out) {
        println!("request {e}");
        return;
    }
    println!(
        "ok {} {} {} {}",
        out.as_slice().len(),
        out.num_bytes(),
        out.padding_bytes(),
        out.zero().iter().map(|z| z.len).sum::<u64>()
    );
}
