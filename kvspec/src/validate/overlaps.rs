//! Cells that share bytes: within a part, between parts of a group, between pools.
//!
//! Three searches are made in each storage: among the parts of each group, among all parts for pairs of unlike pools,
//! and among the parts of each pool for pairs of unlike groups. The groups of a pool lie over each other, so for these
//! it is asked whether blocks of *unlike ids* meet (`overlays`); parts that lie in one row, within one block stride of
//! each other, never do.
//!
//! A row can have hundreds of parts, so pairs are not simply all compared. Parts are sifted first: taken modulo
//! the strides of the outer loops, which nearly always agree over a row, each is one interval, and parts whose
//! intervals are apart on that circle are disjoint. What remains together is sifted again by the next smaller
//! stride, and only what no stride tells apart is compared exactly, pair by pair ([`Family::overlap`]).

use std::collections::{BTreeMap, HashMap};

use super::finding::Finding;
use super::layers::Placed;
use super::overlays::{Blocks, Clash, Undecided, clash};
use super::words::CellOf;
use crate::bounded::Bounded;
use crate::divisor::gcd;
use crate::family::{Budget, Family, Overlap};
use crate::ids::{BlockId, GroupId, PoolId, StorageIndex};

/// Steps of a budget for each part at each sift, and for each pair that is looked at.
const SIFT_STEPS: u64 = 10;
const PAIR_STEPS: u64 = 1;
/// Strides by which parts are sifted before pairs are compared.
const MAX_SIFTS: usize = 8;

pub(super) fn check(placed: &[Placed<'_>], findings: &mut Bounded<Finding>, budget: &mut Budget) {
    let mut search = Search { findings, steps: budget.0, budget, listed: 0, ended: false };
    let mut groups: BTreeMap<(StorageIndex, GroupId), Vec<Item<'_>>> = BTreeMap::new();
    for &placed in placed {
        let item = Item::new(placed);
        search.within(&item);
        groups.entry((placed.part.storage, placed.layer.group)).or_default().push(item);
    }
    let mut pools: BTreeMap<(StorageIndex, PoolId), Vec<&Item<'_>>> = BTreeMap::new();
    for (&(storage, _), items) in &groups {
        search.sift(items.iter().collect(), None, 0, Pairs::All);
        if let Some(first) = items.first() {
            pools.entry((storage, first.pool())).or_default().extend(items);
        }
    }
    let mut storages: BTreeMap<StorageIndex, Vec<&Item<'_>>> = BTreeMap::new();
    for ((storage, _), items) in pools {
        storages.entry(storage).or_default().extend(&items);
        search.sift(items, None, 0, Pairs::UnlikeGroups);
    }
    for items in storages.into_values() {
        search.sift(items, None, 0, Pairs::UnlikePools);
    }
}

/// One part as a family of byte ranges.
#[derive(Debug)]
struct Item<'a> {
    placed: Placed<'a>,
    /// Loops by descending stride; those that continue their run are folded into it.
    family: Family,
}

/// Pairs of parts that a search is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairs {
    All,
    UnlikePools,
    /// Of one pool; blocks of equal ids may share bytes.
    UnlikeGroups,
}

impl Pairs {
    fn has(self, first: &Item<'_>, second: &Item<'_>) -> bool {
        match self {
            Self::All => true,
            Self::UnlikePools => first.pool() != second.pool(),
            Self::UnlikeGroups => first.placed.layer.group != second.placed.layer.group,
        }
    }

    /// Whether there can be anything to find among the items.
    fn any(self, items: &[&Item<'_>]) -> bool {
        let Some((first, rest)) = items.split_first() else { return false };
        rest.iter().any(|item| self.has(first, item)) && (self != Self::UnlikeGroups || Rows::new(items).num > 1)
    }
}

/// Rows of parts of one pool: those of one block stride, by offset, while they fit into it. Blocks of unlike ids of one
/// row are apart.
struct Rows {
    /// For each item, in order of their starts, the number of its row.
    of: Vec<usize>,
    num: usize,
}

impl Rows {
    /// Rows of items that are sorted by start.
    fn new(items: &[&Item<'_>]) -> Self {
        let mut open: HashMap<u64, (u64, usize)> = HashMap::new();
        let mut num = 0;
        let of = items.iter().map(|item| {
            let (start, stride) = (item.placed.part.offset, item.placed.part.block_stride);
            let span = item.page_span();
            let fits = |&&(first, _): &&(u64, usize)| start.saturating_add(span) - first <= stride;
            if let Some(&(_, row)) = open.get(&stride).filter(fits) {
                return row;
            }
            // What is longer than a stride shares its row with nothing.
            if span <= stride {
                open.insert(stride, (start, num));
            }
            num += 1;
            num - 1
        });
        Self { of: of.collect(), num }
    }
}

impl<'a> Item<'a> {
    fn new(placed: Placed<'a>) -> Self {
        let mut family = Family::of_part(placed.part, placed.group.num_blocks);
        family.fold();
        Self { placed, family }
    }

