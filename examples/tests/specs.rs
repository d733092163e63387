//! `examples/specs`: each file is what `kvspec` arranges, and the `kvplan` command answers for the pairs of them.
//!
//! `KV_BLESS=1 cargo test --package examples --test specs` writes the files anew.

mod common;

use common::{kvplan, read, repository};
use kvspec::kinds::{Attention, Element, Mamba2, Mla};
use kvspec::{Arrange, Blocks, CacheSpec, Fingerprint, Layout, Pool, Role, Shard, Topology};
use serde_json::Value;

const PREFILL: u64 = 1 << 32;
const DECODE: u64 = 1 << 33;

fn spec(model: &str, (rank, size): (u32, u32), layout: Layout, num_blocks: u64, groups: Vec<Blocks>) -> CacheSpec {
    let model = Fingerprint { model: model.to_owned(), ..Fingerprint::default() };
    let topology = Topology { tp: Shard { rank, size }, ..Topology::default() };
    let pool = groups.into_iter().fold(Pool::new(layout, num_blocks), Pool::blocks);
    let base = if size == 1 && layout.is_block_outermost() { PREFILL } else { DECODE };
    Arrange::new(model, topology).pool(pool).build().unwrap().at(&[base]).unwrap()
}

fn mla(layout: Layout) -> CacheSpec {
    let blocks = (0..3).fold(Blocks::tokens(64), |b, i| b.layer(format!("model.layers.{i}.self_attn"), Mla::bf16()));
    spec("example/mla", (0, 1), layout, 16, vec![blocks])
}

fn gqa(tp: (u32, u32)) -> CacheSpec {
    let kind = Attention::new(8, 128, Element::BF16);
    let blocks = (0..2).fold(Blocks::tokens(64), |b, i| b.layer(format!("model.layers.{i}.self_attn"), kind.clone()));
    spec("example/gqa", tp, Layout::Blhnc, 16, vec![blocks])
}

fn mla_draft(tp: (u32, u32)) -> CacheSpec {
    let blocks = (0..3).fold(Blocks::tokens(64), |b, i| b.layer(format!("model.layers.{i}.self_attn"), Mla::bf16()));
    let draft = Attention::new(8, 128, Element::BF16);
    let blocks = blocks.layer_as("draft.layers.0.self_attn", draft, Role::Draft);
    spec("example/mla-with-draft", tp, Layout::Blhnc, 16, vec![blocks])
}

fn hybrid(tp: (u32, u32)) -> CacheSpec {
    let attention = Attention::new(8, 128, Element::BF16);
    let tokens = Blocks::tokens(256).layer("model.layers.1.self_attn", attention);
    let state = Blocks::state().layer("model.layers.0.mixer", Mamba2::new(64, 64, 8, 128, 4));
    spec("example/hybrid", tp, Layout::Blhnc, 16, vec![tokens, state])
}

fn specs() -> Vec<(&'static str, CacheSpec)> {
    vec![
        ("mla_rows", mla(Layout::Blhnc)),
        ("mla_pages", mla(Layout::Lbhnc)),
        ("gqa_tp1", gqa((0, 1))),
        ("gqa_tp4_rank1", gqa((1, 4))),
        ("mla_draft_tp1", mla_draft((0, 1))),
        ("mla_draft_tp4_rank1", mla_draft((1, 4))),
        ("hybrid_tp1", hybrid((0, 1))),
        ("hybrid_tp2_rank1", hybrid((1, 2))),
    ]
}

fn path(name: &str) -> String {
    format!("examples/specs/{name}.json")
}

#[test]
fn the_files_are_what_kvspec_arranges() {
    for (name, spec) in specs() {
        if std::env::var_os("KV_BLESS").is_some() {
            std::fs::write(repository().join(path(name)), spec.to_json().unwrap() + "\n").unwrap();
        }
        assert_eq!(CacheSpec::from_json(&read(&path(name))).unwrap(), spec, "{name}");
        spec.validate().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn every_file_checks_and_has_one_memory_range() {
    for (name, _) in specs() {
        assert!(kvplan(&["check", &path(name)]).contains("valid"), "{name}");
        let regions: Value = serde_json::from_str(&kvplan(&["regions", "--json", &path(name)])).unwrap();
        assert_eq!(regions["memory_ranges"].as_array().unwrap().len(), 1, "{name}");
    }
}

/// Lengths of the descriptors that the command answers.
fn lens(local: &str, remote: &str, request: &str) -> Vec<u64> {
    let answer = kvplan(&["descriptors", &path(local), &path(remote), &path(request)]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((answer["zero"].as_array().map(Vec::len), answer["padding_bytes"].as_u64()), (Some(0), Some(0)));
    answer["descriptors"].as_array().unwrap().iter().map(|d| d["len"].as_u64().unwrap()).collect()
}

#[test]
fn requests_become_the_descriptors_that_the_layouts_allow() {
    // Three blocks, two of them neighbours on both sides; one row of three pages, or page by page.
    assert_eq!(lens("mla_rows", "mla_rows", "request"), [442_368, 221_184]);
    assert_eq!(lens("mla_pages", "mla_rows", "request"), [73_728; 9]);
    // Two of eight heads, in each of two layers.
    assert_eq!(lens("gqa_tp4_rank1", "gqa_tp1", "request"), [65_536; 6]);
    // The latents of all layers, then two heads of the draft.
    assert_eq!(
        lens("mla_draft_tp4_rank1", "mla_draft_tp1", "request"),
        [221_184, 65_536, 221_184, 65_536, 221_184, 65_536]
    );
    // Three blocks of four heads, and one slot of state: x, B, C and the temporal state.
    let state = [12_288, 3_072, 3_072, 1_048_576];
    let hybrid = lens("hybrid_tp2_rank1", "hybrid_tp1", "request_hybrid");
    assert_eq!(hybrid[3..], state);
    assert_eq!(hybrid[..3], [4 * 256 * 512; 3]);
}
