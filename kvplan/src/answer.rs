//! From a plan and a request to descriptors.
//!
//! A request adds block offsets to templates. Entries (which local block meets which remote block in which cut) are
//! sorted by local block; each band of rows is then walked in that order, so descriptors come out in address order
//! and a neighbour that touches on both sides is merged as it is emitted. Nothing is allocated per descriptor once
//! the buffers of [`Descriptors`] have grown.

use kvspec::{BlockId, GroupId};

use crate::align::Listed;
use crate::descriptor::{Descriptor, Descriptors, Origin, ZeroRange};
use crate::lane::{Lane, LaneKey};
use crate::lists::{Lists, Places, Seen};
use crate::pair::PairPlan;
use crate::refusal::RequestError;
use crate::request::{Align, Request};
use crate::template::{Band, Run};
use crate::timeline::Timeline;

/// A local block that meets a remote block in a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) local_block: u32,
    pub(crate) cut: u32,
    pub(crate) remote_block: u32,
}

/// A destination block's share of a cut that no source holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Uncovered {
    block: u32,
    cut: u32,
}

/// Buffers that a request is worked out in.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    entries: Vec<Entry>,
    uncovered: Vec<Uncovered>,
    of_block: Vec<(u64, u32, u32)>,
    pub(crate) seen: Seen,
    places: Places,
}

impl PairPlan {
    /// Works out which bytes a request moves, into a buffer that can be used again.
    ///
    /// The answer is what *this* source rank must deliver to *this* destination rank. On an error the buffer is
    /// empty.
    ///
    /// # Errors
    ///
    /// [`RequestError`], before anything is moved: lists that name unknown groups or blocks, a destination block
    /// twice, a destination block of which the source holds nothing, a hole at the source, layers that nobody lists or
    /// that the plan's options refuse by themselves.
    pub fn descriptors(&self, request: &Request, out: &mut Descriptors) -> Result<(), RequestError> {
        out.clear();
        let answered = self.answer(request, out);
        if answered.is_err() {
            out.clear();
        }
        #[cfg(debug_assertions)]
        if answered.is_ok() {
            match self.verify_within(request, out, crate::verify::MAX_DEBUG_STEPS) {
                Ok(()) | Err(crate::verify::VerifyError::TooLarge { .. }) => {}
                Err(error) => panic!("a plan does not prove right, please report it: {error}"),
            }
        }
        answered
    }

    fn answer(&self, request: &Request, out: &mut Descriptors) -> Result<(), RequestError> {
        let (local, remote) = self.check_request(request, &mut out.scratch.seen)?;
        let lanes = self.lanes_of(&request.layers)?;
        out.scratch.places.clear();
        let mut met: Option<(GroupId, GroupId)> = None;
        for lane in lanes.as_slice() {
            let groups = (lane.key.local_group, lane.key.remote_group);
            if met != Some(groups) {
                self.meet(lane, &local, &remote, request.align, &mut out.scratch)?;
                met = Some(groups);
            }
            self.emit(lane, out);
        }
        self.finish_zero(out);
        out.of = Some(Origin {
            op: request.op,
            local: self.local.clone(),
            remote: self.remote.clone(),
            layers: lanes.some().cloned(),
        });
        Ok(())
    }