    fn pool(&self) -> PoolId {
        self.placed.group.pool
    }

    /// Bytes from the first to behind the last byte when loops with strides of at least `bound` stand still.
    fn span_below(&self, bound: u64) -> u64 {
        // Every cell lies in the storage, so no sum is above its length.
        let inner = self.family.loops.iter().filter(|&&(_, stride)| stride < bound);
        inner.fold(self.family.run, |span, &(count, stride)| span.saturating_add((count - 1).saturating_mul(stride)))
    }

    /// Bytes from the first to behind the last byte of block 0.
    fn page_span(&self) -> u64 {
        let part = self.placed.part;
        let axes = part.tokens.iter().chain([&part.units]);
        axes.fold(part.content, |span, axis| span.saturating_add((axis.count - 1).saturating_mul(axis.stride)))
    }

    fn name(&self) -> CellOf {
        let Placed { layer, part, group } = self.placed;
        CellOf { layer: layer.name.clone(), part: part.name.clone(), group: layer.group, pool: group.pool }
    }
}

struct Search<'f> {
    findings: &'f mut Bounded<Finding>,
    /// What the budget was at the beginning.
    steps: u64,
    budget: &'f mut Budget,
    listed: usize,
    ended: bool,
}

impl Search<'_> {
    fn report(&mut self, finding: Finding) {
        if self.ended {
            return;
        }
        if self.findings.is_full() {
            self.findings.push_last(Finding::MoreOverlaps { listed: self.listed });
            self.ended = true;
            return;
        }
        self.findings.push(finding);
        self.listed += 1;
    }

    /// Takes steps off the budget; the search ends with it.
    fn spend(&mut self, steps: u64, storage: StorageIndex) -> bool {
        let left = self.budget.spend(steps);
        if !left && !self.ended {
            self.findings.push_last(Finding::OverlapsUnsearched { storage, steps: self.steps });
            self.ended = true;
        }
        left
    }

    /// Looks for two cells of one part that share bytes.
    fn within(&mut self, item: &Item<'_>) {
        if self.ended {
            return;
        }
        let Placed { layer, part, group } = item.placed;
        let family = Family::of_part(part, group.num_blocks);
        let (layer, name) = (&layer.name, &part.name);
        match family.overlap_self(self.budget) {
            Overlap::Disjoint => {}
            Overlap::Overlapping { distance } => self.report(Finding::CellsOverlap {
                layer: layer.clone(),
                part: name.clone(),
                distance: distance.unsigned_abs(),
                content: part.content,
            }),
            Overlap::Unknown => self.report(Finding::Undecided { layer: layer.clone(), part: name.clone() }),
        }
    }

    /// Looks for overlaps among items; strides of at least `bound` have been used for sifting already.
    fn sift(&mut self, mut items: Vec<&Item<'_>>, bound: Option<u64>, depth: usize, pairs: Pairs) {
        items.sort_by_key(|item| item.family.start);
        if self.ended || !pairs.any(&items) {
            return;
        }
        let storage = items[0].placed.part.storage;
        let mut bound = bound;
        for depth in depth..MAX_SIFTS {
            if !self.spend(items.len() as u64 * SIFT_STEPS, storage) {
                return;
            }
            // First by the whole extents, which is modulo nothing; then by ever smaller strides.
            let modulus = if depth == 0 {
                None
            } else {
                let strides = items.iter().flat_map(|item| &item.family.loops).map(|&(_, stride)| stride);
                let Some(next) = strides.filter(|&stride| bound.is_none_or(|bound| stride < bound)).max() else {
                    break;
                };
                bound = Some(next);
                let outer = items.iter().flat_map(|item| &item.family.loops).map(|&(_, stride)| stride);
                Some(outer.filter(|&stride| stride >= next).fold(0, gcd))
            };
            let span =
                |item: &Item<'_>| bound.map_or_else(|| item.span_below(u64::MAX), |bound| item.span_below(bound));
            if modulus.is_some_and(|modulus| items.iter().any(|item| span(item) > modulus)) {
                continue;
            }
            let position = |item: &Item<'_>| modulus.map_or(item.family.start, |modulus| item.family.start % modulus);
            items.sort_by_key(|item| position(item));
            let intervals =
                items.iter().map(|item| (position(item), position(item).saturating_add(span(item)))).collect();
            for cluster in clusters(intervals, modulus) {
                let cluster = cluster.into_iter().map(|index| items[index]).collect();
                self.sift(cluster, bound, depth + 1, pairs);
            }
            return;
        }
        self.compare(items, pairs);
    }

