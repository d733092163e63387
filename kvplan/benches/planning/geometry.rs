//! Specs and requests to measure with.

use kvplan::{BlockList, Op, Request};
use kvspec::{
    Axis, BlockId, CacheSpec, Fingerprint, Group, GroupId, Kind, Layer, MemKind, Part, PoolId, Role, SPEC_VERSION,
    Shard, Sharding, Storage, StorageIndex, Topology, Usage, ValidSpec,
};

fn spec(tp: Shard, groups: Vec<Group>, layers: Vec<Layer>) -> ValidSpec {
    let storage = Storage { base: 1 << 40, len: 1 << 44, mem: MemKind::Dram, shared: false };
    CacheSpec {
        version: SPEC_VERSION,
        fingerprint: Fingerprint { model: "bench".into(), ..Default::default() },
        topology: Topology { tp, ..Default::default() },
        storages: vec![storage],
        groups,
        layers,
    }
    .validate()
    .expect("a benchmark's spec is valid")
}

fn part(name: &str, sharding: Sharding, units: Axis, tokens: Vec<Axis>, content: u64) -> Part {
    Part {
        name: name.into(),
        storage: StorageIndex(0),
        offset: 0,
        block_stride: 0,
        sharding,
        units,
        tokens,
        content,
        tokens_per_state: Default::default(),
        format: "bf16".into(),
    }
}

fn layer(name: String, group: u32, kind: Kind, parts: Vec<Part>) -> Layer {
    Layer { name: name.into(), group: GroupId(group), kind, role: Role::Target, transfer: true, parts }
}

fn tokens(num_blocks: u64) -> Group {
    Group { pool: PoolId(0), block_tokens: 64, num_blocks, usage: Usage::Tokens }
}

/// 78 MLA layers of 656 B a token and 21 indexer layers of 132 B: 99 views.
pub(crate) fn mla99(num_blocks: u64, block_outermost: bool) -> ValidSpec {
    let pages: Vec<(u64, Kind)> =
        (0..99).map(|i| if i % 5 == 4 && i < 99 { (132, Kind::Indexer) } else { (656, Kind::Mla) }).collect();
    let row: u64 = pages.iter().map(|(content, _)| content * 64).sum();
    let mut at = 0;
    let layers = pages.iter().enumerate().map(|(i, &(content, kind))| {
        let page = content * 64;
        let tokens = vec![Axis { count: 64, stride: content }];
        let mut part = part("latent", Sharding::Replicated, Axis { count: 1, stride: page }, tokens, content);
        (part.offset, part.block_stride) = if block_outermost { (at, row) } else { (at * num_blocks, page) };
        at += page;
        layer(format!("layers.{i}"), 0, kind, vec![part])
    });
    spec(Shard::default(), vec![tokens(num_blocks)], layers.collect())
}

/// 80 layers of 8 KV heads of 128, K and V apart, head-major, layer-outermost.
pub(crate) fn gqa80(tp: Shard, num_blocks: u64) -> ValidSpec {
    let sharding = Sharding::Sharded { total: 8, first: None };
    let heads = u64::from(8 / tp.size).max(1);
    let page = heads * 64 * 256;
    let layers = (0..80u64).map(|i| {
        let kv = ["k", "v"].iter().zip(0..).map(|(name, half)| {
            let units = Axis { count: heads, stride: 64 * 256 };
            let mut part = part(name, sharding, units, vec![Axis { count: 64, stride: 256 }], 256);
            part.offset = (2 * i + half) * page * num_blocks;
            part.block_stride = page;
            part
        });
        layer(format!("layers.{i}"), 0, Kind::Attention, kv.collect())
    });
    spec(tp, vec![tokens(num_blocks)], layers.collect())
}

/// 36 Mamba2 layers and 12 attention layers, each page its own region.
pub(crate) fn hybrid48(tp: Shard, num_blocks: u64) -> ValidSpec {
    let n = u64::from(tp.size);
    let mut at = 0;
    let mut place = |mut parts: Vec<Part>, page: u64| {
        let mut inner = at;
        for part in &mut parts {
            (part.offset, part.block_stride) = (inner, page);
            inner += part.units.count * part.units.stride;
        }
        at += page * num_blocks;
        parts
    };
    let sharded = |total| Sharding::Sharded { total, first: None };
    let layers = (0..48).map(|i| {
        if i % 4 == 3 {
            let kv = ["k", "v"].map(|name| {
                let units = Axis { count: 8 / n, stride: 64 * 256 };
                part(name, sharded(8), units, vec![Axis { count: 64, stride: 256 }], 256)
            });
            layer(format!("layers.{i}"), 0, Kind::Attention, place(kv.into(), 2 * 8 / n * 64 * 256))
        } else {
            let state = [("conv.x", 4096, 6), ("conv.b", 1024, 6), ("conv.c", 1024, 6), ("ssm", 64, 32_768)];
            let parts = state.map(|(name, total, content)| {
                part(name, sharded(total), Axis { count: total / n, stride: content }, vec![], content)
            });
            layer(format!("layers.{i}"), 1, Kind::Ssm, place(parts.into(), (6144 * 6 + 64 * 32_768) / n))
        }
    });
    let layers = layers.collect();
    let state = Group { pool: PoolId(1), block_tokens: 1, num_blocks, usage: Usage::State };
    spec(tp, vec![tokens(num_blocks), state], layers)
}

/// Blocks in an order in which no two neighbours of one side are neighbours of the other.
pub(crate) fn fragmented(len: u32, num_blocks: u32) -> Request {
    let local = (0..len).map(|i| BlockId(i * 2 % num_blocks + u32::from(i * 2 >= num_blocks)));
    let remote = (0..len).map(|i| BlockId(num_blocks - 1 - i));
    let list = |blocks: Vec<BlockId>| vec![BlockList { group: GroupId(0), first: None, blocks }];
    Request { op: Op::Read, local: list(local.collect()), remote: list(remote.collect()), ..Request::default() }
}
