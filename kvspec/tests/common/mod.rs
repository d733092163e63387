//! A small sound spec for tests to spoil.

use kvspec::*;

/// MLA latents of two layers and a GQA draft of 8 heads, block-outermost, TP rank 0 of 2.
pub(crate) fn sound() -> CacheSpec {
    let latent = |offset| Part {
        name: "latent".into(),
        storage: StorageIndex(0),
        offset,
        block_stride: 278_528,
        sharding: Sharding::Replicated,
        units: Axis { count: 1, stride: 73_728 },
        tokens: vec![Axis { count: 64, stride: 1152 }],
        content: 1152,
        tokens_per_state: TokensPerState::ONE,
        format: "bf16".to_owned(),
    };
    let head = |name: &str, offset| Part {
        name: name.into(),
        offset,
        sharding: Sharding::Sharded { total: 8, first: None },
        units: Axis { count: 4, stride: 32_768 },
        tokens: vec![Axis { count: 64, stride: 512 }],
        content: 256,
        ..latent(0)
    };
    let layer = |name: &str, kind, parts| Layer {
        name: name.into(),
        group: GroupId(0),
        kind,
        role: Role::Target,
        transfer: true,
        parts,
    };
    CacheSpec {
        version: SPEC_VERSION,
        fingerprint: Fingerprint { model: "org/model".to_owned(), ..Fingerprint::default() },
        topology: Topology { tp: Shard { rank: 0, size: 2 }, ..Topology::default() },
        storages: vec![Storage { base: 1 << 32, len: 278_528 * 16, mem: MemKind::Vram(0), shared: false }],
        groups: vec![Group { pool: PoolId(0), block_tokens: 64, num_blocks: 16, usage: Usage::Tokens }],
        layers: vec![
            layer("0", Kind::Mla, vec![latent(0)]),
            layer("1", Kind::Mla, vec![latent(73_728)]),
            layer("draft", Kind::Attention, vec![head("k", 147_456), head("v", 147_712)]),
        ],
    }
}
