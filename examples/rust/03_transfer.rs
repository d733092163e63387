//! Moves blocks over NIXL between two agents of one process: pull, then push.
//!
//! ```sh
//! make deps && ROOT=$PWD && source .deps/env.sh && cargo run --package examples --example 03_transfer
//! ```

use std::time::Duration;

use kvnixl::{Agent, Limits, NixlOptions, TransferOptions};
use kvplan::{BlockList, Descriptors, LocalPlan, Op, PairOptions, PairPlan, Request};
use kvspec::kinds::Mla;
use kvspec::{Arrange, BlockId, Blocks, Fingerprint, GroupId, Layout, Pool, SpecError, Topology, ValidSpec};

const PATIENCE: Duration = Duration::from_secs(20);
const PAGE: usize = 64 * 1152;
const NUM_BLOCKS: usize = 8;

/// One MLA layer whose caches lie in `memory`.
fn describe(memory: *mut u8) -> Result<ValidSpec, SpecError> {
    let model = Fingerprint { model: "org/model".to_owned(), ..Fingerprint::default() };
    let blocks = Blocks::tokens(64).layer("layers.0", Mla::bf16());
    let pool = Pool::new(Layout::Blhnc, NUM_BLOCKS as u64).blocks(blocks);
    let base = memory.expose_provenance() as u64;
    Arrange::new(model, Topology::default()).pool(pool).build()?.at(&[base])?.validate()
}

fn request(op: Op, local: &[u32], remote: &[u32]) -> Request {
    let list = |blocks: &[u32]| {
        vec![BlockList { group: GroupId(0), first: None, blocks: blocks.iter().copied().map(BlockId).collect() }]
    };
    Request { op, local: list(local), remote: list(remote), ..Request::default() }
}

/// The first byte of a block.
fn first_byte(memory: *const u8, block: usize) -> u8 {
    assert!(block < NUM_BLOCKS);
    // SAFETY: inside the caches, and no transfer is under way when this is called.
    unsafe { memory.add(block * PAGE).read() }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // UCX logs to standard error then. SAFETY: no other thread yet.
    unsafe { kvnixl::library::set_process_defaults() };
    // The caches live as long as the process: whatever a transfer may still do, the memory is there.
    let caches = |byte: u8| Box::leak(vec![byte; NUM_BLOCKS * PAGE].into_boxed_slice()).as_mut_ptr();
    let (prefill_memory, decode_memory) = (caches(7), caches(0));
    let (prefill_spec, decode_spec) = (describe(prefill_memory)?, describe(decode_memory)?);

    // An agent each. NIXL is searched for and loaded here; if it is missing, the error lists where it was looked for.
    let prefill = Agent::nixl("prefill", &NixlOptions::default(), Limits::default())?;
    let decode = Agent::nixl("decode", &NixlOptions::default(), Limits::default())?;
    // SAFETY: the memory is never freed, and is read only when no transfer is under way.
    unsafe {
        prefill.register(&LocalPlan::new(&prefill_spec))?;
        decode.register(&LocalPlan::new(&decode_spec))?;
    }

    // Blobs travel over the engine's own channel. A blob holds the peer's layout, so it is all that a plan needs.
    let to_prefill = decode.connect(&prefill.export()?)?;
    let to_decode = prefill.connect(&decode.export()?)?;

    // Decode pulls blocks 1 and 2 into its blocks 5 and 6, and tells prefill when they are in place.
    let mut descriptors = Descriptors::new();
    let pull = PairPlan::new(&decode_spec, to_prefill.layout(), &PairOptions::default())?;
    pull.descriptors(&request(Op::Read, &[5, 6], &[1, 2]), &mut descriptors)?;
    let options = TransferOptions::default().notify("request 1 has arrived").deadline(PATIENCE);
    decode.start_answer(&to_prefill, &descriptors, options)?.wait(PATIENCE)?;
    assert_eq!([4, 5, 6, 7].map(|block| first_byte(decode_memory, block)), [0, 7, 7, 0]);
    println!("pulled {} bytes in {} descriptor", descriptors.num_bytes(), descriptors.as_slice().len());

    let started = std::time::Instant::now();
    let notification = loop {
        if let Some(notification) = prefill.notifications()?.pop() {
            break notification;
        }
        if started.elapsed() > PATIENCE {
            return Err("the notification does not arrive".into());
        }
        std::thread::sleep(Duration::from_micros(100));
    };
    println!("{} says: {}", notification.sender, String::from_utf8_lossy(&notification.message));

    // Prefill pushes block 3 into decode's block 0.
    let push = PairPlan::new(&prefill_spec, to_decode.layout(), &PairOptions { op: Op::Write, ..Default::default() })?;
    push.descriptors(&request(Op::Write, &[3], &[0]), &mut descriptors)?;
    let options = TransferOptions::default().deadline(PATIENCE);
    prefill.start_answer(&to_decode, &descriptors, options)?.wait(PATIENCE)?;
    assert_eq!([0, 1].map(|block| first_byte(decode_memory, block)), [7, 0]);
    println!("pushed {} bytes in {} descriptor", descriptors.num_bytes(), descriptors.as_slice().len());

    decode.shutdown(PATIENCE)?;
    prefill.shutdown(PATIENCE)?;
    Ok(())
}
