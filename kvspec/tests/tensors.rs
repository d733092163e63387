//! Caches described from raw tensors as engines have them, and every way in which tensors contradict a kind.

use kvspec::kinds::*;
use kvspec::tensors::TensorError;
use kvspec::*;

const BASE: u64 = 0x1000_0000;

fn group(block_tokens: u64, num_blocks: u64) -> Group {
    Group { pool: PoolId(0), block_tokens, num_blocks, usage: Usage::Tokens }
}

fn state(num_blocks: u64) -> Group {
    Group { usage: Usage::State, ..group(1, num_blocks) }
}

fn from(
    tp: Shard,
    group: Group,
    kind: impl Describe,
    tensors: impl IntoIterator<Item = Tensor>,
) -> Result<CacheSpec, SpecError> {
    let layer = tensors.into_iter().fold(LayerTensors::new("a", GroupId(0), kind), LayerTensors::tensor);
    FromTensors::new(Fingerprint::default(), Topology { tp, ..Topology::default() }).group(group).layer(layer).build()
}

fn sound(group: Group, kind: impl Describe, tensors: impl IntoIterator<Item = Tensor>) -> CacheSpec {
    let spec = from(Shard::default(), group, kind, tensors).unwrap();
    spec.clone().validate().unwrap();
    spec
}

