//! Writing answers and failures.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets};
use kvplan::{DeploymentError, Descriptor, Descriptors, LocalPlan, Op, PairError, PairPlan, RequestError, RowBroken};
use kvspec::{SpecError, ValidSpec};
use serde::Serialize;
use serde_json::json;

/// Why the command does not answer.
pub(crate) enum Failure {
    /// Unreadable input or an invalid spec; what is wrong, and where.
    Input(String),
    /// An invalid spec, with its findings one by one.
    Findings(String, Vec<String>),
    /// A refused pair or request: the whole text, and the refusals one by one.
    Refused(String, Vec<String>),
    /// Standard output cannot be written; nobody is left to tell.
    Output,
    /// The answer says no, and has been printed.
    Answered(u8),
}

impl Failure {
    pub(crate) fn input(path: &Path, error: impl Display) -> Self {
        Self::Input(format!("{}: {error}", path.display()))
    }

    pub(crate) fn spec(path: &Path, error: SpecError) -> Self {
        match &error {
            SpecError::Invalid(findings) => Self::Findings(
                format!("{}: {error}", path.display()),
                findings.iter().map(ToString::to_string).collect(),
            ),
            _ => Self::input(path, error),
        }
    }
}

impl From<PairError> for Failure {
    fn from(error: PairError) -> Self {
        let refusals = error.refusals.iter().map(ToString::to_string).collect();
        Self::Refused(error.to_string(), refusals)
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        Self::Refused(error.to_string(), vec![error.to_string()])
    }
}

impl From<RowBroken> for Failure {
    fn from(error: RowBroken) -> Self {
        Self::Refused(error.to_string(), vec![error.to_string()])
    }
}

impl From<DeploymentError> for Failure {
    fn from(error: DeploymentError) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Output
    }
}

/// Prints what went wrong and gives the exit status.
pub(crate) fn exit(result: Result<(), Failure>) -> ExitCode {
    let (code, message) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Answered(code)) => return ExitCode::from(code),
        Err(Failure::Output) => return ExitCode::from(2),
        Err(Failure::Input(message) | Failure::Findings(message, _)) => (2, message),
        Err(Failure::Refused(message, _)) => (1, message),
    };
    // Standard error may be closed as well; the status still tells.
    let _ = writeln!(io::stderr(), "kvplan: {message}");
    ExitCode::from(code)
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    write!(out, "{text}")?;
    Ok(out.flush()?)
}

pub(crate) fn check_json(result: Result<ValidSpec, Failure>) -> Result<(), Failure> {
    match result {
        Ok(_) => print_json(&json!({"schema": 1, "valid": true, "findings": []})),
        Err(Failure::Findings(_, findings)) => invalid(&findings),
        Err(Failure::Input(text)) => invalid(&[text]),
        Err(other) => Err(other),
    }
}

fn invalid(findings: &[String]) -> Result<(), Failure> {
    print_json(&json!({"schema": 1, "valid": false, "findings": findings}))?;
    Err(Failure::Answered(2))
}

/// Under `--json` a refusal is an answer: prints it on standard output. Any other failure passes.
pub(crate) fn refused_json(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(Failure::Refused(_, refusals)) => {
            print_json(&json!({"schema": 1, "refusals": refusals}))?;
            Err(Failure::Answered(1))
        }
        other => other,
    }
}

pub(crate) fn check_text(spec: &ValidSpec) -> Result<(), Failure> {
    let parts: usize = spec.layers.iter().map(|layer| layer.parts.len()).sum();
    let (storages, groups, layers) = (spec.storages.len(), spec.groups.len(), spec.layers.len());
    print(format_args!("valid: {storages} storages, {groups} groups, {layers} layers, {parts} parts\n"))
}

pub(crate) fn regions_json(plan: &LocalPlan) -> Result<(), Failure> {
    print_json(&json!({"schema": 1, "memory_ranges": plan.memory_ranges(), "regions": plan.regions()}))
}

pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header.iter().copied());
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

pub(crate) fn regions_text(plan: &LocalPlan) -> Result<(), Failure> {
    let mut ranges = table(&["storage", "base", "bytes", "memory"]);
    for range in plan.memory_ranges() {
        ranges.add_row([
            range.storage.to_string(),
            format!("{:#x}", range.base),
            range.len.to_string(),
            range.mem.to_string(),
        ]);
    }
    let mut regions = table(&["storage", "offset", "block bytes", "stride", "blocks", "pages", "first layer"]);
    for region in plan.regions() {
        let first = region.members.first().map(|member| format!("{} {}", member.layer, member.part));
        regions.add_row([
            region.storage.to_string(),
            region.offset.to_string(),
            region.block_len.to_string(),
            region.block_stride.to_string(),
            region.num_blocks.to_string(),
            region.members.len().to_string(),
            first.unwrap_or_default(),
        ]);
    }
    let (num_ranges, num_regions) = (plan.memory_ranges().len(), plan.regions().len());
    print(format_args!("memory ranges: {num_ranges}\n{ranges}\n\nregions: {num_regions}\n{regions}\n"))
}

pub(crate) fn pair_json(plan: &PairPlan) -> Result<(), Failure> {
    print_json(&plan.explain())
}

pub(crate) fn pair_text(plan: &PairPlan) -> Result<(), Failure> {
    print(plan.explain())
}

#[derive(Serialize)]
struct Answer {
    descriptors: Vec<Moved>,
    zero: Vec<Zero>,
    padding_bytes: u64,
}

#[derive(Serialize)]
struct Moved {
    local: (u32, u64),
    remote: (u32, u64),
    len: u64,
}

#[derive(Serialize)]
struct Zero {
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<(u32, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<(u32, u64)>,
    len: u64,
}

pub(crate) fn descriptors(op: Op, answer: &Descriptors) -> Result<(), Failure> {
    let moved = |d: &Descriptor| Moved {
        local: (d.local_storage.0, d.local_offset),
        remote: (d.remote_storage.0, d.remote_offset),
        len: d.len,
    };
    let zero = answer.zero().iter().map(|z| {
        let place = Some((z.storage.0, z.offset));
        match op {
            Op::Read => Zero { local: place, remote: None, len: z.len },
            Op::Write => Zero { local: None, remote: place, len: z.len },
        }
    });
    print_json(&Answer {
        descriptors: answer.as_slice().iter().map(moved).collect(),
        zero: zero.collect(),
        padding_bytes: answer.padding_bytes(),
    })
}