    /// Compares all pairs exactly.
    fn compare(&mut self, mut items: Vec<&Item<'_>>, pairs: Pairs) {
        items.sort_by_key(|item| item.family.start);
        let rows = (pairs == Pairs::UnlikeGroups).then(|| Rows::new(&items));
        for (index, first) in items.iter().enumerate() {
            let end = first.family.start.saturating_add(first.span_below(u64::MAX));
            let behind = items.iter().enumerate().skip(index + 1);
            for (at, second) in behind.take_while(|(_, second)| second.family.start < end) {
                if self.ended || !self.spend(PAIR_STEPS, first.placed.part.storage) {
                    return;
                }
                let in_one_row = rows.as_ref().is_some_and(|rows| rows.of[index] == rows.of[at]);
                if pairs.has(first, second) && !in_one_row {
                    self.compare_two(first, second, pairs);
                }
            }
        }
    }

    fn compare_two(&mut self, first: &Item<'_>, second: &Item<'_>, pairs: Pairs) {
        let storage = first.placed.part.storage;
        let met = first.family.overlap(&second.family, self.budget);
        let undecided = || Finding::PartsUndecided { first: first.name(), second: second.name(), storage };
        match met {
            Overlap::Disjoint => {}
            Overlap::Unknown => self.report(undecided()),
            Overlap::Overlapping { .. } if pairs == Pairs::UnlikeGroups => {
                let blocks = |item: &Item<'_>| Blocks::of(item.placed.part, item.placed.group.num_blocks);
                match clash(&blocks(first), &blocks(second), self.budget) {
                    Ok(None) => {}
                    Err(Undecided) => self.report(undecided()),
                    Ok(Some(Clash { first_block, second_block, byte })) => {
                        let id = |block: u64| BlockId(u32::try_from(block).unwrap_or(u32::MAX));
                        self.report(Finding::BlocksOverlap {
                            first: first.name(),
                            first_block: id(first_block),
                            second: second.name(),
                            second_block: id(second_block),
                            storage,
                            byte,
                        });
                    }
                }
            }
            Overlap::Overlapping { distance } => {
                let (distance, first_content) =
                    self.cells_that_meet(first, second).unwrap_or((distance, first.family.run));
                let (first, second) = (first.name(), second.name());
                self.report(Finding::PartsOverlap { first, second, storage, distance, first_content });
            }
        }
    }

    /// Distance of two overlapping cells and the content of the first: a finding speaks of cells, while items
    /// compare the longer runs that cells make up.
    fn cells_that_meet(&mut self, first: &Item<'_>, second: &Item<'_>) -> Option<(i128, u64)> {
        let cells = |item: &Item<'_>| Family::of_part(item.placed.part, item.placed.group.num_blocks);
        match cells(first).overlap(&cells(second), self.budget) {
            Overlap::Overlapping { distance } => Some((distance, first.placed.part.content)),
            Overlap::Disjoint | Overlap::Unknown => None,
        }
    }
}

/// Index sets of intervals that hang together, on a line or on a circle of length `modulus`. The intervals are
/// sorted by start, start below the modulus and are no longer than it.
fn clusters(intervals: Vec<(u64, u64)>, modulus: Option<u64>) -> Vec<Vec<usize>> {
    let mut clusters: Vec<Vec<usize>> = Vec::new();
    let mut reach = 0;
    for (index, &(start, end)) in intervals.iter().enumerate() {
        match clusters.last_mut() {
            Some(cluster) if start < reach => cluster.push(index),
            _ => clusters.push(vec![index]),
        }
        reach = reach.max(end);
    }
    // What reaches around the circle is in the last cluster, and joins those at the beginning that it meets.
    if let Some(wrapped) = modulus.and_then(|modulus| reach.checked_sub(modulus)) {
        let met = clusters.iter().take_while(|cluster| intervals[cluster[0]].0 < wrapped).count();
        let met = met.min(clusters.len() - 1);
        let joined: Vec<usize> = clusters.drain(..met).flatten().collect();
        if let Some(last) = clusters.last_mut() {
            last.extend(joined);
        }
    }
    clusters
}
