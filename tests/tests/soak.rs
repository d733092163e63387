//! A short soak, see `src/bin/soak`: `make soak` runs it for longer.

use std::process::Command;

#[test]
fn a_fleet_whose_workers_are_killed_and_stopped_delivers_every_byte_and_loses_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_soak")).args(["16", "2000"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let [.., events, verdict] = lines[..] else { panic!("{said}") };
    assert!(output.status.success() && verdict.ends_with(" transfers, 0 wrong, 0 lost, 0 failed"), "{said}");
    let kills: u32 = events.split_once(" kills").unwrap().0.parse().unwrap();
    assert!(kills >= 3, "{said}");
}
