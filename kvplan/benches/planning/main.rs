//! Planning: connecting a peer (pairing) apart from answering a request (descriptors, buffers reused).
//!
//! `cargo bench -p kvplan --bench planning`. Throughput of the descriptor benchmarks is descriptors a second on one
//! core; `copy` is the limit, writing as many descriptors from a ready list.
#![allow(missing_docs, reason = "a benchmark")]

mod geometry;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvplan::{Descriptor, Descriptors, PairOptions, PairPlan, Request};
use kvspec::{Shard, ValidSpec};

fn plan(local: &ValidSpec, remote: &ValidSpec, max_gap: u64) -> PairPlan {
    let options = PairOptions { max_gap, ..Default::default() };
    PairPlan::new(local, remote, &options).expect("a benchmark's pair fits")
}

fn pairing(c: &mut Criterion) {
    let mut group = c.benchmark_group("pairing");
    let tp = |rank, size| Shard { rank, size };
    let pairs = [
        ("mla99_rows", geometry::mla99(1_000, true), geometry::mla99(1_000, true)),
        ("mla99_rows_26104_blocks", geometry::mla99(26_104, true), geometry::mla99(26_104, true)),
        ("mla99_rows_to_pages", geometry::mla99(1_000, false), geometry::mla99(1_000, true)),
        ("gqa80_tp4_to_tp8", geometry::gqa80(tp(5, 8), 1_000), geometry::gqa80(tp(2, 4), 1_000)),
        ("hybrid48_tp4_to_tp8", geometry::hybrid48(tp(5, 8), 1_000), geometry::hybrid48(tp(2, 4), 1_000)),
    ];
    for (name, local, remote) in &pairs {
        group.bench_function(*name, |b| b.iter(|| plan(local, remote, 0)));
        group.bench_function(format!("{name}_max_gap"), |b| b.iter(|| plan(local, remote, u64::MAX)));
    }
    group.finish();
}

fn bench_request(c: &mut Criterion, name: &str, plan: &PairPlan, request: &Request) {
    let mut answer = Descriptors::new();
    plan.descriptors(request, &mut answer).expect("a benchmark's request is answered");
    let mut group = c.benchmark_group("descriptors");
    group.throughput(Throughput::Elements(answer.as_slice().len() as u64));
    group.bench_function(format!("{name}_{}", answer.as_slice().len()), |b| {
        b.iter(|| plan.descriptors(request, &mut answer));
    });
    let ready = answer.as_slice().to_vec();
    let mut copied: Vec<Descriptor> = Vec::with_capacity(ready.len());
    group.bench_function(format!("copy_{}", ready.len()), |b| {
        b.iter(|| {
            copied.clear();
            copied.extend_from_slice(std::hint::black_box(&ready));
        });
    });
    group.finish();
}

fn descriptors(c: &mut Criterion) {
    let pages = geometry::mla99(26_104, false);
    let to_pages = plan(&pages, &geometry::mla99(26_104, true), 0);
    bench_request(c, "mla99_pages", &to_pages, &geometry::fragmented(472, 26_104));
    bench_request(c, "mla99_pages", &to_pages, &geometry::fragmented(5_051, 26_104));
    let rows = geometry::mla99(600_000, true);
    let whole = plan(&rows, &rows, 0);
    bench_request(c, "mla99_rows", &whole, &geometry::fragmented(46_728, 600_000));
    bench_request(c, "mla99_rows", &whole, &geometry::fragmented(500_000, 600_000));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(2));
    targets = pairing, descriptors
}
criterion_main!(benches);
