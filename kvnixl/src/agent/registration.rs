//! What memory an agent has registered, and how that changes.
//!
//! An agent has one plan at a time. Another one takes its place by what differs: a registration that the new plan has
//! all of stays as it is, in use and known to peers; one that it has not, or not all of, is taken away; what is left is
//! registered beside. So a pool grows, a model comes and goes, and transfers with the rest go on. Rejected: several plans
//! at once, which would need a layout, a fingerprint and a blob each; what they share, such as a pool, would be in none.
//!
//! Registering takes as long as the transport takes, so no lock is held that a transfer needs. Only what is taken away is
//! taken out first, under that lock: from then on no transfer can use it.

use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use kvplan::{LocalPlan, MemoryRange, Side};
use kvspec::ValidSpec;

use super::Agent;
use crate::cuda;
use crate::error::{Error, Result};
use crate::mapped;
use crate::memory::{RangeTable, Registered, shown};

/// What an agent has registered.
#[derive(Default)]
pub(super) struct Memory {
    registered: Option<(ValidSpec, RangeTable)>,
    generation: u64,
}

impl Memory {
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    fn ranges(&self) -> RangeTable {
        self.registered.as_ref().map(|(_, ranges)| ranges.clone()).unwrap_or_default()
    }
}

impl Agent {
    /// Counts the agent's registrations: 0 before the first.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.memory().generation
    }

    /// Registers a worker's memory ranges, once: [`Agent::reregister`] changes them, and [`Agent::deregister`] allows
    /// another time.
    ///
    /// # Safety
    ///
    /// Every memory range of the plan must be memory of the kind it names that stays mapped and can be touched (what lies
    /// in a sparse file on a full tmpfs is mapped, and may silently not be moved), and that this process and its peers
    /// may read and write through transfers, until [`Agent::deregister`] or [`Agent::shutdown`] has succeeded, or
    /// [`Agent::reregister`] has taken it away, and no peer that has connected may still use it: deregistration revokes
    /// nothing. When shutdown reports [`Error::Unsettled`], the memory must stay mapped for ever.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyRegistered`], [`Error::NoDevice`], [`Error::Nixl`]; [`Error::NotMapped`] for host memory that is
    /// not mapped readable and writable, which every cache has to be, also one that is only read here: what a page can do
    /// is not asked for each storage apart. Device memory is not looked at. Nothing is registered then.
    pub unsafe fn register(&self, plan: &LocalPlan) -> Result<()> {
        let _change = self.change();
        if let Some((_, ranges)) = &self.memory().registered {
            return Err(Error::AlreadyRegistered { agent: self.name.clone(), count: ranges.len() });
        }
        // SAFETY: the caller's promise.
        unsafe { self.replace(plan) }
    }

    /// Puts another plan in the place of the one that is registered: storages are added and taken away, and what both
    /// have is left alone, with the transfers and peers that use it. A storage that has grown in place is registered for
    /// what is new of it. Descriptors and answers name storages by the spec they were planned with, so plan again for
    /// what starts from now on.
    ///
    /// Peers do not know of it until they [`connect`](Agent::connect) by a new [`export`](Agent::export), whose
    /// generation is higher; an exchange tells them by [`Exchange::registered`](crate::Exchange::registered). Until then
    /// they use what they know, also of what was taken away, as after [`Agent::deregister`].
    ///
    /// # Safety
    ///
    /// As [`Agent::register`], for what the plan has. What it has no longer may be unmapped when this has succeeded and
    /// no peer that has connected may still use it.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while a transfer that has not settled uses memory that the plan has not, or a part of a storage
    /// that has shrunk; [`Error::NotRegistered`]; [`Error::OtherFingerprint`]; [`Error::TooManyPieces`] for a storage
    /// that has grown too often; otherwise as [`Agent::register`]. What was registered is so still.
    pub unsafe fn reregister(&self, plan: &LocalPlan) -> Result<()> {
        let _change = self.change();
        {
            let memory = self.memory();
            let registered = &self.registered(&memory)?.0.fingerprint;
            let asked = &plan.spec().fingerprint;
            if registered != asked {
                let (registered, asked) = (Box::new(registered.clone()), Box::new(asked.clone()));
                return Err(Error::OtherFingerprint { registered, asked });
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.replace(plan) }
    }

    /// Deregisters all memory. Peers that have connected can still reach it until they are told: NIXL revokes
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while a transfer has not settled; [`Error::NotRegistered`].
    pub fn deregister(&self) -> Result<()> {
        let _change = self.change();
        let mut memory = self.memory_mut();
        let (_, ranges) = self.registered(&memory)?;
        // Under the write lock no transfer can start.
        match self.unsettled() {
            0 => {}
            transfers => {
                let what = format!("memory of agent {} ({} ranges)", self.name, ranges.len());
                return Err(Error::InUse { what, transfers });
            }
        }
        self.transport()?.deregister(&ranges.iter().map(|registered| registered.range).collect::<Vec<_>>());
        memory.registered = None;
        Ok(())
    }

    /// Registers a plan's memory where the agent has other memory registered, or none.
    ///
    /// # Safety
    ///
    /// As [`Agent::register`].
    unsafe fn replace(&self, plan: &LocalPlan) -> Result<()> {
        let (spec, wanted) = (plan.spec(), plan.memory_ranges());
        let (old, generation) = {
            let memory = self.memory();
            (memory.ranges(), memory.generation + 1)
        };
        let new = |&range: &MemoryRange| Registered { range, since: generation };
        RangeTable::new(Side::Local, &wanted.iter().map(new).collect::<Vec<_>>(), &spec.storages)?;
        for range in wanted {
            cuda::check(range.mem)?;
        }
        mapped::check(wanted)?;
        let (kept, gone) = old.within(wanted);
        let missing = missing(wanted, &kept);
        let pieces: Vec<Registered> = kept.iter().copied().chain(missing.iter().map(new)).collect();
        let table = RangeTable::new(Side::Local, &pieces, &spec.storages)?.counting_as(&old);
        let transport = self.transport()?;
        self.take_out(&gone)?;
        let leaving: Vec<MemoryRange> = gone.iter().map(|gone| gone.range).collect();
        transport.deregister(&leaving);
        // SAFETY: the caller's promise. What overlaps it was deregistered just now.
        if let Err(error) = unsafe { transport.register(&missing) } {
            // SAFETY: it was registered, and the caller has not been told otherwise.
            match unsafe { transport.register(&leaving) } {
                Ok(()) => self.put_back(old),
                Err(error) => tracing::error!(agent = %self.name, %error, "memory that was registered is so no more"),
            }
            return Err(error);
        }
        let mut memory = self.memory_mut();
        memory.registered = Some((spec.clone(), table));
        memory.generation = generation;
        self.refused.clear();
        Ok(())
    }

    /// From now on no transfer starts that uses this memory.
    fn take_out(&self, gone: &[Registered]) -> Result<()> {
        let mut memory = self.memory_mut();
        let (Some((_, ranges)), Some(first)) = (&mut memory.registered, gone.first()) else { return Ok(()) };
        match ranges.uses_of(gone) {
            0 => *ranges = ranges.without(gone),
            transfers => {
                let used = gone.iter().find(|gone| ranges.uses_of(&[**gone]) > 0).unwrap_or(first);
                let what = format!("memory range {} of agent {}", shown(&used.range), self.name);
                return Err(Error::InUse { what, transfers });
            }
        }
        Ok(())
    }

    fn put_back(&self, old: RangeTable) {
        if let Some((_, ranges)) = &mut self.memory_mut().registered {
            *ranges = old;
        }
    }

    /// All ranges that are registered.
    pub(super) fn registered_ranges(&self) -> Vec<MemoryRange> {
        self.memory().ranges().iter().map(|registered| registered.range).collect()
    }

    pub(super) fn registered<'a>(&self, memory: &'a Memory) -> Result<&'a (ValidSpec, RangeTable)> {
        memory.registered.as_ref().ok_or_else(|| Error::NotRegistered { agent: self.name.clone() })
    }

    /// Held while registrations change: one at a time.
    fn change(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn memory(&self) -> RwLockReadGuard<'_, Memory> {
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory_mut(&self) -> RwLockWriteGuard<'_, Memory> {
        self.memory.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What of the wanted ranges is not registered. Each that is kept lies within one of them.
fn missing(wanted: &[MemoryRange], kept: &[Registered]) -> Vec<MemoryRange> {
    let mut missing = Vec::new();
    for range in wanted {
        let mut inside: Vec<MemoryRange> =
            kept.iter().map(|kept| kept.range).filter(|kept| kept.storage == range.storage).collect();
        inside.sort_unstable_by_key(|kept| kept.base);
        let mut at = range.base;
        // Cannot overflow: the ends of ranges were checked.
        for kept in inside {
            if kept.base > at {
                missing.push(MemoryRange { base: at, len: kept.base - at, ..*range });
            }
            at = kept.base + kept.len;
        }
        let end = range.base + range.len;
        if end > at {
            missing.push(MemoryRange { base: at, len: end - at, ..*range });
        }
    }
    missing
}
