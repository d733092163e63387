//! Describes a worker's caches, in two ways: arranged for it, and from tensors that it has.
//!
//! ```sh
//! cargo run --package examples --example 01_describe
//! ```

use kvspec::kinds::{Attention, Element, Indexer, Mla};
use kvspec::{Arrange, Blocks, CacheSpec, Fingerprint, Layout, Pool, Role, Shard, SpecError, Topology};

fn main() -> Result<(), SpecError> {
    // Rank 1 of 4: latents of two layers with an index cache, and a GQA draft, in one row a block.
    let model = Fingerprint { model: "org/model".to_owned(), ..Fingerprint::default() };
    let topology = Topology { tp: Shard { rank: 1, size: 4 }, ..Topology::default() };
    let blocks = Blocks::tokens(64)
        .layer("model.layers.0.self_attn", Mla::fp8())
        .layer_as("model.layers.0.indexer", Indexer::fp8(), Role::Indexer)
        .layer("model.layers.1.self_attn", Mla::fp8())
        .layer_as("draft.layers.0.self_attn", Attention::new(8, 128, Element::BF16), Role::Draft);
    let arranged = Arrange::new(model, topology).pool(Pool::new(Layout::Blhnc, 1000).blocks(blocks)).build()?;

    // Allocate that many bytes, then say where. Here nothing is allocated: addresses are numbers.
    println!("allocate {:?} bytes", arranged.storage_lens());
    let spec = arranged.at(&[0x7f00_0000_0000])?;

    // Validation says everything that is wrong, and gives the type that planners take.
    let valid = spec.clone().validate()?;
    for layer in &valid.layers {
        for part in &layer.parts {
            let units = valid.units_of(part);
            println!(
                "{} {}: block 0 at {}, units {units:?} of {} bytes",
                layer.name, part.name, part.offset, part.content
            );
        }
    }

    // The JSON form is what the `kvplan` command reads.
    let same = CacheSpec::from_json(&spec.to_json()?)?;
    assert_eq!(same, spec);

    // A spec that contradicts itself: both faults are reported, with layer and values.
    let mut spoilt = spec;
    spoilt.layers[1].parts[0].offset -= 4;
    spoilt.layers[2].parts[0].content = 0;
    match spoilt.validate() {
        Err(SpecError::Invalid(findings)) => {
            assert!(findings.iter().count() >= 2);
            findings.iter().for_each(|finding| println!("wrong: {finding}"));
        }
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}
