//! The table of who reads from whom.

use comfy_table::Table;
use kvplan::flow::{Flow, Flows, UnitShare};
use kvplan::serve::Positions;
use kvspec::Usage;

use crate::output::{Failure, print, print_json, table};

pub(crate) fn json(flows: &Flows) -> Result<(), Failure> {
    print_json(flows)
}

pub(crate) fn text(flows: &Flows) -> Result<(), Failure> {
    let mut who = table(&["from", "to", "groups", "layers", "units", "positions", "bytes a block", "descriptors"]);
    for flow in &flows.flows {
        who.add_row([
            flow.from.to_string(),
            flow.to.to_string(),
            format!("{}→{}", flow.source_group, flow.destination_group),
            flow.num_layers.to_string(),
            units(flow),
            positions(flow),
            number(flow.bytes_per_block),
            number(flow.descriptors_per_block),
        ]);
    }
    let loads = loads(flows);
    print(format_args!("{who}\n\n{loads}\n\nimbalance: {:.3} (most served over mean, worst stage)\n", flows.imbalance))
}

fn loads(flows: &Flows) -> Table {
    let mut table = table(&["source", "readers", "bytes a token", "bytes a state slot"]);
    for load in &flows.loads {
        table.add_row([
            load.rank.to_string(),
            load.readers.to_string(),
            number(load.bytes_per_token),
            number(load.bytes_per_slot),
        ]);
    }
    table
}

/// A whole number, or one with two decimals.
fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

pub(crate) fn units(flow: &Flow) -> String {
    flow.units.iter().map(share).collect::<Vec<_>>().join(", ")
}

fn share(share: &UnitShare) -> String {
    let parts: Vec<&str> = share.parts.iter().map(|part| part.as_str()).collect();
    let parts = parts.join("+");
    match &share.units {
        None => format!("{parts} whole"),
        Some(units) if units.end - units.start == share.total => format!("{parts} all {}", share.total),
        Some(units) => format!("{parts} {}..{} of {}", units.start, units.end, share.total),
    }
}

pub(crate) fn positions(flow: &Flow) -> String {
    if flow.usage == Usage::State {
        return "state".to_owned();
    }
    match flow.positions {
        Positions { every: 1, .. } => "all".to_owned(),
        Positions { run, first, every } => format!("run {first} of every {every}, {run} tokens each"),
    }
}
