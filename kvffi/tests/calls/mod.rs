//! Random sequences of calls through the C ABI, with random arguments, made from bytes.
//!
//! Every call keeps to what the header asks of a caller that cannot be checked (pointers are NULL or readable for what is
//! said of them, nothing is used after it was freed) and breaks whatever else it can. What must hold of any call is
//! checked after each: see [`Machine::call`].
//!
//! | file | what |
//! |---|---|
//! | `machine` | the objects that are alive, how a call is made, and what must hold after it |
//! | `values` | arguments: right, nearly right, and wrong |
//! | `describe` | calls that make specs |
//! | `plan` | calls that make plans and answers |
//! | `moving` | calls that move bytes |
//! | `exchanging` | calls on exchanges |

mod describe;
mod exchanging;
mod machine;
mod moving;
mod plan;
mod values;

use arbitrary::{Result, Unstructured};

use machine::Machine;
pub use machine::Outcomes;

/// One call with its arguments.
type Operation = fn(&mut Machine<'_>) -> Result<()>;

/// More calls are not made of one input.
const MAX_CALLS: usize = 300;

/// Makes the calls that the bytes stand for, frees everything, and says how the calls ended.
///
/// # Panics
///
/// If a call breaks a promise of the header.
pub fn run(bytes: &[u8]) -> Outcomes {
    let mut machine = Machine::new(Unstructured::new(bytes));
    let operations: Vec<Operation> =
        [describe::OPERATIONS, plan::OPERATIONS, moving::OPERATIONS, exchanging::OPERATIONS].concat();
    for _ in 0..MAX_CALLS {
        if machine.bytes.is_empty() {
            break;
        }
        // Bytes that run out end the sequence.
        let Ok(operation) = machine.bytes.choose(&operations) else { break };
        if operation(&mut machine).is_err() {
            break;
        }
        machine.end_of_call();
    }
    machine.finish()
}
