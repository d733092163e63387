//! Overlaps against a twin that lists every cell, and numbers at the edges that must only ever give findings.

use kvspec::*;
use proptest::prelude::*;

const STORAGE: u64 = 4096;

#[derive(Clone, Debug)]
struct SmallPart {
    group: usize,
    offset: u64,
    block_stride: u64,
    units: Axis,
    tokens: Vec<Axis>,
    content: u64,
}

/// Groups of pools with their numbers of blocks, and parts in them.
fn spec_of(groups: &[(u32, u64)], parts: &[SmallPart], len: u64) -> CacheSpec {
    let layers = parts.iter().enumerate().map(|(index, part)| Layer {
        name: format!("{index}").into(),
        group: GroupId(u32::try_from(part.group).unwrap()),
        kind: Kind::Opaque,
        role: Role::Target,
        transfer: index % 3 != 0,
        parts: vec![Part {
            name: "x".into(),
            storage: StorageIndex(0),
            offset: part.offset,
            block_stride: part.block_stride,
            sharding: Sharding::Replicated,
            units: part.units,
            tokens: part.tokens.clone(),
            content: part.content,
            tokens_per_state: TokensPerState::ONE,
            format: String::new(),
        }],
    });
    CacheSpec {
        version: SPEC_VERSION,
        fingerprint: Fingerprint::default(),
        topology: Topology::default(),
        storages: vec![Storage { base: 0, len, mem: MemKind::Dram, shared: false }],
        groups: groups
            .iter()
            .map(|&(pool, num_blocks)| Group { pool: PoolId(pool), block_tokens: 1, num_blocks, usage: Usage::State })
            .collect(),
        layers: layers.collect(),
    }
}

/// Start of every cell of a block of a part.
fn cells(part: &SmallPart, block: u64) -> Vec<u64> {
    let mut starts = vec![part.offset + block * part.block_stride];
    for axis in [&part.units].into_iter().chain(&part.tokens) {
        starts = starts.iter().flat_map(|start| (0..axis.count).map(move |i| start + i * axis.stride)).collect();
    }
    starts
}

/// Every byte of a part, with the block that it belongs to, sorted.
fn bytes(part: &SmallPart, num_blocks: u64) -> Vec<(u64, u64)> {
    let of_block = |block| cells(part, block).into_iter().map(move |start| (block, start));
    let cells = (0..num_blocks).flat_map(of_block);
    let mut bytes: Vec<(u64, u64)> =
        cells.flat_map(|(block, start)| (start..start + part.content).map(move |byte| (byte, block))).collect();
    bytes.sort_unstable();
    bytes
}

/// Pairs of parts that share a byte where they must not, listing every byte; a part with itself included.
fn overlapping(groups: &[(u32, u64)], parts: &[SmallPart]) -> Vec<(usize, usize)> {
    let bytes: Vec<Vec<(u64, u64)>> = parts.iter().map(|part| bytes(part, groups[part.group].1)).collect();
    let mut pairs = Vec::new();
    for (a, first) in parts.iter().enumerate() {
        if bytes[a].windows(2).any(|pair| pair[0].0 == pair[1].0) {
            pairs.push((a, a));
        }
        for (b, second) in parts.iter().enumerate().skip(a + 1) {
            // Groups of one pool may share what belongs to equal ids.
            let overlay = first.group != second.group && groups[first.group].0 == groups[second.group].0;
            let met = bytes[a].iter().any(|&(byte, block)| {
                let from = bytes[b].partition_point(|&(other, _)| other < byte);
                let same = bytes[b][from..].iter().take_while(|&&(other, _)| other == byte);
                same.into_iter().any(|&(_, other)| !overlay || other != block)
            });
            if met {
                pairs.push((a, b));
            }
        }
    }
    pairs
}

