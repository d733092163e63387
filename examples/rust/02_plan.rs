//! Plans a transfer: the same request between whole rows, and from whole rows to per-layer pages.
//!
//! ```sh
//! cargo run --package examples --example 02_plan
//! ```

use kvplan::{BlockList, Descriptors, LocalPlan, PairOptions, PairPlan, Request};
use kvspec::kinds::Mla;
use kvspec::{Arrange, BlockId, Blocks, Fingerprint, GroupId, Layout, Pool, SpecError, Topology, ValidSpec};

/// Three MLA layers in 16 blocks of 64 tokens.
fn worker(layout: Layout, base: u64) -> Result<ValidSpec, SpecError> {
    let model = Fingerprint { model: "org/model".to_owned(), ..Fingerprint::default() };
    let blocks = (0..3).fold(Blocks::tokens(64), |blocks, i| blocks.layer(format!("layers.{i}"), Mla::bf16()));
    Arrange::new(model, Topology::default()).pool(Pool::new(layout, 16).blocks(blocks)).build()?.at(&[base])?.validate()
}

fn list(blocks: &[u32]) -> Vec<BlockList> {
    vec![BlockList { group: GroupId(0), first: None, blocks: blocks.iter().copied().map(BlockId).collect() }]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let prefill = worker(Layout::Blhnc, 0x7f00_0000_0000)?;
    let decode_rows = worker(Layout::Blhnc, 0x7e00_0000_0000)?;
    let decode_pages = worker(Layout::Lbhnc, 0x7d00_0000_0000)?;

    // What each registers.
    assert_eq!(LocalPlan::new(&decode_rows).regions().len(), 1);
    assert_eq!(LocalPlan::new(&decode_pages).regions().len(), 3);

    // Decode pulls its blocks 5, 6 and 9 from blocks 1, 2 and 8 of prefill.
    let request = Request { local: list(&[5, 6, 9]), remote: list(&[1, 2, 8]), ..Request::default() };
    let mut answer = Descriptors::new();

    // Rows on both sides: blocks 5 and 6 are neighbours of each other here and there, and become one.
    let rows = PairPlan::new(&decode_rows, &prefill, &PairOptions::default())?;
    rows.descriptors(&request, &mut answer)?;
    let row = 3 * 64 * 1152;
    assert_eq!(answer.as_slice().iter().map(|d| d.len).collect::<Vec<_>>(), [2 * row, row]);

    // Pages at decode: the row is split through its members.
    let pages = PairPlan::new(&decode_pages, &prefill, &PairOptions::default())?;
    pages.descriptors(&request, &mut answer)?;
    assert_eq!(answer.as_slice().len(), 9);
    println!("{}", pages.explain());

    // A deployment that counts on rows asks for them, and is told what broke them.
    let strict = PairOptions { require_whole_rows: true, ..PairOptions::default() };
    match PairPlan::new(&decode_pages, &prefill, &strict) {
        Err(refused) => println!("refused: {refused}"),
        Ok(_) => return Err("pages cannot make whole rows".into()),
    }
    Ok(())
}
