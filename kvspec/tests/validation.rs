//! Every rule of a spec, each broken by itself, and several at once.

mod common;

use common::sound;
use kvspec::validate::{Dimension, PartField};
use kvspec::*;

/// The findings on a spec that one edit has spoilt.
fn spoilt(edit: impl FnOnce(&mut CacheSpec)) -> Vec<Finding> {
    let mut spec = sound();
    edit(&mut spec);
    match spec.validate() {
        Ok(_) => Vec::new(),
        Err(SpecError::Invalid(findings)) => findings.to_vec(),
        Err(other) => panic!("{other}"),
    }
}

/// Asserts that a spec has one finding, of a pattern, whose text holds the given words.
macro_rules! finds {
    ($edit:expr, $pattern:pat $(if $guard:expr)?, $($words:literal),+) => {
        let findings = spoilt($edit);
        assert!(matches!(findings.as_slice(), [$pattern] $(if $guard)?), "{findings:?}");
        $(assert!(findings[0].to_string().contains($words), "{:?} is not in {}", $words, findings[0]);)+
    };
}

#[test]
fn a_sound_spec_passes() {
    assert_eq!(spoilt(|_| {}), []);
}

#[test]
fn another_version_is_refused() {
    finds!(|spec| spec.version = 2, Finding::Version { given: 2, known: 1 }, "version 2 is not known");
}

#[test]
fn ranks_lie_within_sizes() {
    finds!(
        |spec| spec.topology.pp = Shard { rank: 4, size: 4 },
        Finding::Rank { dimension: Dimension::Pp, rank: 4, size: 4 },
        "pp.rank 4 is outside its size 4"
    );
    finds!(|spec| spec.topology.tp.size = 0, Finding::NoRanks { dimension: Dimension::Tp }, "tp.size is 0");
    finds!(
        |spec| spec.topology.pp.size = 70_000,
        Finding::TooManyRanks { dimension: Dimension::Pp, size: 70_000, limit: 65_536 },
        "pp has 70000 ranks"
    );
}

#[test]
fn context_parallelism_fits_tensor_parallelism() {
    let dcp = |rank, size| ContextShard { rank, size, interleave: None };
    let mla_only = |spec: &mut CacheSpec| spec.layers.truncate(2);
    finds!(
        |spec| {
            mla_only(spec);
            spec.topology.dcp = dcp(0, 3);
        },
        Finding::DcpSize { dcp_size: 3, tp_size: 2 },
        "dcp.size 3 does not divide tp.size 2"
    );
    finds!(
        |spec| {
            mla_only(spec);
            spec.topology.dcp = dcp(1, 2);
        },
        Finding::DcpRank { given: 1, expected: 0, tp_rank: 0, dcp_size: 2 },
        "dcp.rank 1 should be 0"
    );
    assert_eq!(
        spoilt(|spec| {
            mla_only(spec);
            spec.topology.dcp = dcp(0, 2);
        }),
        []
    );
}

#[test]
fn context_parallelism_never_splits_units() {
    let findings = spoilt(|spec| spec.topology.dcp.size = 2);
    assert!(
        matches!(findings.as_slice(), [Finding::DcpSplitsUnits { total: 8, tp_size: 2, dcp_size: 2, .. }, _]),
        "{findings:?}"
    );
    // Two heads over eight ranks: ranks 0 to 3 hold head 0, so a DCP group of 4 fits and one of 8 does not.
    let two_heads = |dcp_size| {
        move |spec: &mut CacheSpec| {
            spec.topology.tp.size = 8;
            spec.topology.dcp.size = dcp_size;
            for part in &mut spec.layers[2].parts {
                part.sharding = Sharding::Sharded { total: 2, first: None };
                part.units.count = 1;
            }
        }
    };
    assert_eq!(spoilt(two_heads(4)), []);
    assert_eq!(spoilt(two_heads(8)).len(), 2);
}

#[test]
fn explicit_units_exclude_context_parallelism_over_tokens_only() {
    let explicit = |spec: &mut CacheSpec| {
        spec.topology.dcp.size = 2;
        for part in &mut spec.layers[2].parts {
            part.sharding = Sharding::Sharded { total: 8, first: Some(4) };
        }
    };
    let findings = spoilt(explicit);
    assert!(
        matches!(findings.as_slice(), [Finding::DcpExplicitUnits { first: 4, dcp_size: 2, .. }, _]),
        "{findings:?}"
    );
    let state = spoilt(|spec| {
        explicit(spec);
        spec.groups[0].usage = Usage::State;
    });
    assert_eq!(state, []);
}

#[test]
fn runs_of_tokens_divide_blocks() {
    finds!(
        |spec| spec.topology.dcp.interleave = Some(48),
        Finding::Interleave { interleave: 48, block_tokens: 64, .. },
        "dcp.interleave 48 does not divide block_tokens 64"
    );
    finds!(|spec| spec.topology.dcp.interleave = Some(0), Finding::NoInterleave, "interleave is 0");
}

