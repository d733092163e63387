//! Deployments of unequal topology, as `kvplan topology` shows them. The page `docs/topologies.md` is made of these
//! examples; `KV_BLESS=1 cargo test -p kvplan --features cli --test topologies` writes it anew.
#![cfg(feature = "cli")]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use kvplan::{
    Deployment, DeploymentFinding, PairOptions, Refusal, Union, check_union, flows, readers, sources, targets,
};
use kvspec::kinds::{Attention, Element, Mamba2, Mla};
use kvspec::{Arrange, Blocks, ContextShard, Fingerprint, Layout, Pool, Role, Shard, Sharding, Topology, ValidSpec};

/// The ranks of a deployment: `pools` gives each stage's caches.
fn deployment(tp: u32, pp: u32, dcp: u32, pools: impl Fn(u32) -> Vec<Pool>) -> Vec<ValidSpec> {
    let ranks = (0..pp).flat_map(|stage| (0..tp).map(move |rank| (stage, rank)));
    let spec = |(stage, rank)| {
        let topology = Topology {
            tp: Shard { rank, size: tp },
            pp: Shard { rank: stage, size: pp },
            dcp: ContextShard { rank: rank % dcp, size: dcp, interleave: None },
        };
        let fingerprint = Fingerprint { model: "org/model".into(), ..Default::default() };
        let arranged = pools(stage).into_iter().fold(Arrange::new(fingerprint, topology), Arrange::pool);
        let arranged = arranged.build().unwrap();
        let mut base = 1 << 32;
        let mut bases = Vec::new();
        for len in arranged.storage_lens() {
            bases.push(base);
            base += len;
        }
        arranged.at(&bases).unwrap().validate().unwrap()
    };
    ranks.map(spec).collect()
}

fn gqa(tp: u32, num_kv_heads: u64) -> Vec<ValidSpec> {
    let layers = |_| {
        let blocks = (0..4).fold(Blocks::tokens(16), |blocks, i| {
            blocks.layer(format!("layers.{i}"), Attention::new(num_kv_heads, 128, Element::BF16))
        });
        vec![Pool::new(Layout::Lbhnc, 100).blocks(blocks)]
    };
    deployment(tp, 1, 1, layers)
}

fn hybrid(tp: u32) -> Vec<ValidSpec> {
    deployment(tp, 1, 1, |_| {
        let attention = Blocks::tokens(64).layer("layers.3", Attention::new(8, 128, Element::BF16));
        let mamba = (0..3)
            .fold(Blocks::state(), |blocks, i| blocks.layer(format!("layers.{i}"), Mamba2::new(64, 64, 8, 128, 4)));
        vec![Pool::new(Layout::Blhnc, 100).blocks(attention).blocks(mamba)]
    })
}

fn staged(pp: u32) -> Vec<ValidSpec> {
    // Five layers: two on the first stage, three on the second, the draft on the last.
    deployment(2, pp, 1, move |stage| {
        let mine = |i: u32| pp == 1 || (i < 2) == (stage == 0);
        let mut blocks = Blocks::tokens(64);
        for i in (0..5).filter(|&i| mine(i)) {
            blocks = blocks.layer(format!("layers.{i}"), Mla::fp8());
        }
        if stage + 1 == pp {
            blocks = blocks.layer_as("draft.0", Attention::new(8, 64, Element::BF16), Role::Draft);
        }
        vec![Pool::new(Layout::Blhnc, 100).blocks(blocks)]
    })
}

fn mla(tp: u32, dcp: u32) -> Vec<ValidSpec> {
    deployment(tp, 1, dcp, |_| {
        let blocks = (0..3).fold(Blocks::tokens(64), |blocks, i| blocks.layer(format!("layers.{i}"), Mla::bf16()));
        vec![Pool::new(Layout::Blhnc, 100).blocks(blocks)]
    })
}

fn drafted(tp: u32) -> Vec<ValidSpec> {
    deployment(tp, 1, 1, |_| {
        let target = (0..3).fold(Blocks::tokens(64), |blocks, i| blocks.layer(format!("layers.{i}"), Mla::bf16()));
        let packed = target.layer_as("draft.0", Attention::new(8, 64, Element::BF16), Role::Draft);
        vec![Pool::new(Layout::Blhnc, 100).blocks(packed)]
    })
}

/// A title, what is to be seen, the source and the destination.
type Example = (&'static str, &'static str, Vec<ValidSpec>, Vec<ValidSpec>);

