//! The `kvplan` command.
fn main() {}
