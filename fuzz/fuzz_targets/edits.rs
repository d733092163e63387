//! A golden vector in which some numbers were changed: paired, planned and proved.
#![no_main]

use kvfuzz::edits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(edits::Case { local, remote, options, request }) = edits::case(bytes) else { return };
    if let (Ok(local), Ok(remote)) = (local.validate(), remote.validate()) {
        kvfuzz::use_together(&local, &remote, &options, &request);
    }
});
