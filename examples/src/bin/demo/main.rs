//! The demo: a prefill and a decode worker in processes of their own move KV blocks over NIXL on this machine, and
//! every byte is checked.
//!
//! The program starts itself twice, as `prefill` and as `decode`, and tells both what to do over a socket. Each holds
//! one allocation with the caches of a GLM-class model: 99 views. For every layout, block list and direction, decode
//! gets the blocks of a request; what it then holds is compared with what the model's cells must hold, byte by byte,
//! in the blocks that were asked for and in all others.
//!
//! | file | what |
//! |---|---|
//! | `scenario` | which layouts, block lists and directions, and how one row of the table comes about |
//! | `model` | the 99 views |
//! | `pattern` | what each byte must be: filling and checking |
//! | `worker`, `memory` | the two processes |
//! | `child`, `protocol` | how they are started, told and ended |
//! | `pairing` | that a pair plan does not grow with the number of blocks |
//! | `report` | the table and the JSON document |

mod args;
mod child;
mod error;
mod memory;
mod model;
mod pairing;
mod pattern;
mod protocol;
mod report;
mod scenario;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Args;
use crate::error::Error;
use crate::report::Row;

#[global_allocator]
static ALLOCATOR: pairing::Counting = pairing::Counting;

fn main() -> ExitCode {
    // SAFETY: no other thread yet.
    unsafe { kvnixl::library::set_process_defaults() };
    let args = Args::parse();
    if let Some(role) = args.worker {
        return worker::run(role);
    }
    match run(&args) {
        Ok(rows) if rows.iter().all(|row| row.verified) => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("demo: bytes are wrong, see the rows that are not verified");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<Vec<Row>, Error> {
    let pairing = pairing::measure()?;
    let outcome = scenario::run_all(args)?;
    if args.json {
        report::json(&outcome.rows)?;
        eprintln!("{}", report::notes(&outcome, &pairing));
    } else {
        report::table(&outcome, &pairing)?;
    }
    Ok(outcome.rows)
}
