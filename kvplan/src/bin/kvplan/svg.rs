//! Pictures: a row's bytes, and the flows between two deployments.

use std::collections::BTreeMap;

use kvplan::flow::Flows;
use kvplan::{Rank, RowPicture, SegmentKind};
use svg::Document;
use svg::node::element::path::Data;
use svg::node::element::{Definitions, Group, Line, Path, Pattern, Rectangle, Text, Title};

const FONT: &str = "ui-sans-serif, system-ui, sans-serif";
/// Colours that stay apart for colour-blind readers (Okabe and Ito).
const COLOURS: [&str; 8] = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999"];

fn text(x: f64, y: f64, size: f64, anchor: &str, content: impl ToString) -> Text {
    Text::new(content.to_string())
        .set("x", x)
        .set("y", y)
        .set("font-size", size)
        .set("text-anchor", anchor)
        .set("font-family", FONT)
        .set("fill", "#222")
}

fn sheet(width: f64, height: f64) -> Document {
    Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .add(Rectangle::new().set("width", width).set("height", height).set("fill", "white"))
}

fn hatching() -> Definitions {
    let line = Line::new().set("x1", 0).set("y1", 0).set("x2", 0).set("y2", 6).set("stroke", "#888");
    let pattern = Pattern::new()
        .set("id", "padding")
        .set("width", 6)
        .set("height", 6)
        .set("patternUnits", "userSpaceOnUse")
        .set("patternTransform", "rotate(45)")
        .add(Rectangle::new().set("width", 6).set("height", 6).set("fill", "#f2f2f2"))
        .add(line.set("stroke-width", 2));
    Definitions::new().add(pattern)
}

const ROW_WIDTH: f64 = 1000.0;
const MARGIN: f64 = 40.0;
const ROW_HEIGHT: f64 = 44.0;
/// Rows drawn; further ones are counted.
const MAX_ROWS: usize = 24;

/// Draws the rows of a spec, one bar each, to the scale of the longest.
#[allow(clippy::cast_precision_loss, reason = "pixels")]
pub(crate) fn draw(title: &str, rows: &[RowPicture]) -> String {
    let shown = &rows[..rows.len().min(MAX_ROWS)];
    let kinds: Vec<&SegmentKind> = {
        let mut kinds: Vec<_> = shown.iter().flat_map(|row| &row.segments).map(|segment| &segment.kind).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    };
    let colour = |kind: &SegmentKind| match kind {
        SegmentKind::Padding => "url(#padding)",
        kind => COLOURS[kinds.iter().position(|k| *k == kind).unwrap_or(0) % COLOURS.len()],
    };
    let longest = shown.iter().map(|row| row.stride.max(1)).max().unwrap_or(1) as f64;
    let lane = |row: &RowPicture| ROW_HEIGHT * row.num_lanes as f64 + 58.0;
    let height = 90.0 + shown.iter().map(lane).sum::<f64>() + 26.0 * (kinds.len() as f64) + 40.0;

    let mut page =
        sheet(ROW_WIDTH + 2.0 * MARGIN, height).add(hatching()).add(text(MARGIN, 36.0, 20.0, "start", title));
    let mut y = 72.0;
    for row in shown {
        let scale = ROW_WIDTH / longest;
        page = page.add(text(MARGIN, y, 13.0, "start", &row.caption));
        y += 8.0;
        for segment in &row.segments {
            let x = MARGIN + segment.offset as f64 * scale;
            let width = (segment.len as f64 * scale).max(0.5);
            let top = y + segment.lane as f64 * ROW_HEIGHT;
            let stroke = if width > 4.0 { "white" } else { "none" };
            let bar = Rectangle::new()
                .set("x", x)
                .set("y", top)
                .set("width", width)
                .set("height", ROW_HEIGHT - 8.0)
                .set("fill", colour(&segment.kind))
                .set("stroke", stroke)
                .add(Title::new(format!("{}: {} bytes at {}", segment.label, segment.len, segment.offset)));
            page = page.add(bar);
            // A label is drawn where it fits, at about 6 pixels a letter.
            if width > 6.2 * segment.label.len() as f64 + 8.0 && segment.kind != SegmentKind::Padding {
                page = page.add(text(x + width / 2.0, top + 23.0, 11.0, "middle", &segment.label).set("fill", "white"));
            }
        }
        y += row.num_lanes as f64 * ROW_HEIGHT;
        page = page.add(text(MARGIN, y + 6.0, 11.0, "start", row.start)).add(text(
            MARGIN + row.stride as f64 * scale,
            y + 6.0,
            11.0,
            "end",
            row.start + row.stride,
        ));
        y += 50.0;
    }
    if rows.len() > shown.len() {
        page = page.add(text(MARGIN, y - 14.0, 13.0, "start", format!("and {} more rows", rows.len() - shown.len())));
    }
    for kind in &kinds {
        let total: u64 =
            shown.iter().flat_map(|row| &row.segments).filter(|s| s.kind == **kind).map(|s| s.num_bytes).sum();
        let swatch =
            Rectangle::new().set("x", MARGIN).set("y", y).set("width", 18).set("height", 14).set("fill", colour(kind));
        page = page.add(swatch).add(text(
            MARGIN + 28.0,
            y + 12.0,
            13.0,
            "start",
            format!("{kind}, {total} bytes in the rows shown"),
        ));
        y += 26.0;
    }
    page.to_string()
}