fn examples() -> Vec<Example> {
    vec![
        (
            "GQA, TP4 to TP8, with replication",
            "Four KV heads over eight decode ranks: neighbouring ranks hold replicas of one head, and each prefill rank \
             serves the two that hold its own.",
            gqa(4, 4),
            gqa(8, 4),
        ),
        (
            "Hybrid SSM, TP8 to TP2",
            "Each decode rank gathers a quarter of its KV heads, SSM heads and convolution channels from each of four \
             prefill ranks; every sub-projection is sliced by itself.",
            hybrid(8),
            hybrid(2),
        ),
        (
            "MLA with a draft, PP2 to PP1",
            "Layers meet by name, so uneven stages and a draft on the last one need nothing said about them. Latents \
             are replicated and each decode rank takes them from the prefill rank of its own number.",
            staged(2),
            staged(1),
        ),
        (
            "MLA, DCP4 to DCP1",
            "Each prefill rank holds every fourth block; the decode rank collects a quarter of its blocks from each.",
            mla(4, 4),
            mla(1, 1),
        ),
        (
            "A GQA draft packed in the rows of an MLA target, TP1 to TP4",
            "The latents travel whole to every rank and the draft's heads as slices, from one row. Rank 0's share of \
             the row is one piece; on the others the slice lies apart.",
            drafted(1),
            drafted(4),
        ),
    ]
}

