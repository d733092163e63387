//! What a picture of a spec's rows shows: which bytes belong to which layer, and what is padding.

use std::fmt;

use kvspec::{Kind, Role, ValidSpec};

use crate::rows::{Page, Row, Rows};

/// One row, as a picture shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPicture {
    /// Storage, stride, blocks and pages in words.
    pub caption: String,
    /// Bytes from the storage's base to block 0's row.
    pub start: u64,
    /// Bytes from row to row.
    pub stride: u64,
    /// Bars that the row needs, because groups overlay each other.
    pub num_lanes: usize,
    /// Pieces of the row, in order of bar and offset.
    pub segments: Vec<Segment>,
}

/// A piece of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Bar, from 0.
    pub lane: usize,
    /// Bytes from the start of the row.
    pub offset: u64,
    /// Bytes from its first to its last.
    pub len: u64,
    /// Bytes of cells among them; fewer where another part's cells lie in between.
    pub num_bytes: u64,
    /// Layer and part.
    pub label: String,
    /// What it is.
    pub kind: SegmentKind,
}

/// What a piece of a row is; pieces of one kind share a colour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentKind {
    /// A page of a layer.
    Page {
        /// Kind and role of the layer, in words.
        what: String,
    },
    /// Bytes that no part declares.
    Padding,
}

impl fmt::Display for SegmentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentKind::Page { what } => f.write_str(what),
            SegmentKind::Padding => f.write_str("padding"),
        }
    }
}

/// The rows of a spec, in order of storage and offset.
#[must_use]
pub fn rows(spec: &ValidSpec) -> Vec<RowPicture> {
    Rows::new(spec).0.iter().map(|row| picture(spec, row)).collect()
}

fn picture(spec: &ValidSpec, row: &Row) -> RowPicture {
    // Pages that overlap, because groups overlay or K and V interleave, go to bars below.
    let mut lanes: Vec<(u64, Vec<&Page>)> = Vec::new();
    for page in &row.pages {
        match lanes.iter_mut().find(|(end, _)| *end <= page.offset) {
            Some((end, pages)) => {
                *end = page.offset + page.len;
                pages.push(page);
            }
            None => lanes.push((page.offset + page.len, vec![page])),
        }
    }
    let mut segments = Vec::new();
    for (lane, (_, pages)) in lanes.iter().enumerate() {
        for page in pages {
            let (layer, part) = page.part.of(spec);
            segments.push(Segment {
                lane,
                offset: page.offset - row.start,
                len: page.len,
                num_bytes: page.units * spec.states_of(part) * part.content,
                label: format!("{} {}", layer.name, part.name),
                kind: SegmentKind::Page { what: what(layer.kind, layer.role, layer.transfer) },
            });
        }
    }
    segments.extend(padding(row));
    segments.sort_by_key(|segment| (segment.lane, segment.offset));
    let pages = row.pages.len();
    let plural = if pages == 1 { "" } else { "s" };
    let (storage, stride) = (row.key.storage, row.key.stride);
    RowPicture {
        caption: format!("storage {storage}: rows of {stride} bytes, {pages} page{plural}"),
        start: row.start,
        stride,
        num_lanes: lanes.len(),
        segments,
    }
}

/// Bytes of the row that no page reaches over, in the first bar.
fn padding(row: &Row) -> Vec<Segment> {
    let mut found = Vec::new();
    let mut at = 0;
    let ends = row.pages.iter().map(|page| (page.offset - row.start, page.len)).chain([(row.key.stride, 0)]);
    for (offset, len) in ends {
        if offset > at {
            let (label, kind) = ("padding".to_owned(), SegmentKind::Padding);
            found.push(Segment { lane: 0, offset: at, len: offset - at, num_bytes: offset - at, label, kind });
        }
        at = at.max(offset + len);
    }
    found
}

fn what(kind: Kind, role: Role, transfer: bool) -> String {
    let kind = match kind {
        Kind::Attention => "attention",
        Kind::SlidingWindow => "sliding window",
        Kind::ChunkedLocal => "chunked local",
        Kind::Mla => "MLA",
        Kind::SlidingWindowMla => "sliding-window MLA",
        Kind::Indexer => "indexer",
        Kind::CircularBuffer => "circular buffer",
        Kind::Ssm => "SSM state",
        Kind::Opaque => "opaque",
    };
    let role = match role {
        Role::Draft => ", draft",
        Role::Scratch => ", scratch",
        Role::Target | Role::Indexer => "",
    };
    format!("{kind}{role}{}", if transfer { "" } else { ", does not travel" })
}
