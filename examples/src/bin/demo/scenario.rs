//! Layouts, block lists and directions, and how one row of the table comes about.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use kvplan::Op;
use kvspec::Layout;

use crate::args::{Args, Role};
use crate::child::Worker;
use crate::error::Error;
use crate::protocol::{Answer, BlockLists, Command, Opened};
use crate::report::{Outcome, Row};

/// Prefill's and decode's.
const LAYOUTS: [(Layout, Layout); 3] =
    [(Layout::Blhnc, Layout::Blhnc), (Layout::Lbhnc, Layout::Lbhnc), (Layout::Blhnc, Layout::Lbhnc)];

/// Transfers a row, and copies to compare with. The fastest is reported: what is slower was waiting for something else.
const REPEATS: usize = 9;

/// How a request's blocks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// No two of them are neighbours, at either worker.
    Fragmented,
    /// One run at each worker.
    Contiguous,
}

impl Blocks {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fragmented => "fragmented",
            Self::Contiguous => "contiguous",
        }
    }

    /// `count` blocks out of twice as many at each worker.
    pub(crate) fn lists(self, count: u32) -> BlockLists {
        match self {
            Self::Fragmented => {
                // Even ids at one worker, odd ones at the other, each in an order of its own.
                let (a, b) = (stride(count, 0.618), stride(count, 0.382));
                let id = |i: u32, stride: u32| 2 * (u64::from(i) * u64::from(stride) % u64::from(count));
                let narrow = |id: u64| u32::try_from(id).unwrap_or(u32::MAX);
                BlockLists {
                    prefill: (0..count).map(|i| narrow(id(i, a))).collect(),
                    decode: (0..count).map(|i| narrow(id(i, b) + 1)).collect(),
                }
            }
            Self::Contiguous => {
                BlockLists { prefill: (count / 2..count / 2 + count).collect(), decode: (count..2 * count).collect() }
            }
        }
    }
}

/// A number near `count · part` without a common factor with `count`: its multiples visit everything once.
fn stride(count: u32, part: f64) -> u32 {
    let gcd = |mut a: u32, mut b: u32| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let near = |i: u32| f64::from(i) >= f64::from(count) * part && gcd(i, count) == 1;
    (1..count).find(|&i| near(i)).unwrap_or(1)
}

/// Runs everything.
pub(crate) fn run_all(args: &Args) -> Result<Outcome, Error> {
    let bar = ProgressBar::new(12);
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    let outcome = run_with(args, &bar);
    bar.finish_and_clear();
    outcome
}

fn run_with(args: &Args, bar: &ProgressBar) -> Result<Outcome, Error> {
    bar.set_message("starting two workers");
    let mut prefill = Worker::start(Role::Prefill)?;
    let mut decode = Worker::start(Role::Decode)?;
    let mut rows = Vec::new();
    for (prefill_layout, decode_layout) in LAYOUTS {
        let open = |layout: Layout| Command::Open { layout: layout.name().to_owned(), num_blocks: 2 * args.blocks };
        let source = prefill.open(&open(prefill_layout))?;
        let destination = decode.open(&open(decode_layout))?;
        decode.tell(&Command::Connect { blob: source.blob.clone(), warm_up: Some(Op::Read) })?;
        prefill.tell(&Command::Connect { blob: destination.blob.clone(), warm_up: Some(Op::Write) })?;
        for blocks in [Blocks::Fragmented, Blocks::Contiguous] {
            let lists = blocks.lists(args.blocks);
            prefill.tell(&Command::Fill { lists: lists.clone() })?;
            for op in [Op::Read, Op::Write] {
                let scenario = format!("{}->{} {}", prefill_layout.name(), decode_layout.name(), blocks.name());
                bar.set_message(scenario.clone());
                let workers = Workers { prefill: &mut prefill, decode: &mut decode };
                rows.push(workers.row(args, scenario, op, &lists, (&source, &destination))?);
                bar.inc(1);
            }
        }
    }
    bar.set_message("ending the workers");
    let peak_kib = prefill.quit()? + decode.quit()?;
    Ok(Outcome { rows, blocks: args.blocks, peak_kib })
}

struct Workers<'a> {
    prefill: &'a mut Worker,
    decode: &'a mut Worker,
}

impl Workers<'_> {
    fn row(
        self,
        args: &Args,
        scenario: String,
        op: Op,
        lists: &BlockLists,
        (source, destination): (&Opened, &Opened),
    ) -> Result<Row, Error> {
        let Self { prefill, decode } = self;
        let memcpy = Command::Memcpy { lists: lists.clone() };
        let mut copies = Vec::new();
        for _ in 0..REPEATS {
            copies.push(match decode.ask(&memcpy)? {
                Answer::Copied(seconds) => seconds,
                _ => return Err(Error::Unexpected { role: Role::Decode.name(), asked: memcpy.verb() }),
            });
        }
        // Overwrites what was copied and touches every page of the destination.
        decode.tell(&Command::Fill { lists: lists.clone() })?;

        let initiator = if op == Op::Read { &mut *decode } else { &mut *prefill };
        let transfer = Command::Transfer { op, lists: lists.clone() };
        let moved = initiator.transfer(&transfer)?;
        let mut seconds = vec![moved.seconds];
        if args.spoil {
            decode.tell(&Command::Spoil { lists: lists.clone() })?;
        }
        let verified = check(decode, lists, &scenario)? & check(prefill, lists, &scenario)?;
        let initiator = if op == Op::Read { decode } else { prefill };
        for _ in 1..REPEATS {
            seconds.push(initiator.transfer(&transfer)?.seconds);
        }
        Ok(Row::new(scenario, op, (source, destination), &moved, fastest(&seconds), fastest(&copies), verified))
    }
}

/// Whether a worker holds what it must, in every byte.
fn check(worker: &mut Worker, lists: &BlockLists, scenario: &str) -> Result<bool, Error> {
    let command = Command::Check { lists: lists.clone() };
    match worker.ask(&command)? {
        Answer::Checked(wrong) => {
            if let Some(first) = &wrong.first {
                eprintln!(
                    "demo: {scenario}: {} bytes are wrong at {}; the first at {first}",
                    wrong.bytes,
                    worker.name()
                );
            }
            Ok(wrong.bytes == 0)
        }
        _ => Err(Error::Unexpected { role: worker.name(), asked: command.verb() }),
    }
}

fn fastest(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragmented_lists_name_blocks_once_and_no_two_neighbours() {
        for count in [2, 3, 4, 8, 21, 64, 100, 256] {
            let lists = Blocks::Fragmented.lists(count);
            for mut blocks in [lists.prefill, lists.decode] {
                assert_eq!(blocks.len(), count as usize);
                blocks.sort_unstable();
                assert!(blocks.windows(2).all(|pair| pair[1] - pair[0] >= 2), "{blocks:?}");
                assert!(blocks.iter().all(|&block| block < 2 * count));
            }
        }
    }

    #[test]
    fn contiguous_lists_are_runs() {
        let lists = Blocks::Contiguous.lists(6);
        assert_eq!(lists.prefill, [3, 4, 5, 6, 7, 8]);
        assert_eq!(lists.decode, [6, 7, 8, 9, 10, 11]);
    }
}
