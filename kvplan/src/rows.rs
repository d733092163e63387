//! Rows: the pages of one block that lie within one block stride.
//!
//! Parts of one pool with the same storage and block stride form a row while they fit into one stride, taken in order
//! of offset; units that lie outside the block (head-outermost layouts) count one by one. The row of block b begins
//! at the first such offset plus b·stride. So a layer-outermost cache is rows of one page, and a block-outermost one
//! is a single row of all pages.

use kvspec::{Layer, LayerIndex, Part, PoolId, StorageIndex, ValidSpec};

/// A part's place in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartRef {
    /// The layer.
    pub layer: LayerIndex,
    /// Index of the part in the layer.
    pub part: u32,
}

impl PartRef {
    /// The layer and the part in the spec that this refers to.
    #[must_use]
    pub fn of(self, spec: &ValidSpec) -> (&Layer, &Part) {
        let layer = &spec.layers[self.layer.index()];
        (layer, &layer.parts[self.part as usize])
    }
}

/// Every part of a spec, in order.
pub(crate) fn parts(spec: &ValidSpec) -> impl Iterator<Item = (PartRef, &Layer, &Part)> {
    spec.layers.iter().zip(0u32..).flat_map(|(layer, l)| {
        layer.parts.iter().zip(0u32..).map(move |(part, p)| (PartRef { layer: LayerIndex(l), part: p }, layer, part))
    })
}

/// What the members of a row have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowKey {
    pub(crate) pool: PoolId,
    pub(crate) storage: StorageIndex,
    pub(crate) stride: u64,
}

/// A page, or one unit of it where units lie outside the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) part: PartRef,
    /// First byte, for block 0.
    pub(crate) offset: u64,
    /// Bytes up to the end of its last cell.
    pub(crate) len: u64,
    /// Units of it: all of the part's, or one where they lie outside the block.
    pub(crate) units: u64,
}

/// Pages that lie within one block stride of each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: RowKey,
    /// First byte of block 0's row.
    pub(crate) start: u64,
    /// In order of offset.
    pub(crate) pages: Vec<Page>,
    /// A page of an earlier row reaches into it: an address does not tell which of the two a byte belongs to.
    pub(crate) is_entered: bool,
}

/// All rows of a spec, sorted by key and start.
#[derive(Clone, Debug)]
pub(crate) struct Rows(pub(crate) Vec<Row>);

/// Units outside the block that are told apart, over all parts of a spec; beyond it a part is one page.
const MAX_UNITS_APART: u64 = 1 << 18;

impl Rows {
    pub(crate) fn new(spec: &ValidSpec) -> Self {
        let mut pages: Vec<(RowKey, Page)> = Vec::new();
        let mut units_left = MAX_UNITS_APART;
        for (at, layer, part) in parts(spec) {
            let key = RowKey { pool: spec.group_of(layer).pool, storage: part.storage, stride: part.block_stride };
            let states: u64 = part.tokens.iter().map(|axis| (axis.count - 1) * axis.stride).sum();
            let unit = states + part.content;
            let apart = part.units.stride >= part.block_stride && part.units.count <= units_left;
            if apart && part.units.count > 1 {
                units_left -= part.units.count;
                let unit_page =
                    |u| (key, Page { part: at, offset: part.offset + u * part.units.stride, len: unit, units: 1 });
                pages.extend((0..part.units.count).map(unit_page));
            } else {
                let len = (part.units.count - 1) * part.units.stride + unit;
                pages.push((key, Page { part: at, offset: part.offset, len, units: part.units.count }));
            }
        }
        pages.sort_by_key(|(key, page)| (*key, page.offset));

        let mut rows: Vec<Row> = Vec::new();
        for of_key in pages.chunk_by(|(a, _), (b, _)| a == b) {
            let first = rows.len();
            let mut reach = 0;
            for &(key, page) in of_key {
                let end = page.offset + page.len;
                match rows[first..].last_mut() {
                    Some(row) if end - row.start <= key.stride => row.pages.push(page),
                    _ => rows.push(Row { key, start: page.offset, pages: vec![page], is_entered: page.offset < reach }),
                }
                reach = end.max(reach);
            }
        }
        Self(rows)
    }

    /// The row that an offset of block 0 lies in.
    pub(crate) fn of(&self, key: RowKey, offset: u64) -> Option<u32> {
        let after = self.0.partition_point(|row| (row.key, row.start) <= (key, offset));
        let index = after.checked_sub(1)?;
        (self.0[index].key == key).then(|| u32::try_from(index).ok())?
    }
}