/// Pairs of parts that findings name, and whether there are other findings.
fn found(groups: &[(u32, u64)], parts: &[SmallPart]) -> (Vec<(usize, usize)>, Vec<Finding>) {
    let findings = match spec_of(groups, parts, STORAGE).validate() {
        Ok(_) => return Default::default(),
        Err(SpecError::Invalid(findings)) => findings.to_vec(),
        Err(other) => panic!("{other}"),
    };
    let index = |layer: &LayerName| layer.as_str().parse::<usize>().unwrap();
    let mut pairs = Vec::new();
    let mut others = Vec::new();
    for finding in findings {
        match &finding {
            Finding::CellsOverlap { layer, .. } => pairs.push((index(layer), index(layer))),
            Finding::PartsOverlap { first, second, .. } => {
                let (a, b) = (index(&first.layer), index(&second.layer));
                pairs.push((a.min(b), a.max(b)));
            }
            Finding::BlocksOverlap { first, first_block, second, second_block, byte, .. } => {
                let (a, b) = (index(&first.layer), index(&second.layer));
                pairs.push((a.min(b), a.max(b)));
                let holds = |part: usize, block: &BlockId| {
                    let part = &parts[part];
                    cells(part, block.0.into()).iter().any(|&start| (start..start + part.content).contains(byte))
                };
                assert!(first_block != second_block && holds(a, first_block) && holds(b, second_block), "{finding}");
            }
            _ => others.push(finding),
        }
    }
    pairs.sort_unstable();
    (pairs, others)
}

/// Parts of rows that nearly fit: strides and offsets from few values, so that near misses and hits are common.
fn parts() -> impl Strategy<Value = (Vec<(u32, u64)>, Vec<SmallPart>)> {
    let groups = prop::collection::vec((0..2u32, 1..5u64), 1..4);
    let strides = prop::sample::select(vec![0u64, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 100, 128, 200, 256]);
    let axis = (1..4u64, strides.clone()).prop_map(|(count, stride)| Axis { count, stride });
    let part = (0..3usize, 0..40u64, strides, axis.clone(), prop::collection::vec(axis, 0..3), 1..9u64);
    let part = part.prop_map(|(group, offset, block_stride, units, tokens, content)| SmallPart {
        group,
        offset: offset * 4,
        block_stride,
        units,
        tokens,
        content,
    });
    (groups, prop::collection::vec(part, 1..7)).prop_map(|(groups, mut parts)| {
        parts.iter_mut().for_each(|part| part.group %= groups.len());
        (groups, parts)
    })
}

/// Parts of one row with the same strides, moved by a few bytes: what sifting by strides has to tell apart.
fn row() -> impl Strategy<Value = (Vec<(u32, u64)>, Vec<SmallPart>)> {
    let row = prop::sample::select(vec![48u64, 64, 90, 96, 128]);
    let inner = prop::sample::select(vec![4u64, 6, 8, 12, 16]);
    let one = (0..2usize, 0..24u64, 1..5u64, 1..4u64, 1..4u64);
    (row, inner, 1..6u64, any::<bool>(), prop::collection::vec(one, 1..7)).prop_map(
        |(row, inner, num_blocks, two_pools, parts)| {
            let groups = vec![(0, num_blocks), (u32::from(two_pools), num_blocks)];
            let parts = parts.into_iter().map(|(group, place, content, units, tokens)| SmallPart {
                group,
                offset: place * 5,
                block_stride: row,
                units: Axis { count: units, stride: inner * 4 },
                tokens: vec![Axis { count: tokens, stride: inner }],
                content,
            });
            (groups, parts.collect())
        },
    )
}

