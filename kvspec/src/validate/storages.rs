//! Allocations: not empty, within the address space, apart from each other.

use std::collections::BTreeMap;

use super::finding::Finding;
use crate::bounded::Bounded;
use crate::ids::StorageIndex;
use crate::spec::{CacheSpec, MemKind, Storage};

pub(super) fn check(spec: &CacheSpec, findings: &mut Bounded<Finding>) {
    // Each kind of memory is an address space of its own.
    let mut spaces: BTreeMap<MemKind, Vec<(StorageIndex, Storage)>> = BTreeMap::new();
    for (&storage, index) in spec.storages.iter().zip(0..) {
        let index = StorageIndex(index);
        let Storage { base, len, .. } = storage;
        if len == 0 {
            findings.push(Finding::EmptyStorage { storage: index });
        } else if base.checked_add(len).is_none() {
            findings.push(Finding::StorageEnd { storage: index, base, len });
        } else {
            spaces.entry(storage.mem).or_default().push((index, storage));
        }
    }
    // So that the bytes of any request can be counted.
    let total: u128 = spec.storages.iter().map(|storage| u128::from(storage.len)).sum();
    if total > u128::from(u64::MAX) {
        findings.push(Finding::StoragesTooLong { total, limit: u64::MAX });
    }
    for (mem, mut storages) in spaces {
        storages.sort_by_key(|&(index, storage)| (storage.base, index));
        // Each against the one that reaches furthest among those before it.
        let mut furthest: Option<(StorageIndex, Storage)> = None;
        for (index, storage) in storages {
            if let Some((first, before)) = furthest
                && storage.base < before.base + before.len
            {
                findings.push(Finding::StoragesOverlap {
                    first,
                    second: index,
                    mem,
                    first_base: before.base,
                    first_len: before.len,
                    second_base: storage.base,
                    second_len: storage.len,
                });
            }
            if furthest.is_none_or(|(_, before)| storage.base + storage.len > before.base + before.len) {
                furthest = Some((index, storage));
            }
        }
    }
}
