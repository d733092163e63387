//! Prints the case that an artifact of `plan` or `edits` stands for: `show plan FILE`.

use arbitrary::{Arbitrary, Unstructured};
use kvfuzz::{deployment, edits};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: show plan|edits FILE".into());
    };
    let bytes = std::fs::read(path)?;
    let (local, remote, options, request) = if target == "edits" {
        let edits::Case { local, remote, options, request } = edits::case(&bytes).ok_or("not a case")?;
        (local, remote, options, request)
    } else {
        let case = deployment::Case::arbitrary_take_rest(Unstructured::new(&bytes))?;
        (case.local, case.remote, case.options, case.request)
    };
    println!("{}", serde_json::json!({"local": local, "remote": remote, "request": request}));
    eprintln!("{options:?}");
    Ok(())
}