/// Groups of one pool whose strides, offsets and numbers of blocks differ a little.
fn overlay() -> impl Strategy<Value = (Vec<(u32, u64)>, Vec<SmallPart>)> {
    let stride = prop::sample::select(vec![32u64, 33, 36, 40, 64]);
    let one = (0..3usize, 0..20u64, stride, 1..3u64, prop::sample::select(vec![3u64, 8, 160, 256]), 1..9u64);
    (prop::collection::vec(1..7u64, 3), prop::collection::vec(one, 2..6)).prop_map(|(blocks, parts)| {
        let parts = parts.into_iter().map(|(group, place, block_stride, units, apart, content)| SmallPart {
            group,
            offset: place * 4,
            block_stride,
            units: Axis { count: units, stride: apart },
            tokens: vec![],
            content,
        });
        (blocks.into_iter().map(|blocks| (0, blocks)).collect(), parts.collect())
    })
}

fn used(groups: &[(u32, u64)], parts: &[SmallPart]) -> bool {
    (0..groups.len()).all(|group| parts.iter().any(|part| part.group == group))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn prop_overlaps_are_those_that_listing_every_byte_finds((groups, parts) in prop_oneof![parts(), row(), overlay()]) {
        prop_assume!(used(&groups, &parts));
        let (pairs, others) = found(&groups, &parts);
        prop_assert_eq!(others, []);
        prop_assert_eq!(pairs, overlapping(&groups, &parts));
    }
}

/// Numbers of which sums and products do not fit, among some that do.
fn edge() -> impl Strategy<Value = u64> {
    let near = |around: u64| (0..3u64).prop_map(move |less| around - less);
    prop_oneof![0..4u64, near(u64::MAX), near(1 << 63), near(1 << 32), near(1 << 31), any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn prop_numbers_at_the_edges_give_findings_and_never_panic(
        groups in prop::collection::vec((0..3u32, edge()), 1..4),
        parts in prop::collection::vec((0..4usize, edge(), edge(), (edge(), edge()), prop::collection::vec((edge(), edge()), 0..4), edge()), 1..5),
        (len, base, tokens) in (edge(), edge(), edge()),
        (total, first, states) in (edge(), prop::option::of(edge()), (edge(), edge())),
        (rank, size, dcp, interleave) in (0..5u32, 0..5u32, 0..5u32, prop::option::of(edge())),
        usage in prop::bool::ANY,
    ) {
        let axis = |(count, stride)| Axis { count, stride };
        let parts: Vec<SmallPart> = parts.into_iter().map(|(group, offset, block_stride, units, tokens, content)| SmallPart {
            group, offset, block_stride, units: axis(units), tokens: tokens.into_iter().map(axis).collect(), content,
        }).collect();
        let mut spec = spec_of(&groups, &parts, len);
        spec.storages[0].base = base;
        spec.topology.tp = Shard { rank, size };
        spec.topology.dcp = ContextShard { rank: 0, size: dcp, interleave };
        for group in &mut spec.groups {
            group.block_tokens = tokens;
            group.usage = if usage { Usage::Tokens } else { Usage::State };
        }
        for part in spec.layers.iter_mut().flat_map(|layer| &mut layer.parts).skip(1) {
            part.sharding = Sharding::Sharded { total, first };
            part.tokens_per_state = TokensPerState { num: states.0, den: states.1 };
        }
        match spec.clone().validate() {
            Ok(valid) => {
                // What is promised holds: every address is a sum of checked numbers.
                for part in valid.layers.iter().flat_map(|layer| &layer.parts) {
                    prop_assert!(valid.states_of(part) >= 1);
                    prop_assert!(!valid.units_of(part).is_empty());
                }
            }
            Err(SpecError::Invalid(findings)) => prop_assert!(!findings.is_empty() && !findings.to_string().is_empty()),
            Err(other) => prop_assert!(false, "{}", other),
        }
        let text = spec.to_json().unwrap();
        let mut read = CacheSpec::from_json(&text).unwrap();
        for (read, part) in read.layers.iter_mut().zip(&spec.layers) {
            prop_assert_eq!(read.parts[0].tokens_per_state, part.parts[0].tokens_per_state.reduced());
            read.parts[0].tokens_per_state = part.parts[0].tokens_per_state;
        }
        prop_assert_eq!(read, spec);
    }
}
