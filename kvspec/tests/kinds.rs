//! Every kind, in every layout and sharding: valid, and the same after a trip through JSON and raw tensors.

#[path = "common/kinds.rs"]
mod kinds;

use kinds::{Example, every_kind};
use kvspec::kinds::{Attention, BlockScaled, Describe, Element, KindError, Mamba1, Mamba2, Mla, Nvfp4, TokenHeadQuant};
use kvspec::*;

fn fingerprint() -> Fingerprint {
    Fingerprint { model: "org/model".to_owned(), ..Fingerprint::default() }
}

/// Calls `check` with every kind, arranged in every layout for first, middle and last ranks of several sizes.
fn for_every_spec(mut check: impl FnMut(&str, &Example, CacheSpec)) {
    let mut num = 0;
    for example in every_kind() {
        let Example { name, blocks, .. } = &example;
        for layout in Layout::ALL {
            for (rank, size) in [(0, 1), (0, 2), (1, 2), (2, 4), (7, 8), (1, 3)] {
                let topology = Topology { tp: Shard { rank, size }, ..Topology::default() };
                let pool = Pool::new(layout, 5).mem(MemKind::Vram(0)).blocks(blocks.clone());
                let arranged = Arrange::new(fingerprint(), topology).pool(pool).build().unwrap();
                let bases: Vec<u64> = (0..arranged.spec.storages.len()).map(|i| (i as u64 + 1) << 40).collect();
                check(&format!("{name}, {layout}, TP {rank} of {size}"), &example, arranged.at(&bases).unwrap());
                num += 1;
            }
        }
    }
    assert!(num > 1000, "{num} specs");
}

#[test]
fn every_kind_is_valid_in_every_layout() {
    for_every_spec(|name, _, spec| {
        spec.validate().unwrap_or_else(|error| panic!("{name}: {error}"));
    });
}

#[test]
fn every_kind_reads_back_from_json() {
    for_every_spec(|name, _, spec| {
        let text = spec.to_json().unwrap();
        assert_eq!(CacheSpec::from_json(&text).unwrap(), spec, "{name}");
    });
}

/// A part as the tensor that an engine would have for it.
fn tensor(spec: &CacheSpec, layer: &Layer, part: &Part) -> Tensor {
    let group = spec.groups[layer.group.index()];
    let storage = spec.storages[part.storage.index()];
    let axes = [Axis { count: group.num_blocks, stride: part.block_stride }, part.units];
    let content = Axis { count: part.content, stride: 1 };
    let axes = || axes.iter().chain(&part.tokens).chain([&content]);
    let strides: Vec<i64> = axes().map(|axis| i64::try_from(axis.stride).unwrap()).collect();
    let shape: Vec<u64> = axes().map(|axis| axis.count).collect();
    let labels = format!("BH{}C", "N".repeat(part.tokens.len()));
    Tensor::new(storage.base + part.offset, shape, strides, 1, labels).mem(storage.mem).holds([part.name.clone()])
}

#[test]
fn every_kind_is_the_same_through_raw_tensors() {
    for_every_spec(|name, example, spec| {
        let mut tensors = FromTensors::new(fingerprint(), spec.topology);
        for &storage in &spec.storages {
            tensors = tensors.storage(storage);
        }
        for &group in &spec.groups {
            tensors = tensors.group(group);
        }
        for layer in &spec.layers {
            let mut given = LayerTensors::new(layer.name.clone(), layer.group, example.page.clone()).role(layer.role);
            if !layer.transfer {
                given = given.stays();
            }
            for part in &layer.parts {
                given = given.tensor(tensor(&spec, layer, part));
            }
            tensors = tensors.layer(given);
        }
        assert_eq!(tensors.build().unwrap_or_else(|error| panic!("{name}: {error}")), spec, "{name}");
    });
}

#[test]
fn numbers_that_make_no_bytes_are_refused_by_name() {
    let odd = Attention::new(1, 3, Element::INT4).describe().unwrap_err();
    assert_eq!(odd, KindError::PartialByte { part: "k".into(), elements: 3, bits: 4 });
    assert_eq!(odd.to_string(), "part k: 3 elements of 4 bits are not a whole number of bytes");
    let scale = Nvfp4::new(1, 128).value_head_size(24).describe().unwrap_err();
    assert_eq!(scale, KindError::PartialScaleBlock { part: "v_scale".into(), elements: 24, block: 16 });
    let conv = Mamba1::new(8, 8, 1).describe().unwrap_err();
    assert_eq!(conv, KindError::NoConvolution { part: "conv.x".into(), conv_kernel: 1 });
}

#[test]
fn numbers_near_two_to_the_64_are_refused_by_name() {
    let max = u64::MAX;
    for (part, error) in [
        ("k", Attention::new(1, max, Element::BF16).describe()),
        ("k", TokenHeadQuant::new(1, max, Element::INT8, 4).describe()),
        ("conv.x", Mamba2::new(max, 2, 2, 2, 4).describe()),
        ("conv.b", Mamba2::new(2, 2, max, 2, 4).describe()),
        ("ssm", Mamba2::new(2, 1 << 40, 1, 1 << 40, 4).describe()),
        ("k_scale", BlockScaled::new(Attention::new(1, 8, Element::INT8), Element::F32, max).describe()),
    ] {
        match error {
            Err(KindError::TooLarge { part: named, .. }) => assert_eq!(named.as_str(), part),
            other => panic!("{part}: {other:?}"),
        }
    }
    assert!(Mla::opaque(max, "row").describe().is_ok(), "bytes as they are need no arithmetic");
}
