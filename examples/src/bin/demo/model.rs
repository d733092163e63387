//! The model: 78 layers of sparse multi-head latent attention, 21 of them with an index cache. Every cache is a view
//! into one allocation.
//!
//! | view | bytes a token | page of 64 tokens |
//! |---|---|---|
//! | latent (fp8, scales, rotary part) | 656 | 41,984 |
//! | index (fp8, scale) | 132 | 8,448 |
//!
//! A row, which is all pages of one block, is 78 · 41,984 + 21 · 8,448 = 3,452,160 bytes.

use kvspec::kinds::{Indexer, Mla};
use kvspec::{Arrange, Arranged, Blocks, Fingerprint, Layout, Pool, Role, SpecError, Topology};

/// Tokens in a block.
pub(crate) const BLOCK_TOKENS: u64 = 64;
const LAYERS: u64 = 78;
const INDEXERS: u64 = 21;

/// One worker's caches: `num_blocks` blocks in a layout.
pub(crate) fn arrange(layout: Layout, num_blocks: u32) -> Result<Arranged, SpecError> {
    let model = Fingerprint { model: "demo/glm-class".to_owned(), ..Fingerprint::default() };
    let mut blocks = Blocks::tokens(BLOCK_TOKENS);
    for i in 0..LAYERS {
        blocks = blocks.layer(format!("model.layers.{i}.self_attn"), Mla::fp8());
        // Spread evenly: several layers share the choice that one indexer makes.
        if i * INDEXERS / LAYERS != (i + 1) * INDEXERS / LAYERS {
            blocks = blocks.layer_as(format!("model.layers.{i}.self_attn.indexer"), Indexer::fp8(), Role::Indexer);
        }
    }
    Arrange::new(model, Topology::default()).pool(Pool::new(layout, u64::from(num_blocks)).blocks(blocks)).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_99_views_in_one_storage_of_whole_rows() {
        for layout in [Layout::Blhnc, Layout::Lbhnc] {
            let arranged = arrange(layout, 10).unwrap();
            assert_eq!(arranged.spec.layers.len(), 99);
            assert_eq!(arranged.storage_lens(), [10 * 3_452_160]);
        }
    }
}