const BOX_WIDTH: f64 = 150.0;
const BOX_HEIGHT: f64 = 46.0;
const BOX_GAP: f64 = 20.0;
const FLOW_WIDTH: f64 = 520.0;

/// Draws ranks as boxes, sources on the left, and flows as bands whose width follows the bytes.
#[allow(clippy::cast_precision_loss, reason = "pixels")]
pub(crate) fn topology(flows: &Flows) -> String {
    // Bytes a token and bytes a slot have no common scale: each is drawn against its own largest.
    let weight = |bytes: f64, most: f64| if most > 0.0 { bytes / most } else { 0.0 };
    let mut between: BTreeMap<(Rank, Rank), (f64, f64)> = BTreeMap::new();
    for flow in &flows.flows {
        let sum = between.entry((flow.from, flow.to)).or_default();
        sum.0 += flow.bytes_per_token;
        sum.1 += flow.bytes_per_slot;
    }
    let most = between.values().fold((0.0f64, 0.0f64), |m, v| (m.0.max(v.0), m.1.max(v.1)));
    let sources: Vec<Rank> = flows.loads.iter().map(|load| load.rank).collect();
    let mut destinations: Vec<Rank> = between.keys().map(|(_, to)| *to).collect();
    destinations.sort_unstable();
    destinations.dedup();

    let rows = sources.len().max(destinations.len()) as f64;
    let height = 130.0 + rows * (BOX_HEIGHT + BOX_GAP);
    let width = 2.0 * (MARGIN + BOX_WIDTH) + FLOW_WIDTH;
    let column = |n: usize| {
        let used = n as f64 * (BOX_HEIGHT + BOX_GAP) - BOX_GAP;
        (height + 50.0 - used) / 2.0
    };
    let centre = |ranks: &[Rank], rank: Rank| {
        let at = ranks.iter().position(|r| *r == rank).unwrap_or(0) as f64;
        column(ranks.len()) + at * (BOX_HEIGHT + BOX_GAP) + BOX_HEIGHT / 2.0
    };

    let mut page = sheet(width, height).add(text(MARGIN, 36.0, 20.0, "start", "Who reads from whom")).add(text(
        MARGIN,
        60.0,
        13.0,
        "start",
        format!("sources left, destinations right; imbalance {:.3}", flows.imbalance),
    ));
    let (left, right) = (MARGIN + BOX_WIDTH, MARGIN + BOX_WIDTH + FLOW_WIDTH);
    let mut bands = Group::new().set("fill", "none").set("stroke-opacity", 0.45);
    for (&(from, to), &(token, slot)) in &between {
        let thickness = 2.0 + 16.0 * weight(token, most.0).max(weight(slot, most.1));
        let (y1, y2) = (centre(&sources, from), centre(&destinations, to));
        let middle = f64::midpoint(left, right);
        let data = Data::new().move_to((left, y1)).cubic_curve_to((middle, y1, middle, y2, right, y2));
        let colour = COLOURS[sources.iter().position(|r| *r == from).unwrap_or(0) % COLOURS.len()];
        let title = format!("{from} to {to}: {token:.1} bytes a token, {slot:.0} bytes a state slot");
        bands = bands.add(
            Path::new().set("d", data).set("stroke", colour).set("stroke-width", thickness).add(Title::new(title)),
        );
    }
    page = page.add(bands);
    let rank_box = |x: f64, y: f64, colour: &str, name: String, note: String| {
        let shape = Rectangle::new()
            .set("x", x)
            .set("y", y - BOX_HEIGHT / 2.0)
            .set("width", BOX_WIDTH)
            .set("height", BOX_HEIGHT)
            .set("rx", 6)
            .set("fill", "white")
            .set("stroke", colour)
            .set("stroke-width", 2);
        Group::new().add(shape).add(text(x + BOX_WIDTH / 2.0, y - 3.0, 14.0, "middle", name)).add(text(
            x + BOX_WIDTH / 2.0,
            y + 14.0,
            10.0,
            "middle",
            note,
        ))
    };
    for (i, load) in flows.loads.iter().enumerate() {
        let plural = if load.readers == 1 { "" } else { "s" };
        let note = format!("{} reader{plural}, {:.0} B a token", load.readers, load.bytes_per_token);
        let y = centre(&sources, load.rank);
        page = page.add(rank_box(MARGIN, y, COLOURS[i % COLOURS.len()], load.rank.to_string(), note));
    }
    for &rank in &destinations {
        let mut from: Vec<Rank> = between.keys().filter(|(_, to)| *to == rank).map(|(from, _)| *from).collect();
        from.dedup();
        let plural = if from.len() == 1 { "" } else { "s" };
        let note = format!("{} source{plural}", from.len());
        page = page.add(rank_box(right, centre(&destinations, rank), "#444", rank.to_string(), note));
    }
    page.to_string()
}
