//! Two ids of one pool never share bytes: specs as engines gave them, and what it costs to find out.

use std::time::{Duration, Instant};

use kvspec::kinds::{Attention, Element, Mamba2};
use kvspec::*;

/// The only finding on a spec, as text and as what it is.
fn only(spec: CacheSpec) -> (Finding, String) {
    match spec.validate() {
        Err(SpecError::Invalid(findings)) if findings.len() == 1 => (findings[0].clone(), findings.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_of_one_pool_with_unlike_strides_are_refused() {
    let (finding, text) = only(CacheSpec::from_json(include_str!("data/pool_strides.json")).unwrap());
    // State of 32 bytes every 32, rows of 19 every 19: row 1 is bytes 19..38.
    assert!(
        matches!(
            finding,
            Finding::BlocksOverlap {
                first_block: BlockId(0),
                second_block: BlockId(1),
                byte: 19,
                storage: StorageIndex(0),
                ..
            }
        ),
        "{text}"
    );
    let said = "block 0 of layer state.0 part ssm (group 0, pool 0) and block 1 of layer swa.0 part latent (group 1, \
                pool 0) share byte 19 of storage 0";
    assert!(text.starts_with(said), "{text}");
}

#[test]
fn groups_of_one_pool_with_shifted_pages_are_refused() {
    let (finding, text) = only(CacheSpec::from_json(include_str!("data/pool_shifted.json")).unwrap());
    assert!(
        matches!(finding, Finding::BlocksOverlap { first_block: BlockId(1), second_block: BlockId(0), byte: 32, .. }),
        "{text}"
    );
}

/// K and V in halves, `[2, blocks, …]`, beside state of `[blocks, page]`, over one tensor.
fn halves(num_blocks: u64) -> CacheSpec {
    let part = |name: &str, offset, block_stride, content| Part {
        name: name.into(),
        storage: StorageIndex(0),
        offset,
        block_stride,
        sharding: Sharding::Replicated,
        units: Axis { count: 1, stride: content },
        tokens: vec![],
        content,
        tokens_per_state: TokensPerState::ONE,
        format: String::new(),
    };
    let layer = |name: &str, group, parts| Layer {
        name: name.into(),
        group: GroupId(group),
        kind: Kind::Opaque,
        role: Role::Target,
        transfer: true,
        parts,
    };
    let group = Group { pool: PoolId(0), block_tokens: 1, num_blocks, usage: Usage::State };
    CacheSpec {
        version: SPEC_VERSION,
        fingerprint: Fingerprint::default(),
        topology: Topology::default(),
        storages: vec![Storage { base: 0, len: 64 * num_blocks, mem: MemKind::Dram, shared: false }],
        groups: vec![group, group],
        layers: vec![
            layer("attn", 0, vec![part("k", 0, 32, 32), part("v", 32 * num_blocks, 32, 32)]),
            layer("state", 1, vec![part("page", 0, 64, 64)]),
        ],
    }
}

#[test]
fn halves_beside_pages_are_refused() {
    let Err(SpecError::Invalid(findings)) = halves(4).validate() else { panic!("ids 1 and 0 share bytes") };
    let said: Vec<_> = findings
        .iter()
        .map(|finding| match finding {
            Finding::BlocksOverlap { first_block, second_block, byte, .. } => (first_block.0, second_block.0, *byte),
            other => panic!("{other}"),
        })
        .collect();
    // K of block 1 is bytes 32..64; state 2 is bytes 128..192, V of block 1 is bytes 160..192.
    assert_eq!(said, [(1, 0, 32), (2, 1, 160)]);
    // One block is one id.
    halves(1).validate().unwrap();
}

#[test]
fn four_billion_ids_are_decided_at_once() {
    let start = Instant::now();
    assert!(halves(u64::from(u32::MAX)).validate().is_err());
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn hybrids_in_any_layout_are_legal() {
    for layout in Layout::ALL {
        for packing in [kinds::KvPacking::Packed, kinds::KvPacking::Halves, kinds::KvPacking::Apart] {
            let attention = Attention::new(8, 128, Element::BF16).packing(packing);
            let mut tokens = Blocks::tokens(16).kernel_tokens(8);
            let mut window = Blocks::tokens(32);
            let mut state = Blocks::state();
            for layer in 0..40 {
                tokens = tokens.layer(format!("full.{layer}"), attention.clone());
                window = window.layer(format!("window.{layer}"), attention.clone());
                state = state.layer(format!("state.{layer}"), Mamba2::new(8, 32, 8, 16, 4));
            }
            let pool = Pool::new(layout, 100_000).blocks(tokens).blocks(window).blocks(state);
            let arranged = Arrange::new(Fingerprint::default(), Topology::default()).pool(pool).build().unwrap();
            let start = Instant::now();
            arranged.spec.validate().unwrap();
            assert!(start.elapsed() < Duration::from_secs(5), "{layout}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn groups_of_one_pool_in_unlike_layouts_are_legal_where_their_heads_lie_apart() {
    // LHBNC: a head's blocks follow each other, so that pages of another length lie behind, not over them.
    let attention = |head: u64| Attention::new(2, head, Element::BF16);
    let pool = |head| {
        let tokens = |name: &str, head| Blocks::tokens(16).layer(name, attention(head));
        let pool = Pool::new(Layout::Lhbnc, 8).blocks(tokens("a", 64)).blocks(tokens("b", head));
        Arrange::new(Fingerprint::default(), Topology::default()).pool(pool).build().unwrap()
    };
    let plane = |head: u64| 8 * 16 * 2 * 2 * head;
    assert_eq!(pool(64).storage_lens(), [2 * plane(64)]);
    assert_eq!(pool(96).storage_lens(), [2 * plane(64) + 2 * plane(96)]);
    let apart = pool(96).spec.validate().unwrap();
    assert_eq!(apart.layers[1].parts[0].offset, 2 * plane(64));
}
