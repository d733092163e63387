//! Bytes as the JSON form of a spec: read, validated, folded into regions.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(spec) = kvspec::CacheSpec::from_json(text) else { return };
    let again = spec.to_json().expect("a spec that was read can be written");
    assert_eq!(kvspec::CacheSpec::from_json(&again).expect("what was written can be read"), spec);
    match spec.validate() {
        Ok(spec) => kvfuzz::use_alone(&spec),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