#[test]
fn storages_are_apart_and_within_the_address_space() {
    let storage = |base, len, mem| Storage { base, len, mem, shared: false };
    let base = 1u64 << 32;
    finds!(
        |spec| spec.storages.push(storage(base + 100, 1, MemKind::Vram(0))),
        Finding::StoragesOverlap { first: StorageIndex(0), second: StorageIndex(1), second_base, .. }
            if *second_base == base + 100,
        "storage 0", "storage 1", "4294967396"
    );
    assert_eq!(spoilt(|spec| spec.storages.push(storage(base, 10, MemKind::Vram(1)))), []);
    assert_eq!(spoilt(|spec| spec.storages.push(storage(base, 10, MemKind::Dram))), []);
    finds!(
        |spec| spec.storages.push(storage(u64::MAX - 9, 11, MemKind::Dram)),
        Finding::StorageEnd { len: 11, .. },
        "beyond 64 bits"
    );
    finds!(
        |spec| spec.storages.push(storage(5, 0, MemKind::Dram)),
        Finding::EmptyStorage { storage: StorageIndex(1) },
        "storage 1: len is 0"
    );
    finds!(
        |spec| spec.storages.push(storage(1, u64::MAX - 1, MemKind::Vram(7))),
        Finding::StoragesTooLong { limit: u64::MAX, .. },
        "bytes together"
    );
}

#[test]
fn groups_have_layers_tokens_and_blocks() {
    let group = Group { pool: PoolId(0), block_tokens: 1, num_blocks: 1, usage: Usage::Tokens };
    finds!(|spec| spec.groups.push(group), Finding::EmptyGroup { group: GroupId(1) }, "group 1: no layer");
    finds!(|spec| spec.groups[0].num_blocks = 0, Finding::NoBlocks { .. }, "num_blocks is 0");
    finds!(
        |spec| spec.groups[0].num_blocks = 1 << 32,
        Finding::TooManyBlocks { num_blocks: 4_294_967_296, limit: 4_294_967_295, .. },
        "4294967296"
    );
    finds!(|spec| spec.groups[0].block_tokens = 0, Finding::NoBlockTokens { .. }, "block_tokens is 0");
    assert_eq!(
        spoilt(|spec| {
            spec.groups[0].block_tokens = 0;
            spec.groups[0].usage = Usage::State;
        }),
        []
    );
}

#[test]
fn names_are_listed_once() {
    finds!(
        |spec| spec.layers[1].name = "0".into(),
        Finding::LayerTwice { first: LayerIndex(0), second: LayerIndex(1), .. },
        "layer 0: the name is listed twice"
    );
    finds!(|spec| spec.layers[2].parts[1].name = "k".into(), Finding::PartTwice { .. }, "part k is listed twice");
}

#[test]
fn indices_are_in_range() {
    finds!(
        |spec| spec.layers[0].group = GroupId(7),
        Finding::NoSuchGroup { group: GroupId(7), num_groups: 1, .. },
        "group 7 is not among the 1 groups"
    );
    finds!(
        |spec| spec.layers[0].parts[0].storage = StorageIndex(1),
        Finding::NoSuchStorage { storage: StorageIndex(1), num_storages: 1, .. },
        "storage 1 is not among the 1 storages"
    );
}

#[test]
fn layers_have_parts() {
    finds!(|spec| spec.layers[0].parts.clear(), Finding::NoParts { .. }, "layer 0: it has no parts");
}

#[test]
fn counts_are_at_least_one() {
    let zero = |edit: fn(&mut Part)| spoilt(|spec| edit(&mut spec.layers[0].parts[0]));
    for (findings, wanted) in [
        (zero(|part| part.content = 0), PartField::Content),
        (zero(|part| part.units.count = 0), PartField::Units),
        (zero(|part| part.tokens[0].count = 0), PartField::Tokens(0)),
        (zero(|part| part.tokens_per_state.num = 0), PartField::TokensPerState),
        (zero(|part| part.tokens_per_state.den = 0), PartField::TokensPerState),
        (zero(|part| part.sharding = Sharding::Sharded { total: 0, first: None }), PartField::Total),
    ] {
        assert!(matches!(findings.as_slice(), [Finding::Zero { field, .. }] if *field == wanted), "{findings:?}");
    }
}