    /// Fills in which blocks meet in the lane, sorted by local block, and what stays uncovered.
    fn meet(
        &self,
        lane: &Lane,
        local: &Lists<'_>,
        remote: &Lists<'_>,
        align: Option<Align>,
        scratch: &mut Scratch,
    ) -> Result<(), RequestError> {
        scratch.entries.clear();
        scratch.uncovered.clear();
        let op = self.options.op;
        let LaneKey { local_group, remote_group, .. } = lane.key;
        let (destination, source) = op.destination_first(local.of(local_group), remote.of(remote_group));
        let Some(destination) = destination else { return Ok(()) };
        let (_, source_group) = op.destination_first(local_group, remote_group);
        let (local_time, remote_time) =
            (Timeline::of(&self.local, local_group), Timeline::of(&self.remote, remote_group));
        let (destination_time, source_time) = op.destination_first(local_time, remote_time);
        let mut places = (destination.start(), 0);
        if let Some(source) = source {
            let destination = Listed { time: destination_time, list: destination };
            let source = Listed { time: source_time, list: source };
            let (local, remote) = op.local_first(destination, source);
            let (local, remote) = scratch.places.of(align, local, remote)?;
            places = op.destination_first(local, remote);
        }
        let (destination_first, first) = places;
        let blocks = source.map_or(&[][..], |list| &list.blocks[..]);
        let hull = source_time.hull(first, blocks.len() as u64);
        let not_covered = |index, block| RequestError::NotCovered {
            group: destination.group,
            index,
            block,
            source_group,
            source_first: first,
            source_end: first + blocks.len() as u64,
        };

        let Scratch { entries, uncovered, .. } = scratch;
        entries.reserve(destination.blocks.len());
        let indices = destination_first..;
        for ((&block, index), met) in destination.blocks.iter().zip(indices).zip(lane.schedule.walk(destination_first))
        {
            if block.is_hole() {
                continue;
            }
            let Some((period, meetings)) = met else {
                return Err(not_covered(index, block));
            };
            for meeting in meetings {
                let source_index = period.checked_add(meeting.source_block);
                let held = source_index
                    .and_then(|index| usize::try_from(index.checked_sub(first)?).ok())
                    .and_then(|at| blocks.get(at));
                match held {
                    Some(held) if held.is_hole() => {
                        return Err(RequestError::SourceHole {
                            group: destination.group,
                            index,
                            block,
                            source_group,
                            source_index: source_index.unwrap_or(u64::MAX),
                        });
                    }
                    Some(&BlockId(source_block)) => {
                        let (local_block, remote_block) = op.local_first(block.0, source_block);
                        entries.push(Entry { local_block, cut: meeting.cut, remote_block });
                    }
                    None if destination_time.meets(index, hull) => {
                        uncovered.push(Uncovered { block: block.0, cut: meeting.cut });
                    }
                    None => return Err(not_covered(index, block)),
                }
            }
        }
        let in_order = |a: &Entry, b: &Entry| (a.local_block, a.cut) <= (b.local_block, b.cut);
        if !entries.is_sorted_by(in_order) {
            // With one cut, half the key is enough, and half the passes.
            match lane.cuts.len() {
                1 => radsort::sort_by_key(entries, |e| e.local_block),
                _ => radsort::sort_by_key(entries, |e| u64::from(e.local_block) << 32 | u64::from(e.cut)),
            }
        }
        Ok(())
    }

    /// Appends the lane's descriptors, sorted and merged, and its uncovered ranges.
    fn emit(&self, lane: &Lane, out: &mut Descriptors) {
        let start = out.descriptors.len();
        let max_gap = if lane.bands_ascend { self.options.max_gap } else { 0 };
        let mut scratch = std::mem::take(&mut out.scratch);
        let mut writer = Writer { lane, max_gap, last: None, lane_start: start, out };
        for (band_index, &band) in lane.bands.iter().enumerate() {
            writer.last = None;
            if lane.cuts.len() == 1 {
                for &entry in &scratch.entries {
                    let template = &lane.cuts[0].template;
                    for run in &template.runs[template.bands[band_index].clone()] {
                        writer.push(band, entry, run);
                    }
                }
                continue;
            }
            for same_block in scratch.entries.chunk_by(|a, b| a.local_block == b.local_block) {
                let runs_of = |entry: Entry| {
                    let template = &lane.cuts[entry.cut as usize].template;
                    &template.runs[template.bands[band_index].clone()]
                };
                if let &[entry] = same_block {
                    runs_of(entry).iter().for_each(|run| writer.push(band, entry, run));
                    continue;
                }
                // Several cuts of one block interleave in its row.
                scratch.of_block.clear();
                for (&entry, e) in same_block.iter().zip(0u32..) {
                    let runs = runs_of(entry).iter().zip(0u32..);
                    scratch.of_block.extend(runs.map(|(run, r)| (run.local, e, r)));
                }
                scratch.of_block.sort_unstable();
                for &(_, e, r) in &scratch.of_block {
                    let entry = same_block[e as usize];
                    writer.push(band, entry, &runs_of(entry)[r as usize]);
                }
            }
        }
        if !lane.bands_ascend {
            merge_neighbours(&mut out.descriptors, start);
        }
        self.emit_uncovered(lane, &scratch.uncovered, &mut out.zero);
        out.scratch = scratch;
    }

