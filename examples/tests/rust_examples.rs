//! The numbered Rust examples run and say what they are for.

mod common;

use common::example;

#[test]
fn describe_prints_placements_and_both_faults() {
    let text = example("01_describe");
    assert!(text.contains("allocate [157952000] bytes"), "{text}");
    assert!(text.contains("draft.layers.0.self_attn k: block 0 at") && text.contains("units 2..4"), "{text}");
    assert!(text.lines().filter(|line| line.starts_with("wrong: ")).count() >= 2, "{text}");
}

#[test]
fn plan_explains_the_split_row_and_is_refused_when_it_wants_rows() {
    let text = example("02_plan");
    assert!(text.contains("3 descriptors a block") && text.contains("refused: "), "{text}");
}

#[test]
fn transfer_pulls_notifies_and_pushes() {
    let text = example("03_transfer");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "pulled 147456 bytes in 1 descriptor",
            "decode says: request 1 has arrived",
            "pushed 73728 bytes in 1 descriptor"
        ]
    );
}
