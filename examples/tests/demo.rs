//! The demo at a small size: its document, its numbers, and that it notices a wrong byte.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const BLOCKS: u64 = 4;
const ROW_BYTES: u64 = 3_452_160;

/// Runs the demo, for at most two minutes.
fn demo(args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_demo"))
        .args(["--blocks", &BLOCKS.to_string()])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // What it prints fits into the pipes.
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            panic!("the demo does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

fn rows(output: &Output) -> Vec<Value> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}; standard error: {stderr}"))
}

#[test]
fn the_document_has_every_scenario_with_the_counts_that_follow_from_the_layouts() {
    let output = demo(&["--json"]);
    let rows = rows(&output);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Of decode's regions, and of a request's descriptors: a block fragmented, in all contiguous.
    let layouts = [
        ("BLHNC->BLHNC", 1, BLOCKS, 1),
        ("LBHNC->LBHNC", 99, 99 * BLOCKS, 99),
        ("BLHNC->LBHNC", 99, 99 * BLOCKS, 99 * BLOCKS),
    ];
    let mut expected = Vec::new();
    for (layouts, regions, fragmented, contiguous) in layouts {
        for (blocks, descriptors) in [("fragmented", fragmented), ("contiguous", contiguous)] {
            expected.extend(["read", "write"].map(|op| (format!("{layouts} {blocks}"), op, regions, descriptors)));
        }
    }
    assert_eq!(rows.len(), expected.len());
    for (row, (scenario, op, regions, descriptors)) in rows.iter().zip(expected) {
        assert_eq!((row["scenario"].as_str(), row["op"].as_str()), (Some(scenario.as_str()), Some(op)));
        let number = |field: &str| row[field].as_u64().unwrap_or_else(|| panic!("{field} of {row}"));
        assert_eq!((number("views"), number("memory_ranges")), (99, 1), "{row}");
        assert_eq!((number("regions"), number("descriptors")), (regions, descriptors), "{row}");
        assert_eq!(number("bytes"), BLOCKS * ROW_BYTES);
        let rate = |field: &str| row[field].as_f64().filter(|rate| rate.is_finite() && *rate > 0.0);
        let (seconds, rate, memcpy) = (rate("seconds"), rate("gb_per_s"), rate("memcpy_gb_per_s"));
        let (Some(seconds), Some(rate), Some(_)) = (seconds, rate, memcpy) else { panic!("{row}") };
        assert!((rate * seconds * 1e9 / (BLOCKS * ROW_BYTES) as f64 - 1.0).abs() < 1e-6, "{row}");
        assert_eq!(row["verified"], Value::Bool(true));
        assert_eq!(row.as_object().unwrap().len(), 11, "{row}");
    }
}

#[test]
fn one_wrong_byte_fails_the_demo_and_its_place_is_named() {
    let output = demo(&["--json", "--spoil"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(rows(&output).iter().all(|row| row["verified"] == Value::Bool(false)));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("1 bytes are wrong at decode; the first at layer model.layers.0.self_attn part latent"));
}

#[test]
fn the_table_ends_with_what_whole_rows_and_more_blocks_cost() {
    let output = demo(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for expected in
        ["BLHNC->LBHNC", "4 against 396 descriptors, 99 times fewer", "1,000 blocks each", "26,104 blocks each"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
