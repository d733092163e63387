//! What `explain` gives as the reason why a block is more than one descriptor, one pair for each reason.

use kvplan::explain::Why;
use kvplan::{PairOptions, PairPlan, Side};
use kvspec::kinds::{Attention, Element, Mla};
use kvspec::{Arrange, Blocks, CacheSpec, Fingerprint, Layout, Pool, Role, Shard, StorageIndex, Topology, ValidSpec};

fn arranged(tp: Shard, layout: Layout, blocks: Blocks) -> CacheSpec {
    let topology = Topology { tp, ..Default::default() };
    let fingerprint = Fingerprint { model: "m".into(), ..Default::default() };
    let arranged = Arrange::new(fingerprint, topology).pool(Pool::new(layout, 16).blocks(blocks)).build().unwrap();
    arranged.at(&[1 << 32]).unwrap()
}

fn latents(block_tokens: u64) -> Blocks {
    (0..3).fold(Blocks::tokens(block_tokens), |blocks, i| blocks.layer(format!("layers.{i}"), Mla::bf16()))
}

fn mla(layout: Layout, block_tokens: u64) -> CacheSpec {
    arranged(Shard::default(), layout, latents(block_tokens))
}

fn drafted(tp: Shard) -> CacheSpec {
    let draft = Attention::new(8, 64, Element::BF16);
    arranged(tp, Layout::Blhnc, latents(64).layer_as("draft", draft, Role::Draft))
}

/// The reasons of the only lane, and what they say.
fn whys(local: CacheSpec, remote: CacheSpec) -> (Vec<Why>, String) {
    let valid = |spec: CacheSpec| -> ValidSpec { spec.validate().unwrap() };
    let plan = PairPlan::new(&valid(local), &valid(remote), &PairOptions::default()).unwrap();
    let explanation = plan.explain();
    let text = explanation.to_string();
    let lanes: Vec<_> = explanation.lanes.into_iter().collect();
    (lanes.into_iter().flat_map(|lane| lane.breaks).map(|found| found.why).collect(), text)
}

#[test]
fn equal_rows_have_no_breaks() {
    let (found, text) = whys(mla(Layout::Blhnc, 64), mla(Layout::Blhnc, 64));
    assert_eq!(found, []);
    assert!(text.contains("1 descriptor a block"), "{text}");
}

#[test]
fn another_layout_sets_pages_apart() {
    let (found, text) = whys(mla(Layout::Lbhnc, 64), mla(Layout::Blhnc, 64));
    assert!(matches!(found[..], [Why::Apart { remote: 0, .. }, Why::Apart { .. }]), "{found:?}");
    assert!(text.contains("same block-outermost layout"), "{text}");
}

#[test]
fn other_block_sizes_meet_in_pieces() {
    let (found, text) = whys(mla(Layout::Blhnc, 16), mla(Layout::Blhnc, 64));
    assert_eq!(found[0], Why::BlockPieces { tokens: 16, local: 16, remote: 64 });
    assert!(text.contains("use the same block size"), "{text}");
}

#[test]
fn an_unequal_shard_travels_as_a_slice() {
    let (found, text) = whys(drafted(Shard { rank: 1, size: 4 }), drafted(Shard::default()));
    assert_eq!(found, [Why::UnitSlice { local: 2, remote: 8 }]);
    assert!(text.contains("equal tensor parallelism"), "{text}");
}

#[test]
fn a_token_major_slice_is_a_piece_for_every_token() {
    let gqa = |tp| {
        let blocks = Blocks::tokens(16).layer("layers.0", Attention::new(8, 64, Element::BF16));
        arranged(tp, Layout::Lbnhc, blocks)
    };
    let (found, _) = whys(gqa(Shard { rank: 1, size: 4 }), gqa(Shard::default()));
    assert!(matches!(found[..], [Why::TokenSlices { .. }, ..]), "{found:?}");
}

#[test]
fn rows_in_two_storages_name_the_side() {
    let split = || {
        let mut spec = mla(Layout::Blhnc, 64);
        let mut second = spec.storages[0];
        second.base = 1 << 40;
        spec.storages.push(second);
        spec.layers[1].parts[0].storage = StorageIndex(1);
        spec
    };
    let (found, text) = whys(mla(Layout::Blhnc, 64), split());
    assert!(found.contains(&Why::OtherStorage { side: Side::Remote }), "{found:?}");
    assert!(text.contains("at the peer it lies in another storage"), "{text}");
    let (found, text) = whys(split(), mla(Layout::Blhnc, 64));
    assert!(found.contains(&Why::OtherStorage { side: Side::Local }), "{found:?}");
    assert!(text.contains("at this worker it lies in another storage"), "{text}");
}

#[test]
fn a_gap_is_padding_or_somebody_elses_bytes() {
    // The middle layer is left out at both sides, or stays at both sides.
    let without = || {
        let mut spec = mla(Layout::Blhnc, 64);
        spec.layers.remove(1);
        spec
    };
    let (found, text) = whys(without(), without());
    assert_eq!(found, [Why::Padding { gap: 73_728 }]);
    assert!(text.contains("a max_gap of 73728 or more bridges them"), "{text}");
    let stays = || {
        let mut spec = mla(Layout::Blhnc, 64);
        spec.layers[1].transfer = false;
        spec
    };
    let (found, text) = whys(stays(), stays());
    assert_eq!(found, [Why::Live { gap: 73_728, layer: Some("layers.1".into()) }]);
    assert!(text.contains("belong to layer layers.1"), "{text}");
}
