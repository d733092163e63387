//! The command line.

use clap::{Parser, ValueEnum};

/// Two processes, prefill and decode, move KV blocks over NIXL on this machine; every byte is checked.
#[derive(Debug, Parser)]
#[command(name = "demo")]
pub(crate) struct Args {
    /// Write one JSON document, a list of rows, to standard output; everything else goes to standard error.
    ///
    /// `regions` and `memory_ranges` are those of the decode worker. `descriptors` is the planner's count, before
    /// long ones are cut for posting. `seconds` is the fastest of nine transfers, from post to settled.
    #[arg(long)]
    pub(crate) json: bool,

    /// Blocks in a request, 3.5 MB each. Each worker has twice as many.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=256))]
    pub(crate) blocks: u32,

    /// Change one byte at the destination after each transfer: the demo must notice, and fail.
    #[arg(long)]
    pub(crate) spoil: bool,

    /// Be a worker. The demo starts itself with this.
    #[arg(long, hide = true)]
    pub(crate) worker: Option<Role>,
}

/// Which of the two workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Computes the caches: the source.
    Prefill,
    /// Needs them: the destination.
    Decode,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}
