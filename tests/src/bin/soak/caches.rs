//! One worker's caches: every byte that they must hold, and whose each block is.

use std::collections::BTreeSet;

use kvspec::kinds::Mla;
use kvspec::{Arrange, Blocks, Fingerprint, Layout, Pool, Topology, ValidSpec};

/// Blocks of a worker.
pub(crate) const NUM_BLOCKS: u32 = 512;
const NUM_LAYERS: u64 = 3;
const BLOCK_TOKENS: u64 = 4;
const ROW_BYTES: u64 = 656;
/// Bytes of one layer of one block.
const PAGE: u64 = BLOCK_TOKENS * ROW_BYTES;

/// Which bytes a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// The request's number, or one of the worker's own for what is nobody's.
    pub(crate) key: u64,
    /// The block's place in the request.
    pub(crate) index: u64,
}

/// Memory, and which of its blocks are free.
pub(crate) struct Caches {
    base: *mut u8,
    layout: Layout,
    spec: ValidSpec,
    free: BTreeSet<u32>,
    /// What free blocks hold. Nobody may write them.
    holds: Vec<Content>,
    /// Where the search for a free block goes on, so that all take turns.
    next: u32,
    keys: u64,
    page: Vec<u8>,
}

impl Caches {
    /// Caches of one model in any layout.
    pub(crate) fn new(layout: Layout, seed: u64) -> Self {
        let blocks = (0..NUM_LAYERS)
            .fold(Blocks::tokens(BLOCK_TOKENS), |blocks, layer| blocks.layer(format!("layers.{layer}"), Mla::fp8()));
        let fingerprint = Fingerprint { model: "soak".into(), ..Fingerprint::default() };
        let arranged = Arrange::new(fingerprint, Topology::default())
            .pool(Pool::new(layout, NUM_BLOCKS.into()).blocks(blocks))
            .build()
            .expect("the geometry is sound");
        let [len] = arranged.storage_lens()[..] else { panic!("one storage") };
        assert_eq!(len, u64::from(NUM_BLOCKS) * NUM_LAYERS * PAGE, "pages are packed");
        let memory = vec![0; usize::try_from(len).expect("fits")].into_boxed_slice();
        let base = Box::leak(memory).as_mut_ptr();
        let spec = arranged.at(&[base.expose_provenance() as u64]).expect("one base").validate().expect("a valid spec");
        let mut caches = Self {
            base,
            layout,
            spec,
            free: BTreeSet::new(),
            holds: vec![Content { key: 0, index: 0 }; NUM_BLOCKS as usize],
            next: 0,
            keys: seed,
            page: vec![0; usize::try_from(PAGE).expect("small")],
        };
        for block in 0..NUM_BLOCKS {
            caches.give_back_used(&[block]);
        }
        caches
    }

    /// The caches, described. Their memory lives as long as the process.
    pub(crate) fn spec(&self) -> &ValidSpec {
        &self.spec
    }

    /// Number of free blocks.
    pub(crate) fn num_free(&self) -> u32 {
        u32::try_from(self.free.len()).expect("counted")
    }

    /// A number that this process has not used.
    pub(crate) fn key(&mut self) -> u64 {
        self.keys = self.keys.wrapping_add(1);
        mix(self.keys)
    }

    /// Takes free blocks. Says which of them somebody wrote while they were free.
    pub(crate) fn take(&mut self, num: usize) -> Option<(Vec<u32>, Vec<u32>)> {
        if self.free.len() < num {
            return None;
        }
        let mut taken = Vec::with_capacity(num);
        for _ in 0..num {
            let block = self.free.range(self.next..).next().or_else(|| self.free.first()).copied()?;
            self.free.remove(&block);
            self.next = block + 1;
            taken.push(block);
        }
        let written = taken.iter().copied().filter(|&block| !self.is(block, self.holds[block as usize])).collect();
        Some((taken, written))
    }

    /// Gives back blocks whose bytes are known.
    pub(crate) fn give_back(&mut self, blocks: &[u32], holds: impl Fn(u64) -> Content) {
        for (&block, index) in blocks.iter().zip(0..) {
            self.holds[block as usize] = holds(index);
            assert!(self.free.insert(block), "block {block} came back twice");
        }
    }

    /// Gives back blocks with any bytes: they are overwritten, so that whoever reads them late reads something wrong.
    pub(crate) fn give_back_used(&mut self, blocks: &[u32]) {
        let key = self.key();
        for (&block, index) in blocks.iter().zip(0..) {
            self.fill(block, Content { key, index });
        }
        self.give_back(blocks, |index| Content { key, index });
    }

    /// Writes a block.
    pub(crate) fn fill(&mut self, block: u32, content: Content) {
        for layer in 0..NUM_LAYERS {
            let at = self.at(block, layer);
            write_page(&mut self.page, content, layer);
            // SAFETY: a page of our own memory, of this length; no transfer reads or writes a block that is filled.
            unsafe { std::ptr::copy_nonoverlapping(self.page.as_ptr(), self.base.add(at), self.page.len()) };
        }
    }

    /// Whether a block holds exactly this.
    pub(crate) fn is(&mut self, block: u32, content: Content) -> bool {
        (0..NUM_LAYERS).all(|layer| {
            let at = self.at(block, layer);
            write_page(&mut self.page, content, layer);
            // SAFETY: a page of our own memory; transfers wrote it from outside, so it is looked at where it lies.
            let found = unsafe { std::slice::from_raw_parts(std::hint::black_box(self.base.add(at)), self.page.len()) };
            found == self.page
        })
    }

    /// Where a layer of a block lies.
    fn at(&self, block: u32, layer: u64) -> usize {
        let page = match self.layout {
            Layout::Blhnc => u64::from(block) * NUM_LAYERS + layer,
            Layout::Lbhnc => layer * u64::from(NUM_BLOCKS) + u64::from(block),
            other => panic!("no workers in {other:?}"),
        };
        usize::try_from(page * PAGE).expect("fits")
    }
}

/// What a layer of a block holds: another word at every place of every request.
fn write_page(page: &mut [u8], Content { key, index }: Content, layer: u64) {
    let start = mix(key ^ mix(index * NUM_LAYERS + layer));
    for (word, place) in page.chunks_exact_mut(8).zip(0_u64..) {
        let value = (start ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&(value ^ (value >> 29)).to_le_bytes());
    }
}

/// A mixing step in the manner of splitmix64.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The same numbers for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `sides`.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % sides
    }
}
