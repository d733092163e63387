//! `kvffi_share`: which ranks of a peer's stage a rank exchanges with.

use std::ffi::c_char;

use kvplan::Share;
use kvspec::ValidSpec;

use crate::argument::{array, copy_out, name, out};
use crate::boundary::ffi_body;
use crate::error::kvffi_error;
use crate::failure::Failure;
use crate::handle;
use crate::spec::kvffi_spec;
use crate::status::kvffi_status;

/// What one rank of a peer's stage and this rank exchange of one part. Frozen: never grows.
///
/// The peer's rank holds the positions of the runs first_run, first_run + every, first_run + 2*every, ... of run_tokens
/// tokens each; every is 1 without context parallelism, which is all positions.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct kvffi_share {
    /// The peer's tensor-parallel rank.
    pub tp_rank: u32,
    /// The peer's pipeline stage.
    pub pp_rank: u32,
    /// The part: its index in the layer, as the local spec lists it.
    pub part: u32,
    /// 0.
    pub reserved: u32,
    /// First of the units, of the whole model, that are exchanged.
    pub first_unit: u64,
    /// Number of units.
    pub num_units: u64,
    /// Tokens in a run.
    pub run_tokens: u64,
    /// Number of the rank's first run.
    pub first_run: u64,
    /// Ranks that the runs are dealt to.
    pub every: u64,
}

/// The shares as C sees them.
fn shares_of(local: &ValidSpec, layer: &str, shares: Vec<Share>) -> Vec<kvffi_share> {
    let parts = local.layers.iter().find(|l| l.name.as_str() == layer).map_or(&[][..], |layer| &layer.parts);
    let part_of = |share: &Share| (0..).zip(parts).find(|(_, part)| part.name == share.part).map_or(0, |(i, _)| i);
    let convert = |share: Share| kvffi_share {
        tp_rank: share.tp_rank,
        pp_rank: share.pp_rank,
        part: part_of(&share),
        reserved: 0,
        first_unit: share.units.start,
        num_units: share.units.end - share.units.start,
        run_tokens: share.positions.run,
        first_run: share.positions.first,
        every: share.positions.every,
    };
    shares.into_iter().map(convert).collect()
}

/// [`kvplan::sources`] or [`kvplan::targets`].
type Direction = fn(&ValidSpec, &ValidSpec, &str) -> Vec<Share>;

/// # Safety
///
/// As the crate's contract asks of each argument.
unsafe fn get(
    direction: Direction,
    (local, remote): (*const kvffi_spec, *const kvffi_spec),
    layer: *const c_char,
    (shares, capacity): (*mut kvffi_share, usize),
    out_len: *mut usize,
) -> Result<(), Failure> {
    // SAFETY: by contract.
    let (out_len, layer) = unsafe { (out(out_len, "out_len")?, name(layer, "layer")?) };
    // SAFETY: by contract.
    let (local, remote) = unsafe { (handle::borrow(local, "local")?, handle::borrow(remote, "remote")?) };
    let found = shares_of(local, layer, direction(local, remote, layer));
    // SAFETY: by contract.
    unsafe { copy_out(found.into_iter(), shares, capacity, &out_len, "shares") }
}

/// Says which ranks of the peer's stage this rank reads a layer from, by rank.
///
/// local: this worker's spec.
/// remote: the spec of any rank of the peer's stage that lists the layer.
/// layer: name of the layer; ends with a NUL. One that a side does not list or does not transfer has no sources.
/// shares, capacity: the array; may be NULL if capacity is 0. Nothing is written to it if the call fails.
/// out_len: number of shares; also written with KVFFI_ERR_BUFFER_TOO_SMALL.
///
/// KVFFI_ERR_BUFFER_TOO_SMALL if capacity is below that number. Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_get_sources(
    local: *const kvffi_spec,
    remote: *const kvffi_spec,
    layer: *const c_char,
    shares: *mut kvffi_share,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        unsafe { get(kvplan::sources, (local, remote), layer, (shares, capacity), out_len) }
    })
}

/// Says which ranks of the peer's stage this rank writes a layer to, by rank.
///
/// Parameters, errors and threads as for kvffi_spec_get_sources.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_get_targets(
    local: *const kvffi_spec,
    remote: *const kvffi_spec,
    layer: *const c_char,
    shares: *mut kvffi_share,
    capacity: usize,
    out_len: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        unsafe { get(kvplan::targets, (local, remote), layer, (shares, capacity), out_len) }
    })
}

/// Counts the destination ranks that this source rank delivers something to: the completions it must see before it may
/// free a request's blocks.
///
/// source: this worker's spec.
/// stages, num_stages: the spec of one rank of each pipeline stage of the destination that is known so far, or of every
/// rank where units are shared out explicitly.
/// out_num_readers: the number; final when no stage is missing. Left alone if the call fails.
///
/// Threads: any number at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvffi_spec_count_readers(
    source: *const kvffi_spec,
    stages: *const *const kvffi_spec,
    num_stages: usize,
    out_num_readers: *mut usize,
    out_error: *mut *mut kvffi_error,
) -> kvffi_status {
    ffi_body!(out_error, {
        // SAFETY: the crate's contract.
        let (out_num_readers, source, stages) = unsafe {
            (
                out(out_num_readers, "out_num_readers")?,
                handle::borrow(source, "source")?,
                array(stages, num_stages, "stages")?,
            )
        };
        let stage = |(i, &stage): (usize, &*const kvffi_spec)| -> Result<ValidSpec, Failure> {
            // SAFETY: the crate's contract.
            unsafe { handle::borrow(stage, &format!("stages[{i}]")) }.cloned()
        };
        let stages: Vec<ValidSpec> = stages.iter().enumerate().map(stage).collect::<Result<_, _>>()?;
        out_num_readers.set(kvplan::readers(source, &stages));
        Ok(())
    })
}
