//! Two deployments made up from bytes, mostly valid, with a request: paired, planned and proved.
#![no_main]

use kvfuzz::deployment::Case;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: Case| {
    let Case { local, remote, options, request } = case;
    if let (Ok(local), Ok(remote)) = (local.validate(), remote.validate()) {
        kvfuzz::use_alone(&local);
        kvfuzz::use_together(&local, &remote, &options, &request);
    }
});
