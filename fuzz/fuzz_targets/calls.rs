//! Random sequences of calls through the C ABI, with random arguments; `make test` runs a bounded number of them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    kvfuzz::calls::run(bytes);
});