#[test]
fn units_are_those_that_the_rank_owns() {
    finds!(
        |spec| spec.layers[2].parts[0].units.count = 3,
        Finding::UnitCount { given: 3, owned: 4, total: 8, tp_rank: 0, tp_size: 2, .. },
        "units.count is 3",
        "owns 4 of 8"
    );
    finds!(
        |spec| spec.layers[2].parts[0].sharding = Sharding::Sharded { total: 8, first: Some(5) },
        Finding::UnitsBeyondTotal { first: 5, count: 4, total: 8, .. },
        "reach beyond the 8 units"
    );
    finds!(
        |spec| spec.layers[2].parts[0].sharding = Sharding::Sharded { total: u64::MAX, first: Some(u64::MAX) },
        Finding::UnitsBeyondTotal { .. },
        "18446744073709551615"
    );
}

#[test]
fn stored_states_are_those_of_the_tokens() {
    finds!(
        |spec| spec.layers[0].parts[0].tokens[0].count = 32,
        Finding::States { stored: 32, block_tokens: 64, wanted: Some(64), .. },
        "make 32 states",
        "make 64"
    );
    finds!(
        |spec| spec.layers[0].parts[0].tokens_per_state = TokensPerState::new(3, 1),
        Finding::States { wanted: None, .. },
        "no whole number of states"
    );
    let huge = Axis { count: u64::MAX, stride: 0 };
    let findings = spoilt(|spec| {
        spec.groups[0].usage = Usage::State;
        spec.layers[0].parts[0].tokens = vec![huge, huge];
    });
    assert!(
        // Its cells overlap as well; but what is wrong by itself is not searched.
        matches!(findings.as_slice(), [Finding::TooManyStates { num_axes: 2, .. }]),
        "{findings:?}"
    );
}

#[test]
fn cells_lie_in_their_storage() {
    finds!(
        |spec| spec.storages[0].len -= 1,
        Finding::OutsideStorage { end: Some(4_456_448), len: 4_456_447, num_blocks: 16, .. },
        "layer draft: part v",
        "end at byte 4456448",
        "4456447"
    );
    finds!(
        |spec| spec.layers[1].parts[0].block_stride = u64::MAX,
        Finding::OutsideStorage { .. },
        "layer 1: part latent"
    );
    finds!(
        |spec| {
            let part = &mut spec.layers[1].parts[0];
            part.offset = u64::MAX;
            part.content = u64::MAX;
        },
        Finding::OutsideStorage { .. },
        "layer 1: part latent"
    );
}

#[test]
fn cells_of_a_part_do_not_overlap() {
    finds!(
        |spec| spec.layers[0].parts[0].tokens[0].stride = 1151,
        Finding::CellsOverlap { distance: 1151, content: 1152, .. },
        "1151 bytes apart"
    );
    finds!(
        |spec| {
            spec.layers[2].parts.pop();
            spec.layers[2].parts[0].units.stride = 32_156;
        },
        Finding::CellsOverlap { .. },
        "layer draft: part k"
    );
}

#[test]
fn cells_of_two_parts_of_a_group_do_not_overlap_even_if_one_does_not_travel() {
    finds!(
        |spec| {
            spec.layers[1].transfer = false;
            spec.layers[1].parts[0].offset -= 1;
        },
        Finding::PartsOverlap { distance: 1151, first_content: 1152, .. },
        "layer 0 part latent",
        "layer 1 part latent",
        "1151 bytes behind",
        "parts of one group"
    );
    // Off by one in a token-interleaved pair, found between the first block and the last.
    finds!(|spec| spec.layers[2].parts[1].offset -= 1, Finding::PartsOverlap { .. }, "part k", "part v");
    // A whole row later is the same bytes as one block later.
    finds!(
        |spec| {
            spec.storages[0].len *= 2;
            spec.layers[1].parts[0].offset += 278_528 * 3 - 100;
        },
        Finding::PartsOverlap { .. },
        "layer 0",
        "layer 1"
    );
}

#[test]
fn groups_of_one_pool_overlay_and_pools_do_not() {
    let overlaid = |pool: u32, stride: u64| {
        move |spec: &mut CacheSpec| {
            spec.groups.push(Group { pool: PoolId(pool), block_tokens: 64, num_blocks: 8, usage: Usage::Tokens });
            spec.layers[1].group = GroupId(1);
            spec.layers[1].parts[0].offset = 0;
            spec.layers[1].parts[0].block_stride = stride;
        }
    };
    assert_eq!(spoilt(overlaid(0, 278_528)), []);
    finds!(overlaid(1, 278_528), Finding::PartsOverlap { distance: 0, .. }, "pools must not share bytes");
    let findings = spoilt(overlaid(1, 300_000));
    assert!(!findings.is_empty() && findings.iter().all(|f| matches!(f, Finding::PartsOverlap { .. })), "{findings:?}");
}

