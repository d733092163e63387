//! The same judgement with real bytes: fill the source, copy, look at the destination.
//!
//! Looser than [`judge`](crate::judge::judge) about which gaps may be bridged, and blind to counts; it shares only
//! the address formula with it, so that the two can be held against each other. For small geometries.

use std::collections::{HashMap, HashSet};

use kvspec::CacheSpec;

use crate::cells::{Key, for_each_cell, is_idle};
use crate::transfer::{Moved, Worker};

/// Copies everything that the sources answered and compares the destination byte by byte.
///
/// # Errors
///
/// What is wrong, at most one line a cell.
pub fn judge(destination: &Worker, sources: &[Worker], answers: &[Moved], max_gap: u64) -> Result<(), Vec<String>> {
    let mut findings = Vec::new();
    let mut before = noise(&destination.spec, 0);
    let mut stored: HashSet<Key<'_>> = HashSet::new();
    let mut after = before.clone();
    for (index, (source, answer)) in sources.iter().zip(answers).enumerate() {
        let mut memory = noise(&source.spec, 1 + index as u64);
        for_each_listed(source, |key, storage, offset, len| {
            stored.insert(key);
            for byte in 0..len {
                if let Some(cell) = memory.get_mut(storage).and_then(|bytes| bytes.get_mut(at(offset + byte))) {
                    *cell = value(&key, byte);
                }
            }
        });
        for copy in &answer.copies {
            for byte in 0..copy.len {
                let from =
                    memory.get(copy.src.storage as usize).and_then(|bytes| bytes.get(at(copy.src.offset + byte)));
                let to = after.get_mut(copy.dst.storage as usize).and_then(|b| b.get_mut(at(copy.dst.offset + byte)));
                let (Some(from), Some(to)) = (from, to) else {
                    findings.push(format!("source {index}: {copy:?} leaves its storage"));
                    break;
                };
                *to = *from;
            }
        }
    }
    let mut zero: HashSet<(usize, u64)> = HashSet::new();
    for (place, len) in answers.iter().flat_map(|answer| &answer.zero) {
        for byte in 0..*len {
            if !zero.insert((place.storage as usize, place.offset + byte)) {
                findings.push(format!("byte {byte} of the range to zero at {place:?} is returned twice"));
                break;
            }
        }
    }
    for_each_listed(destination, |key, storage, offset, len| {
        for byte in 0..len {
            let place = (storage, offset + byte);
            let found = after[storage][at(place.1)];
            let (expected, cleared) =
                if stored.contains(&key) { (value(&key, byte), false) } else { (before[storage][at(place.1)], true) };
            if found != expected || zero.remove(&place) != cleared {
                findings.push(format!("byte {byte} of {key:?} at {place:?} is {found}, must be {expected}"));
                break;
            }
            before[storage][at(place.1)] = found;
        }
    });
    if let Some(place) = zero.iter().min() {
        findings.push(format!("{} bytes from {place:?} need not be zeroed", zero.len()));
    }
    let mut declared = None;
    for (storage, (before, after)) in before.iter().zip(&after).enumerate() {
        for (offset, _) in before.iter().zip(after).enumerate().filter(|(_, (old, new))| old != new) {
            let place = (storage, offset as u64);
            let declared = declared.get_or_insert_with(|| declared_bytes(destination));
            if max_gap == 0 || declared.get(&place).is_some_and(|&free| !free) {
                findings.push(format!("byte at {place:?} changed"));
            }
        }
    }
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// Every cell that a worker lists and moves: key, storage, offset, length.
fn for_each_listed<'a>(worker: &'a Worker, mut each: impl FnMut(Key<'a>, usize, u64, u64)) {
    let spec = &worker.spec;
    for list in &worker.lists {
        for layer in spec.layers.iter().filter(|layer| layer.group == list.group) {
            for part in layer.parts.iter().filter(|part| !is_idle(spec, layer, part)) {
                for (index, block) in list.blocks.iter().enumerate().filter(|(_, block)| !block.is_hole()) {
                    for_each_cell(spec, layer, part, list.start() + index as u64, block.0, |cell| {
                        each(cell.key, cell.place.storage as usize, cell.place.offset, cell.len);
                    });
                }
            }
        }
    }
}

/// Every byte that some part of a worker declares, and whether a transfer into its listed blocks may overwrite it as
/// a gap: it belongs only to other groups of the pool of a listed block, at that block.
fn declared_bytes(worker: &Worker) -> HashMap<(usize, u64), bool> {
    let spec = &worker.spec;
    let mut listed: HashMap<(u32, u32), u32> = HashMap::new();
    for list in &worker.lists {
        for block in list.blocks.iter().filter(|block| !block.is_hole()) {
            listed.insert((spec.groups[list.group.index()].pool.0, block.0), list.group.0);
        }
    }
    let mut declared = HashMap::new();
    for layer in &spec.layers {
        let group = &spec.groups[layer.group.index()];
        for part in &layer.parts {
            for block in 0..u32::try_from(group.num_blocks).unwrap_or(u32::MAX) {
                let free = listed.get(&(group.pool.0, block)).is_some_and(|&owner| owner != layer.group.0);
                for_each_cell(spec, layer, part, 0, block, |cell| {
                    for byte in 0..cell.len {
                        let place = (cell.place.storage as usize, cell.place.offset + byte);
                        *declared.entry(place).or_insert(true) &= free;
                    }
                });
            }
        }
    }
    declared
}

fn noise(spec: &CacheSpec, seed: u64) -> Vec<Vec<u8>> {
    let byte = |storage: usize, offset: u64| mix(seed ^ mix(storage as u64 ^ mix(offset)));
    (0..spec.storages.len())
        .map(|storage| (0..spec.storages[storage].len).map(|offset| byte(storage, offset)).map(low_byte).collect())
        .collect()
}

/// The byte that a cell holds, wherever it is stored.
fn value(key: &Key<'_>, byte: u64) -> u8 {
    let mut hash = 17;
    for letter in key.layer.bytes().chain([0]).chain(key.part.bytes()) {
        hash = mix(hash ^ u64::from(letter));
    }
    for number in [key.unit, key.slot, key.state, byte] {
        hash = mix(hash ^ number);
    }
    low_byte(hash)
}

fn low_byte(hash: u64) -> u8 {
    hash.to_le_bytes()[0]
}

/// A mixing step in the manner of splitmix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
