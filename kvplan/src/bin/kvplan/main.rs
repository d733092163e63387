//! The `kvplan` command: checks specs, shows regions, pairs two workers and answers requests, all without a transport.
//!
//! Exit status: 0 answered; 1 a refused pair or request; 2 usage, unreadable input or an invalid spec.

mod input;
mod output;
mod svg;
mod topology;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use kvplan::{Descriptors, LocalPlan, Op, PairOptions, PairPlan};

use crate::input::{read_deployment, read_request, read_spec};
use crate::output::Failure;

/// Plans KV cache transfers.
#[derive(Debug, Parser)]
#[command(name = "kvplan", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Validates a spec and lists everything that is wrong with it
    Check {
        /// CacheSpec as JSON; - for standard input
        spec: PathBuf,
        #[command(flatten)]
        form: Form,
    },
    /// Lists the memory ranges to register and the regions to advertise
    Regions {
        /// CacheSpec as JSON; - for standard input
        spec: PathBuf,
        /// Fail unless every pool's layers share one row
        #[arg(long)]
        require_whole_rows: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Pairs two workers and explains the plan
    Pair {
        /// CacheSpec of the worker that posts the transfers
        local: PathBuf,
        /// CacheSpec of its peer
        remote: PathBuf,
        /// Direction, seen from the local worker
        #[arg(long, value_enum, default_value_t)]
        op: Direction,
        #[command(flatten)]
        limits: Limits,
        #[command(flatten)]
        form: Form,
    },
    /// Shows who reads from whom between two deployments, and how evenly
    Topology {
        /// Source deployment: files of one spec a rank, or of a JSON array of specs
        #[arg(required = true)]
        specs: Vec<PathBuf>,
        /// Destination deployment, likewise
        #[arg(long, num_args = 1.., required = true)]
        to: Vec<PathBuf>,
        /// Also draw it
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        #[command(flatten)]
        limits: Limits,
        #[command(flatten)]
        form: Form,
    },
    /// Draws the rows of a spec: layers as coloured segments, padding hatched
    Draw {
        /// CacheSpec as JSON; - for standard input
        spec: PathBuf,
        /// File to write; standard output without it
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Answers a request with descriptors, as JSON
    Descriptors {
        /// CacheSpec of the worker that posts the transfer
        local: PathBuf,
        /// CacheSpec of its peer
        remote: PathBuf,
        /// Request as JSON
        request: PathBuf,
        #[command(flatten)]
        limits: Limits,
    },
}

impl Command {
    /// Whether `--json` was asked for.
    fn answers_in_json(&self) -> bool {
        match self {
            Self::Check { form, .. }
            | Self::Regions { form, .. }
            | Self::Pair { form, .. }
            | Self::Topology { form, .. } => form.json,
            Self::Draw { .. } | Self::Descriptors { .. } => false,
        }
    }
}

#[derive(Debug, Args)]
struct Form {
    /// Print JSON with a "schema" field in place of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Limits {
    /// Longest gap that may travel as padding, or "max"
    #[arg(long, value_name = "BYTES|max", default_value = "0", value_parser = parse_gap)]
    max_gap: u64,
    /// Refuse runs along the token axis that are shorter
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    min_run: u64,
    /// Refuse a pair in which a block is more than one descriptor
    #[arg(long)]
    require_whole_rows: bool,
}

impl Limits {
    fn options(&self, op: Op) -> PairOptions {
        let Self { max_gap, min_run, require_whole_rows } = *self;
        PairOptions { op, max_gap, min_run, require_whole_rows }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Direction {
    #[default]
    Read,
    Write,
}

fn parse_gap(text: &str) -> Result<u64, String> {
    if text == "max" {
        return Ok(u64::MAX);
    }
    text.parse().map_err(|_| "expected a number of bytes or \"max\"".to_owned())
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let json = command.answers_in_json();
    let result = run(command);
    output::exit(if json { output::refused_json(result) } else { result })
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check { spec, form } => {
            let result = read_spec(&spec);
            if form.json { output::check_json(result) } else { output::check_text(&result?) }
        }
        Command::Regions { spec, require_whole_rows, form } => {
            let spec = read_spec(&spec)?;
            let plan = if require_whole_rows { LocalPlan::with_whole_rows(&spec)? } else { LocalPlan::new(&spec) };
            if form.json { output::regions_json(&plan) } else { output::regions_text(&plan) }
        }
        Command::Pair { local, remote, op, limits, form } => {
            let op = match op {
                Direction::Read => Op::Read,
                Direction::Write => Op::Write,
            };
            let (local, remote) = (read_spec(&local)?, read_spec(&remote)?);
            let plan = PairPlan::new(&local, &remote, &limits.options(op))?;
            if form.json { output::pair_json(&plan) } else { output::pair_text(&plan) }
        }
        Command::Topology { specs, to, svg, limits, form } => {
            let (source, destination) = (read_deployment(&specs)?, read_deployment(&to)?);
            let flows = kvplan::flows(&source, &destination, &limits.options(Op::Read))?;
            if let Some(path) = svg {
                std::fs::write(&path, svg::topology(&flows)).map_err(|error| Failure::input(&path, error))?;
            }
            if form.json { topology::json(&flows) } else { topology::text(&flows) }
        }
        Command::Draw { spec, output } => {
            let title = spec.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let picture = svg::draw(&title, &kvplan::picture::rows(&read_spec(&spec)?));
            match output {
                Some(path) => std::fs::write(&path, picture).map_err(|error| Failure::input(&path, error)),
                None => output::print(picture),
            }
        }
        Command::Descriptors { local, remote, request, limits } => {
            let (local, remote) = (read_spec(&local)?, read_spec(&remote)?);
            let request = read_request(&request)?;
            let plan = PairPlan::new(&local, &remote, &limits.options(request.op))?;
            let mut answer = Descriptors::new();
            plan.descriptors(&request, &mut answer)?;
            output::descriptors(request.op, &answer)
        }
    }
}
