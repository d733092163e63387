//! What every byte must be.
//!
//! A byte's value follows from its layer, part, unit, token and place in the cell, so a page at the wrong layer, a
//! row at the wrong block, or a token too far is seen. Addresses come from the spec's formula, cell by cell; nothing
//! here knows how a transfer was planned.

use kvspec::{Part, ValidSpec};

use crate::error::Error;
use crate::memory::Memory;
use crate::model::BLOCK_TOKENS;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Block number so many of the request's sequence.
    Sequence(u64),
    /// Something else, which differs from block to block and worker to worker.
    Other(u64),
}

impl Content {
    /// What each of `num_blocks` blocks holds: the sequence in the listed ones, in order, and something else, by
    /// `salt`, in the rest.
    pub(crate) fn of_blocks(num_blocks: u32, listed: &[u32], salt: u64) -> Vec<Self> {
        let mut contents: Vec<Self> = (0..u64::from(num_blocks)).map(|block| Self::Other(salt << 32 | block)).collect();
        for (&block, position) in listed.iter().zip(0..) {
            contents[block as usize] = Self::Sequence(position);
        }
        contents
    }

    /// A number that no other (content, token) has.
    fn token(self, token: u64) -> u64 {
        match self {
            Self::Sequence(block) => block * BLOCK_TOKENS + token,
            Self::Other(block) => 1 << 63 | (block * BLOCK_TOKENS + token),
        }
    }
}

/// Writes what each block holds.
pub(crate) fn fill(spec: &ValidSpec, memory: &Memory, contents: &[Content]) -> Result<(), Error> {
    each_cell(spec, memory, contents, |cell, expected| memory.write(cell.offset, expected))
}

/// Bytes that are not what they must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Wrong {
    /// How many.
    pub(crate) bytes: u64,
    /// Where the first of them are.
    pub(crate) first: Option<String>,
}

/// Compares every byte of the storage with what it must be.
pub(crate) fn check(spec: &ValidSpec, memory: &Memory, contents: &[Content]) -> Result<Wrong, Error> {
    let mut wrong = Wrong::default();
    let mut found = Vec::new();
    each_cell(spec, memory, contents, |cell, expected| {
        found.resize(expected.len(), 0);
        memory.read(cell.offset, &mut found);
        if found != expected {
            wrong.bytes += found.iter().zip(expected).map(|(a, b)| u64::from(a != b)).sum::<u64>();
            wrong.first.get_or_insert_with(|| {
                let (layer, part) = (&spec.layers[cell.layer].name, &cell.part.name);
                format!("layer {layer} part {part} block {} unit {} token {}", cell.block, cell.unit, cell.token)
            });
        }
    })?;
    Ok(wrong)
}

struct Cell<'a> {
    layer: usize,
    part: &'a Part,
    block: usize,
    unit: u64,
    token: u64,
    /// In the storage.
    offset: u64,
}

/// Visits all cells with the bytes they must hold. They must cover the storage: no two share a byte, which the
/// spec's validation has shown, so their lengths have to add up to its length.
fn each_cell(
    spec: &ValidSpec,
    memory: &Memory,
    contents: &[Content],
    mut visit: impl FnMut(Cell<'_>, &[u8]),
) -> Result<(), Error> {
    let mut expected = Vec::new();
    let mut cells = 0;
    for (layer_index, layer) in spec.layers.iter().enumerate() {
        for part in &layer.parts {
            let name = hash_name(&format!("{}/{}", layer.name, part.name));
            let first_unit = spec.units_of(part).start;
            for (block, content) in contents.iter().enumerate() {
                for unit in 0..part.units.count {
                    for token in 0..spec.states_of(part) {
                        // This model's parts have one token axis.
                        let token_stride = part.tokens.first().map_or(0, |axis| axis.stride);
                        let offset = part.offset
                            + block as u64 * part.block_stride
                            + unit * part.units.stride
                            + token * token_stride;
                        let seed = mix(name ^ mix((first_unit + unit) << 56 ^ content.token(token)));
                        fill_cell(seed, part.content, &mut expected);
                        cells += part.content;
                        visit(Cell { layer: layer_index, part, block, unit, token, offset }, &expected);
                    }
                }
            }
        }
    }
    if cells == memory.len() { Ok(()) } else { Err(Error::Uncovered { cells, storage: memory.len() }) }
}

fn fill_cell(seed: u64, len: u64, into: &mut Vec<u8>) {
    into.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
    let mut number = seed;
    let mut next = || {
        number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (number ^ number >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes()
    };
    let mut words = into.chunks_exact_mut(8);
    words.by_ref().for_each(|word| word.copy_from_slice(&next()));
    let rest = words.into_remainder();
    rest.copy_from_slice(&next()[..rest.len()]);
}

/// Spreads a number over 64 bits; different numbers stay different.
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number ^ number >> 32
}

/// FNV-1a.
fn hash_name(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use kvspec::Layout;

    use super::*;
    use crate::model;

    fn filled(layout: Layout) -> (ValidSpec, Memory, Vec<Content>) {
        let arranged = model::arrange(layout, 3).unwrap();
        let memory = Memory::new(arranged.storage_lens()[0]).unwrap();
        let spec = arranged.at(&[memory.base()]).unwrap().validate().unwrap();
        let contents = Content::of_blocks(3, &[2, 0], 1);
        fill(&spec, &memory, &contents).unwrap();
        (spec, memory, contents)
    }

    #[test]
    fn one_changed_byte_anywhere_is_seen() {
        for layout in [Layout::Blhnc, Layout::Lbhnc] {
            let (spec, memory, contents) = filled(layout);
            assert_eq!(check(&spec, &memory, &contents).unwrap(), Wrong::default());
            for offset in [0, memory.len() / 2, memory.len() - 1] {
                let mut byte = [0];
                memory.read(offset, &mut byte);
                memory.write(offset, &[byte[0] ^ 1]);
                let wrong = check(&spec, &memory, &contents).unwrap();
                assert_eq!(wrong.bytes, 1, "offset {offset}");
                assert!(wrong.first.unwrap().starts_with("layer model.layers."));
                memory.write(offset, &byte);
            }
        }
    }

    #[test]
    fn pages_in_each_others_place_are_seen() {
        let (spec, memory, contents) = filled(Layout::Blhnc);
        // Layer 1's page over layer 0's, in one block; then one token too far.
        for (to, from, len) in [(0, 41_984, 41_984), (0, 656, 656)] {
            fill(&spec, &memory, &contents).unwrap();
            let mut bytes = vec![0; len];
            memory.read(from, &mut bytes);
            memory.write(to, &bytes);
            let wrong = check(&spec, &memory, &contents).unwrap();
            assert!(wrong.bytes > len as u64 * 9 / 10, "{} of {len}", wrong.bytes);
        }
    }

    #[test]
    fn the_same_sequence_in_other_blocks_is_another_content() {
        assert_eq!(
            Content::of_blocks(3, &[2, 0], 7),
            [Content::Sequence(1), Content::Other(7 << 32 | 1), Content::Sequence(0)]
        );
        let (spec, memory, _) = filled(Layout::Lbhnc);
        let swapped = Content::of_blocks(3, &[0, 2], 1);
        assert!(check(&spec, &memory, &swapped).unwrap().bytes > 0);
    }
}