fn refused(group: Group, kind: impl Describe, tensors: impl IntoIterator<Item = Tensor>) -> TensorError {
    match from(Shard::default(), group, kind, tensors) {
        Err(SpecError::Tensors(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn gqa() -> Attention {
    Attention::new(8, 64, Element::BF16)
}

#[test]
fn packed_heads_are_cut_from_the_content() {
    // [blocks, heads, tokens, K and V of 64] in bf16.
    let tensor = Tensor::new(BASE, [10, 8, 16, 128], [32_768, 4096, 256, 2], 2, "BHNC");
    let spec = sound(group(16, 10), gqa(), [tensor]);
    let [k, v] = spec.layers[0].parts.as_slice() else { panic!() };
    assert_eq!((k.offset, v.offset, v.content, v.units.stride), (0, 128, 128, 4096));
    assert_eq!(spec.storages, [Storage { base: BASE, len: 327_680, mem: MemKind::Dram, shared: false }]);
}

#[test]
fn the_same_numbers_mean_what_the_labels_say() {
    // [2, 8, 2, 8, …]: K/V or blocks, heads or tokens.
    let kind = || Attention::new(2, 4, Element::INT8).packing(KvPacking::Apart);
    let shape = [2, 2, 2, 2, 4];
    let strides = [32, 16, 8, 4, 1];
    let part = |axes: &str| {
        let spec = sound(group(2, 2), kind(), [Tensor::new(BASE, shape, strides, 1, axes)]);
        let v = spec.layers[0].parts[1].clone();
        (v.offset, v.block_stride, v.units.stride, v.tokens[0].stride)
    };
    assert_eq!(part("2BNHC"), (32, 16, 4, 8));
    assert_eq!(part("B2HNC"), (16, 32, 8, 4));
    assert_eq!(part("BHN2C"), (4, 32, 16, 8));
}

#[test]
fn kernel_blocks_are_found_when_the_group_has_larger_blocks() {
    let tensor = Tensor::new(BASE, [20, 64, 1, 576], [73_728, 1152, 1152, 2], 2, "BN1C");
    let spec = sound(group(128, 10), Mla::bf16(), [tensor]);
    let latent = &spec.layers[0].parts[0];
    assert_eq!(latent.block_stride, 147_456);
    assert_eq!(latent.tokens, [Axis { count: 2, stride: 73_728 }, Axis { count: 64, stride: 1152 }]);
}

#[test]
fn the_projections_of_a_convolution_lie_side_by_side() {
    let tp = Shard { rank: 1, size: 2 };
    let mamba = Mamba2::new(8, 4, 2, 8, 4);
    let names = || ["conv.x", "conv.b", "conv.c"];
    // On this rank 16 channels of x, 8 of b, 8 of c, three inputs each; 4 heads of 4×8 states.
    let ssm = Tensor::new(BASE + 192, [5, 4, 4, 8], [704, 128, 32, 4], 4, "BHCC").holds(["ssm"]);
    let conv = Tensor::new(BASE, [5, 32, 3], [704, 6, 2], 2, "BHC").holds(names()).side_by_side();
    let spec = from(tp, state(5), mamba.clone(), [ssm.clone(), conv]).unwrap();
    spec.clone().validate().unwrap();
    let offsets: Vec<u64> = spec.layers[0].parts.iter().map(|part| part.offset).collect();
    assert_eq!(offsets, [0, 96, 144, 192]);
    // The same with rows before the channels.
    let rows = Tensor::new(BASE, [5, 3, 32], [704, 64, 2], 2, "BNH").holds(names()).side_by_side();
    let spec = from(tp, state(5), mamba.conv_order(ConvOrder::RowsFirst), [rows, ssm]).unwrap();
    spec.clone().validate().unwrap();
    let offsets: Vec<u64> = spec.layers[0].parts.iter().map(|part| part.offset).collect();
    assert_eq!(offsets, [0, 32, 48, 192]);
    let arranged = Arrange::new(Fingerprint::default(), spec.topology)
        .pool(
            Pool::new(Layout::Lbhnc, 5)
                .blocks(Blocks::state().layer("a", Mamba2::new(8, 4, 2, 8, 4).conv_order(ConvOrder::RowsFirst))),
        )
        .build()
        .unwrap();
    assert_eq!(arranged.at(&[BASE]).unwrap().layers, spec.layers);
}

#[test]
fn storages_are_found_per_memory_from_extents_that_touch() {
    let kind = || Mla::opaque(16, "x");
    let tensor = |ptr, mem| Tensor::new(ptr, [4, 2, 16], [32, 16, 1], 1, "BNC").mem(mem);
    let build = |given: &[Storage]| {
        let mut tensors = FromTensors::new(Fingerprint::default(), Topology::default()).group(group(2, 4));
        for (name, ptr, mem) in [
            ("a", 0x1000, MemKind::Dram),
            ("b", 0x1080, MemKind::Dram),
            ("c", 0x1101, MemKind::Dram),
            ("d", 0x1000, MemKind::Vram(0)),
        ] {
            tensors = tensors.layer(LayerTensors::new(name, GroupId(0), kind()).tensor(tensor(ptr, mem)));
        }
        given.iter().fold(tensors, |tensors, &storage| tensors.storage(storage)).build()
    };
    let found = build(&[]).unwrap();
    let extents: Vec<_> = found.storages.iter().map(|storage| (storage.mem, storage.base, storage.len)).collect();
    assert_eq!(extents, [(MemKind::Dram, 0x1000, 256), (MemKind::Dram, 0x1101, 128), (MemKind::Vram(0), 0x1000, 128)]);
    found.validate().unwrap();
    let storage = |base, len, mem| Storage { base, len, mem, shared: false };
    let given = [storage(0, 0x2000, MemKind::Dram), storage(0, 0x2000, MemKind::Vram(0))];
    let spec = build(&given).unwrap();
    assert_eq!((spec.storages.as_slice(), spec.layers[2].parts[0].offset), (given.as_slice(), 0x1101));
    match build(&given[..1]) {
        Err(SpecError::Tensors(TensorError::NoStorage {
            layer, start: 0x1000, end: 0x1080, num_storages: 1, ..
        })) => {
            assert_eq!(layer.as_str(), "d");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shape_that_contradicts_its_labels_is_refused_with_both_numbers() {
    let tensor = |shape: [u64; 4], axes| Tensor::new(BASE, shape, [32_768, 4096, 256, 2], 2, axes);
    let extent = |error: TensorError| match error {
        TensorError::Extent { axis, given, wanted, .. } => (axis, given, wanted),
        other => panic!("{other}"),
    };
    let right = [10, 8, 16, 128];
    assert_eq!(extent(refused(group(16, 12), gqa(), [tensor(right, "BHNC")])), ('B', 10, 12));
    assert_eq!(extent(refused(group(16, 10), gqa(), [tensor(right, "BNHC")])), ('H', 16, 8));
    assert_eq!(extent(refused(group(32, 10), gqa(), [tensor(right, "BHNC")])), ('N', 16, 32));
    assert_eq!(extent(refused(group(16, 10), gqa(), [tensor(right, "BHN1")])), ('1', 128, 1));
    let error = refused(group(16, 10), gqa(), [tensor([10, 8, 16, 64], "BHNC")]);
    assert_eq!(
        error.to_string(),
        "layer a: part k: the content axes hold 128 bytes, wanted 256; check element_size and the kind's element type"
    );
    let error = refused(group(24, 10), gqa(), [tensor(right, "BHNC")]);
    assert!(matches!(error, TensorError::NotTiling { stored: 16, wanted: 24, .. }), "{error}");
    let error = refused(group(16, 10), gqa(), [tensor(right, "2HNC")]);
    assert!(matches!(error, TensorError::LabelCount { label: 'B', given: 0, .. }), "{error}");
    let error = refused(group(16, 10), gqa(), [tensor(right, "BHXC")]);
    assert!(matches!(error, TensorError::UnknownLabel { label: 'X', .. }), "{error}");
    let error = refused(group(16, 10), gqa(), [tensor(right, "BHC")]);
    assert!(matches!(error, TensorError::Rank { labels: 3, extents: 4, strides: 4, .. }), "{error}");
    let halves = Tensor::new(BASE, [3, 10, 16, 8, 64], [163_840, 16_384, 1024, 128, 2], 2, "2BNHC");
    assert_eq!(extent(refused(group(16, 10), gqa(), [halves])), ('2', 3, 2));
    let ring = Tensor::new(BASE, [4, 8, 2], [16, 2, 1], 1, "BNC");
    assert_eq!(extent(refused(state(4), Ring::new(16, 2, ""), [ring])), ('N', 8, 16));
}

#[test]
fn the_units_are_those_of_the_rank() {
    let tensor = Tensor::new(BASE, [10, 8, 16, 128], [32_768, 4096, 256, 2], 2, "BHNC");
    match from(Shard { rank: 0, size: 2 }, group(16, 10), gqa(), [tensor]) {
        Err(SpecError::Tensors(error)) => {
            assert_eq!(error.to_string(), "layer a: part k: axis 'H' has extent 8, wanted 4: units on this rank");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn strides_that_are_negative_overlapping_or_broken_are_refused() {
    let tensor = |strides: [i64; 4]| Tensor::new(BASE, [10, 8, 16, 128], strides, 2, "BHNC");
    let error = refused(group(16, 10), gqa(), [tensor([32_768, -4096, 256, 2])]);
    assert!(matches!(error, TensorError::NegativeStride { axis: 'H', stride: -4096, extent: 8, .. }), "{error}");
    let error = refused(group(16, 10), gqa(), [tensor([32_768, 4096, 255, 2])]);
    // K and V, 128 bytes each, share a row of 256.
    assert!(matches!(error, TensorError::Overlap { distance: 255, content: 256, .. }), "{error}");
    let error = refused(group(16, 10), gqa(), [tensor([0, 4096, 256, 2])]);
    assert!(matches!(error, TensorError::Overlap { distance: 0, content: 256, .. }), "{error}");
    let error = refused(group(16, 10), gqa(), [tensor([32_768, 4096, 256, 4])]);
    assert!(matches!(error, TensorError::ContentStride { stride: 4, wanted: 2, .. }), "{error}");
    // An axis of one position may have any stride.
    let one = Tensor::new(BASE, [10, 1, 16, 16], [256, -7, 16, 1], 1, "BHNC");
    sound(group(16, 10), Mla::opaque(16, ""), [one]);
}

#[test]
fn numbers_near_two_to_the_64_are_refused_without_overflow() {
    let tensor = |ptr, strides: [i64; 3], row: u64| Tensor::new(ptr, [10, 16, row], strides, 1, "BNC");
    let max = i64::MAX;
    for tensor in
        [tensor(u64::MAX - 100, [256, 16, 1], 16), tensor(BASE, [max, 16, 1], 16), tensor(BASE, [max, max, 1], 16)]
    {
        let error = refused(group(16, 10), Mla::opaque(16, ""), [tensor]);
        assert!(matches!(error, TensorError::TooLarge { .. }), "{error}");
    }
    let wide = Tensor::new(BASE, [10, 16, u64::MAX, u64::MAX], [1, 1, 1, 1], u64::MAX, "BNCC");
    let error = refused(group(16, 10), Mla::opaque(16, ""), [wide]);
    assert!(matches!(error, TensorError::ContentStride { .. } | TensorError::TooLarge { .. }), "{error}");
    let many = Tensor::new(BASE, [10, u64::MAX, u64::MAX, 16], [1, 16, 16, 1], 1, "BNNC");
    let error = refused(group(16, 10), Mla::opaque(16, ""), [many]);
    assert!(matches!(error, TensorError::TooLarge { .. }), "{error}");
    let kernels = Tensor::new(BASE, [u64::MAX, 1, 16], [max, 16, 1], 1, "BNC");
    let error = refused(group(u64::MAX, u64::MAX), Mla::opaque(16, ""), [kernels]);
    assert!(matches!(error, TensorError::TooLarge { .. }), "{error}");
}

#[test]
fn every_part_is_held_by_one_tensor() {
    let tensor = |names: &[&str]| {
        Tensor::new(BASE, [10, 8, 16, 64], [16_384, 2048, 128, 2], 2, "BHNC").holds(names.iter().copied())
    };
    let error = refused(group(16, 10), gqa(), [tensor(&["k"])]);
    assert_eq!(error.to_string(), "layer a: part v is held by 0 tensors; name each part in one of them");
    let error = refused(group(16, 10), gqa(), [tensor(&["k"]), tensor(&["v"]), tensor(&["k"])]);
    assert!(matches!(error, TensorError::PartHeld { tensors: 2, .. }), "{error}");
    let error = refused(group(16, 10), gqa(), [tensor(&["q"])]);
    assert!(matches!(error, TensorError::NoSuchPart { .. }), "{error}");
    let error = refused(state(10), gqa(), [tensor(&["k"])]);
    assert!(matches!(error, TensorError::Usage { kind: Usage::Tokens, group: Usage::State, .. }), "{error}");
}
