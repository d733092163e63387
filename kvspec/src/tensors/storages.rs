//! Which allocations tensors lie in.

use super::error::TensorError;
use super::layer::FoundPart;
use crate::ids::StorageIndex;
use crate::spec::{MemKind, Part, Storage};

/// Allocations as far as parts show them: extents of the same memory that overlap or touch are one. In order of
/// memory and address.
pub(super) fn find<'a>(parts: impl Iterator<Item = &'a FoundPart>) -> Vec<Storage> {
    let mut extents: Vec<(MemKind, u64, u64)> = parts.map(|part| (part.mem, part.start, part.end)).collect();
    extents.sort_unstable();
    let mut storages: Vec<Storage> = Vec::new();
    for (mem, start, end) in extents {
        match storages.last_mut() {
            Some(last) if last.mem == mem && start <= last.base + last.len => {
                last.len = last.len.max(end - last.base);
            }
            _ => storages.push(Storage { base: start, len: end - start, mem, shared: false }),
        }
    }
    storages
}

impl FoundPart {
    /// The part, in the storage that holds all of its bytes.
    pub(super) fn place(self, storages: &[Storage]) -> Result<Part, TensorError> {
        let holds = |storage: &Storage| {
            storage.mem == self.mem
                && storage.base <= self.start
                && storage.base.checked_add(storage.len).is_some_and(|end| self.end <= end)
        };
        let place = storages.iter().zip(0..).find(|(storage, _)| holds(storage));
        let Some((storage, index)) = place else {
            return Err(TensorError::NoStorage {
                layer: self.layer,
                part: self.part.name,
                start: self.start,
                end: self.end,
                mem: self.mem,
                num_storages: storages.len(),
            });
        };
        Ok(Part { storage: StorageIndex(index), offset: self.start - storage.base, ..self.part })
    }
}