    /// Destination ranges of uncovered cuts, without any padding.
    fn emit_uncovered(&self, lane: &Lane, uncovered: &[Uncovered], zero: &mut Vec<ZeroRange>) {
        for &Uncovered { block, cut } in uncovered {
            let block = u64::from(block);
            for placed in &lane.cuts[cut as usize].copies {
                let place = placed.place;
                let len = placed.copy.run;
                placed.copy.for_each_run(&mut |local, remote| {
                    let here = (place.local_storage, place.local_stride, local);
                    let there = (place.remote_storage, place.remote_stride, remote);
                    let ((storage, stride, offset), _) = self.options.op.destination_first(here, there);
                    zero.push(ZeroRange { storage, offset: offset + block * stride, len });
                });
            }
        }
    }

    fn finish_zero(&self, out: &mut Descriptors) {
        out.zero.sort_unstable();
        out.zero.dedup_by(|next, last| {
            let touch = next.storage == last.storage && next.offset == last.offset + last.len;
            if touch {
                last.len += next.len;
            }
            touch
        });
    }
}

/// Appends runs in address order and merges neighbours.
struct Writer<'a> {
    lane: &'a Lane,
    max_gap: u64,
    /// What the last descriptor of the band ends with.
    last: Option<(Entry, Run)>,
    lane_start: usize,
    out: &'a mut Descriptors,
}

impl Writer<'_> {
    #[inline]
    fn push(&mut self, band: Band, entry: Entry, run: &Run) {
        let next = Descriptor {
            local_storage: band.storage,
            remote_storage: run.remote_storage,
            local_offset: run.local + u64::from(entry.local_block) * band.stride,
            remote_offset: run.remote + u64::from(entry.remote_block) * run.remote_stride,
            len: run.len,
        };
        self.out.padding_bytes += run.padding;
        if self.out.descriptors.len() > self.lane_start
            && let Some(last) = self.out.descriptors.last()
            && let Some(gap) = gap(last, &next)
            && gap <= self.max_gap
            && (gap == 0 || self.last.is_some_and(|ends| self.bridges(band, ends, (entry, run), gap)))
        {
            if let Some(last) = self.out.descriptors.last_mut() {
                last.len += gap + next.len;
            }
            self.out.padding_bytes += gap;
        } else {
            self.out.descriptors.push(next);
        }
        self.remember(entry, run);
    }

    #[inline]
    fn remember(&mut self, entry: Entry, run: &Run) {
        if self.max_gap > 0 {
            self.last = Some((entry, *run));
        }
    }

    fn bridges(&self, band: Band, (last_entry, last): (Entry, Run), (entry, run): (Entry, &Run), gap: u64) -> bool {
        let blocks = |a: u32, b: u32| (u64::from(a), u64::from(b));
        let local_blocks = blocks(last_entry.local_block, entry.local_block);
        let remote_blocks = blocks(last_entry.remote_block, entry.remote_block);
        last.remote_stride == run.remote_stride
            && self.lane.unroller(self.max_gap).bridges(band, &last, run, local_blocks, remote_blocks, gap)
    }
}

/// The bytes between two descriptors, if they follow each other with as many on either side.
#[inline]
fn gap(last: &Descriptor, next: &Descriptor) -> Option<u64> {
    let storages = |d: &Descriptor| (d.local_storage, d.remote_storage);
    let local = next.local_offset.checked_sub(last.local_offset + last.len)?;
    let remote = next.remote_offset.checked_sub(last.remote_offset + last.len)?;
    (storages(last) == storages(next) && local == remote).then_some(local)
}

/// Sorts the descriptors from `start` on and merges those that touch on both sides.
fn merge_neighbours(descriptors: &mut Vec<Descriptor>, start: usize) {
    let key = |d: &Descriptor| (d.local_storage, d.local_offset, d.remote_storage, d.remote_offset);
    descriptors[start..].sort_unstable_by_key(key);
    let mut kept = start;
    for i in start..descriptors.len() {
        let next = descriptors[i];
        if kept > start && gap(&descriptors[kept - 1], &next) == Some(0) {
            descriptors[kept - 1].len += next.len;
            continue;
        }
        descriptors[kept] = next;
        kept += 1;
    }
    descriptors.truncate(kept);
}