fn topology(source: &[ValidSpec], destination: &[ValidSpec], name: &str) -> String {
    let dir = std::env::temp_dir().join(format!("kvplan-topologies-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let put = |side: &str, specs: &[ValidSpec]| -> PathBuf {
        let path = dir.join(format!("{name}-{side}.json"));
        let specs: Vec<&kvspec::CacheSpec> = specs.iter().map(|spec| &**spec).collect();
        std::fs::write(&path, serde_json::to_string(&specs).unwrap()).unwrap();
        path
    };
    let (from, to, svg) = (put("from", source), put("to", destination), dir.join(format!("{name}.svg")));
    let command = env!("CARGO_BIN_EXE_kvplan");
    let output = Command::new(command).arg("topology").arg(&from).arg("--to").arg(&to).arg("--svg").arg(&svg).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read_to_string(&svg).unwrap().contains("<path"), "bands are drawn");
    let json = Command::new(command).arg("topology").arg("--json").arg(&from).arg("--to").arg(&to).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    std::fs::remove_dir_all(&dir).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_page_of_topologies_shows_what_the_command_prints() {
    let mut page = String::from(
        "# Topologies\n\nWho reads from whom between deployments of unequal topology, as `kvplan topology FROM --to TO` \
         prints it. A test generates this page.\n",
    );
    for (number, (title, text, from, to)) in examples().into_iter().enumerate() {
        let table = topology(&from, &to, &number.to_string());
        let table: Vec<&str> = table.lines().map(str::trim_end).collect();
        write!(page, "\n## {title}\n\n{text}\n\n```text\n{}\n```\n", table.join("\n")).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/topologies.md");
    if std::env::var_os("KV_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, page, "docs/topologies.md is stale; run this test with KV_BLESS=1");
}

#[test]
fn sources_targets_and_readers_agree_with_each_other() {
    for (title, _, from, to) in examples() {
        for source in &from {
            let mut reading = 0;
            for destination in &to {
                let mut reads = false;
                for layer in &source.layers {
                    let name = layer.name.as_str();
                    let serves = targets(source, destination, name)
                        .iter()
                        .any(|share| share.tp_rank == destination.topology.tp.rank);
                    let read =
                        sources(destination, source, name).iter().any(|share| share.tp_rank == source.topology.tp.rank);
                    assert_eq!(serves, read, "{title}: {name}");
                    reads |= read;
                }
                reading += usize::from(reads);
            }
            let mut stages = to.clone();
            stages.dedup_by_key(|spec| spec.topology.pp.rank);
            assert_eq!(readers(source, &stages), reading, "{title}");
        }
    }
}

#[test]
fn every_example_is_served_evenly() {
    for (title, _, from, to) in examples() {
        let flows =
            flows(&Deployment::new(from.clone()).unwrap(), &Deployment::new(to).unwrap(), &PairOptions::default())
                .unwrap();
        assert!(flows.loads.iter().all(|load| load.readers > 0), "{title}");
        assert!((flows.imbalance - 1.0).abs() < 1e-9, "{title}: {}", flows.imbalance);
    }
}

#[test]
fn a_deployment_names_what_it_lacks() {
    let mut specs = gqa(4, 4);
    specs.remove(2);
    let error = Deployment::new(specs).unwrap_err();
    assert!(matches!(&error.findings[..], [DeploymentFinding::RankMissing { rank }] if rank.tp == 2), "{error}");

    let mut staged_twice: Vec<kvspec::CacheSpec> = staged(2).iter().map(|spec| (**spec).clone()).collect();
    let copy = staged_twice[0].layers[0].name.clone();
    for spec in staged_twice.iter_mut().filter(|spec| spec.topology.pp.rank == 1) {
        spec.layers[0].name = copy.clone();
    }
    let error = Deployment::new(staged_twice.into_iter().map(|spec| spec.validate().unwrap())).unwrap_err();
    assert!(error.findings.iter().any(|f| matches!(f, DeploymentFinding::LayerOnTwoStages { .. })), "{error}");

    // Explicit ranges that leave a gap and overlap.
    let explicit = |first: [u64; 2]| {
        let specs = gqa(2, 4).into_iter().zip(first).map(|(spec, first)| {
            let mut spec = (*spec).clone();
            for part in spec.layers.iter_mut().flat_map(|layer| &mut layer.parts) {
                part.sharding = Sharding::Sharded { total: 4, first: Some(first) };
            }
            spec.validate().unwrap()
        });
        Deployment::new(specs)
    };
    assert!(explicit([2, 0]).is_ok(), "ranges need not follow the ranks' order");
    let error = explicit([0, 1]).unwrap_err();
    let has = |wanted: fn(&DeploymentFinding) -> bool| error.findings.iter().any(wanted);
    assert!(has(|f| matches!(f, DeploymentFinding::UnitsOverlap { unit: 1, .. })), "{error}");
    assert!(has(|f| matches!(f, DeploymentFinding::UnitsMissing { units, .. } if *units == (3..4))), "{error}");
}

#[test]
fn a_part_that_two_ranks_describe_unlike_is_told_with_both_ranks_and_values() {
    let changed = |change: fn(&mut kvspec::Layer)| {
        let specs = gqa(2, 4).into_iter().zip(0..).map(|(spec, tp)| {
            let mut spec = (*spec).clone();
            if tp == 1 {
                spec.layers.iter_mut().take(1).for_each(change);
            }
            spec.validate().unwrap()
        });
        Deployment::new(specs).unwrap_err()
    };
    let error = changed(|layer| layer.parts[0].format = "other".into());
    let [DeploymentFinding::PartsDiffer { rank, other, difference: Refusal::Format { local, remote, .. } }] =
        &error.findings[..]
    else {
        panic!("{error}")
    };
    assert_eq!((rank.tp, other.tp, remote.as_str()), (0, 1, "other"));
    assert_ne!(local, remote);
    let error = changed(|layer| layer.transfer = false);
    assert!(
        error.findings.iter().all(|finding| matches!(
            finding,
            DeploymentFinding::PartsDiffer { difference: Refusal::Transfer { local: true, remote: false, .. }, .. }
        )),
        "{error}"
    );
    let error = changed(|layer| drop(layer.parts.pop()));
    assert!(
        matches!(
            &error.findings[..],
            [DeploymentFinding::PartMissing { listed_at, missing_at, .. }] if (listed_at.tp, missing_at.tp) == (0, 1)
        ),
        "{error}"
    );
}

#[test]
fn a_missing_layer_is_found_when_the_last_stage_has_connected() {
    let whole = &staged(1)[0];
    let stages = staged(2);
    assert_eq!(check_union(whole, &stages[..1]), Ok(Union::Waiting { stages: vec![1] }));
    assert_eq!(check_union(whole, &stages), Ok(Union::Complete));
    let mut without: Vec<kvspec::CacheSpec> = stages.iter().map(|spec| (**spec).clone()).collect();
    for spec in &mut without {
        spec.layers.retain(|layer| layer.name.as_str() != "layers.4");
    }
    let without: Vec<ValidSpec> = without.into_iter().map(|spec| spec.validate().unwrap()).collect();
    let error = check_union(whole, &without).unwrap_err();
    assert!(error.to_string().contains("layers.4"), "{error}");
}
