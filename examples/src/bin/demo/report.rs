//! The table, the JSON document and what is said besides.

use std::fmt::Write as _;
use std::io::Write as _;

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use kvplan::Op;
use serde::Serialize;

use crate::error::Error;
use crate::pairing::Pairing;
use crate::protocol::{Moved, Opened};

/// One transfer between the two workers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Layouts of prefill and decode, and how the blocks lie.
    pub(crate) scenario: String,
    /// "read": decode pulls; "write": prefill pushes.
    pub(crate) op: Op,
    /// Caches of a worker.
    pub(crate) views: usize,
    /// Of the decode worker.
    pub(crate) memory_ranges: usize,
    /// Of the decode worker.
    pub(crate) regions: usize,
    /// What the planner gave, before long ones are cut.
    pub(crate) descriptors: usize,
    pub(crate) bytes: u64,
    /// Post to settled.
    pub(crate) seconds: f64,
    pub(crate) gb_per_s: f64,
    /// The same ranges copied within one process by one thread.
    pub(crate) memcpy_gb_per_s: f64,
    /// Every byte of both workers is what it must be.
    pub(crate) verified: bool,
    #[serde(skip)]
    source_regions: usize,
}

impl Row {
    pub(crate) fn new(
        scenario: String,
        op: Op,
        (source, destination): (&Opened, &Opened),
        moved: &Moved,
        seconds: f64,
        memcpy_seconds: f64,
        verified: bool,
    ) -> Self {
        let rate = |seconds: f64| gigabytes(moved.bytes) / seconds.max(1e-9);
        Self {
            scenario,
            op,
            views: destination.views,
            memory_ranges: destination.memory_ranges,
            regions: destination.regions,
            descriptors: moved.descriptors,
            bytes: moved.bytes,
            seconds,
            gb_per_s: rate(seconds),
            memcpy_gb_per_s: rate(memcpy_seconds),
            verified,
            source_regions: source.regions,
        }
    }

    fn cells(&self) -> [String; 13] {
        let megabytes = gigabytes(self.bytes) * 1e3;
        let (layouts, blocks) = self.scenario.split_once(' ').unwrap_or((&self.scenario, ""));
        [
            layouts.to_owned(),
            blocks.to_owned(),
            direction(self.op).to_owned(),
            self.views.to_string(),
            self.memory_ranges.to_string(),
            if self.source_regions == self.regions {
                self.regions.to_string()
            } else {
                format!("{}->{}", self.source_regions, self.regions)
            },
            grouped(self.descriptors as u64),
            format!("{:.3}", as_f64(self.descriptors as u64) / megabytes),
            format!("{megabytes:.0}"),
            format!("{:.1}", self.seconds * 1e3),
            format!("{:.2}", self.gb_per_s),
            format!("{:.2}", self.memcpy_gb_per_s),
            if self.verified { "yes" } else { "NO" }.to_owned(),
        ]
    }
}

/// All that was measured.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) rows: Vec<Row>,
    /// In each request.
    pub(crate) blocks: u32,
    /// The most memory that the two workers had, in KiB; 0 where the system does not say.
    pub(crate) peak_kib: u64,
}

/// Writes the JSON document.
pub(crate) fn json(rows: &[Row]) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, rows)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Writes the table and the notes.
pub(crate) fn table(outcome: &Outcome, pairing: &[Pairing]) -> Result<(), Error> {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).remove_style(TableComponent::HorizontalLines);
    let between_rows = [TableComponent::LeftBorderIntersections, TableComponent::MiddleIntersections];
    for component in between_rows.into_iter().chain([TableComponent::RightBorderIntersections]) {
        table.remove_style(component);
    }
    table.set_header([
        "prefill->\ndecode",
        "blocks",
        "op",
        "views",
        "memory\nranges",
        "regions",
        "descrip-\ntors",
        "descr.\na MB",
        "MB",
        "ms",
        "GB/s",
        "memcpy\nGB/s",
        "bytes\nright",
    ]);
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.column_iter_mut().skip(3).for_each(|column| {
        column.set_cell_alignment(CellAlignment::Right);
    });
    for row in &outcome.rows {
        table.add_row(row.cells());
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))?;
    writeln!(out, "{}", notes(outcome, pairing))?;
    Ok(out.flush()?)
}

/// What the rows do not say.
pub(crate) fn notes(outcome: &Outcome, pairing: &[Pairing]) -> String {
    let mut notes = format!(
        "\n{} blocks of 64 tokens a request; every byte of both workers is compared after the first of nine \
         transfers.\nms and memcpy: the fastest of nine; from post to settled.\n\nwhole rows against per-layer pages, same bytes (fragmented)\n",
        outcome.blocks
    );
    for op in [Op::Read, Op::Write] {
        let row = |layouts: &str| {
            outcome.rows.iter().find(|row| row.op == op && row.scenario == format!("{layouts} fragmented"))
        };
        if let (Some(rows), Some(pages)) = (row("BLHNC->BLHNC"), row("LBHNC->LBHNC")) {
            let _ = writeln!(
                notes,
                "  {}: {} against {} descriptors, {:.0} times fewer; {:.1} against {:.1} ms, {:.2} times as fast",
                direction(op),
                grouped(rows.descriptors as u64),
                grouped(pages.descriptors as u64),
                as_f64(pages.descriptors as u64) / as_f64(rows.descriptors.max(1) as u64),
                rows.seconds * 1e3,
                pages.seconds * 1e3,
                pages.seconds / rows.seconds.max(1e-9),
            );
        }
    }
    let _ = writeln!(notes, "\npairing a BLHNC prefill with an LBHNC decode of this model");
    for Pairing { num_blocks, seconds, bytes } in pairing {
        let _ = writeln!(
            notes,
            "  {:>6} blocks each: {:.3} ms, {:.1} KiB",
            grouped(u64::from(*num_blocks)),
            seconds * 1e3,
            as_f64(*bytes as u64) / 1024.0
        );
    }
    let _ = write!(notes, "\npeak memory of both workers: {:.2} GB", as_f64(outcome.peak_kib) * 1024.0 / 1e9);
    notes
}

fn direction(op: Op) -> &'static str {
    match op {
        Op::Read => "pull",
        Op::Write => "push",
    }
}

fn gigabytes(bytes: u64) -> f64 {
    as_f64(bytes) / 1e9
}

#[allow(clippy::cast_precision_loss, reason = "for people, who read three digits")]
fn as_f64(number: u64) -> f64 {
    number as f64
}

/// With a comma every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (digit, left) in digits.chars().zip((1..=digits.len()).rev()) {
        if left != digits.len() && left % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn numbers_have_a_comma_every_three_digits() {
        let texts: Vec<String> = [0, 999, 1_000, 26_104, 1_234_567].map(grouped).into();
        assert_eq!(texts, ["0", "999", "1,000", "26,104", "1,234,567"]);
    }
}