#[test]
fn blocks_of_one_pool_with_different_ids_lie_apart() {
    // Pages of 73,728 bytes at 0, 73,728 (in group 1) and, with heads outside, from 147,456 on, in rows of 278,528.
    let other = |offset: u64, stride: u64| {
        move |spec: &mut CacheSpec| {
            spec.groups.push(Group { pool: PoolId(0), block_tokens: 64, num_blocks: 8, usage: Usage::Tokens });
            spec.layers[1].group = GroupId(1);
            spec.layers[1].parts[0].offset = offset;
            spec.layers[1].parts[0].block_stride = stride;
        }
    };
    // Blocks of a shorter stride fall back behind their row, until block 5 reaches the draft of block 4.
    assert_eq!(spoilt(other(73_728, 270_000)), []);
    let findings = spoilt(other(73_728, 262_144));
    let of_the_draft = |finding: &Finding| match finding {
        Finding::BlocksOverlap { first, first_block: BlockId(5), second, second_block: BlockId(4), byte, .. } => {
            first.layer.as_str() == "1" && second.layer.as_str() == "draft" && *byte >= 5 * 262_144 + 73_728
        }
        _ => false,
    };
    assert!(findings.len() == 2 && findings.iter().all(of_the_draft), "{findings:?}");
    // Shifted by a row, and beyond it, block 1 lies over block 0.
    finds!(
        other(278_528 + 100, 278_528),
        Finding::BlocksOverlap { first_block: BlockId(1), second_block: BlockId(0), byte: 278_628, .. },
        "block 1 of layer 0 part latent (group 0, pool 0)",
        "block 0 of layer 1 part latent (group 1, pool 0)",
        "share byte 278628 of storage 0"
    );
    // A stride of two rows is legal while only equal ids, which is block 0's alone, lie over each other.
    let even = |spec: &mut CacheSpec| {
        other(0, 278_528 * 2)(spec);
        spec.groups[0].num_blocks = 2;
        spec.groups[1].num_blocks = 7;
    };
    assert_eq!(spoilt(even), []);
}

#[test]
fn two_pools_with_unlike_strides_may_interleave_when_no_cell_meets() {
    let findings = spoilt(|spec| {
        // Pool 1 in the padding of rows: every second row of pool 0's, in a hole behind the draft.
        for part in spec.layers.iter_mut().flat_map(|layer| &mut layer.parts) {
            part.block_stride = 300_000;
        }
        spec.storages[0].len = 300_000 * 16;
        spec.groups.push(Group { pool: PoolId(1), block_tokens: 1, num_blocks: 8, usage: Usage::Tokens });
        let mut layer = spec.layers[0].clone();
        layer.name = "other".into();
        layer.group = GroupId(1);
        layer.parts[0].offset = 278_528;
        layer.parts[0].block_stride = 600_000;
        layer.parts[0].tokens = vec![];
        spec.layers.push(layer);
    });
    assert_eq!(findings, []);
}

#[test]
fn everything_is_reported_at_once_with_places_and_values() {
    let findings = spoilt(|spec| {
        spec.version = 9;
        spec.topology.pp.rank = 3;
        spec.storages[0].base = u64::MAX;
        spec.layers[0].parts[0].content = 0;
        spec.layers[1].group = GroupId(5);
        spec.layers[2].parts[1].offset = 1 << 60;
    });
    assert_eq!(findings.len(), 6, "{findings:?}");
    let mut spec = sound();
    spec.version = 9;
    spec.layers[0].parts.clear();
    let text = spec.validate().unwrap_err().to_string();
    assert!(text.starts_with("invalid spec: 2 findings\n  - version 9"), "{text}");
}

#[test]
fn a_flood_of_overlaps_is_cut_short_with_a_note() {
    let findings = spoilt(|spec| {
        spec.layers.truncate(1);
        for index in 0..3000 {
            let mut layer = spec.layers[0].clone();
            layer.name = format!("copy {index}").into();
            spec.layers.push(layer);
        }
    });
    assert_eq!(findings.len(), 101);
    assert!(matches!(findings[100], Finding::MoreOverlaps { listed: 100 }));
}

#[test]
fn a_hostile_nest_of_strides_ends_in_a_finding() {
    let mut state = 99u64;
    let mut axes = |num: usize| -> Vec<Axis> {
        (0..num)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                Axis { count: 2, stride: (1 << 55) + (state >> 10) }
            })
            .collect()
    };
    let findings = spoilt(|spec| {
        spec.groups[0] = Group { pool: PoolId(0), block_tokens: 1, num_blocks: 1, usage: Usage::State };
        spec.storages[0] = Storage { base: 0, len: u64::MAX, mem: MemKind::Dram, shared: false };
        spec.layers.truncate(2);
        for (layer, axes) in spec.layers.iter_mut().zip([axes(40), axes(40)]) {
            layer.parts[0].content = 1;
            layer.parts[0].tokens = axes;
        }
    });
    assert!(
        findings.iter().any(|f| matches!(
            f,
            Finding::Undecided { .. } | Finding::OverlapsUnsearched { .. } | Finding::PartsUndecided { .. }
        )),
        "{findings:?}"
    );
}
