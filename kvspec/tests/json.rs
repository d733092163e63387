//! The JSON form: what is read, what is refused, and where the message points.

mod common;

use common::sound;
use kvspec::{CacheSpec, Sharding, SpecError, TokensPerState};

fn refusal(text: &str) -> (String, String) {
    match CacheSpec::from_json(text) {
        Err(SpecError::Json { path, source }) => (path, source.to_string()),
        other => panic!("read {other:?}"),
    }
}

/// The sound spec with one piece of text replaced.
fn with(from: &str, to: &str) -> String {
    let text = sound().to_json().unwrap();
    assert!(text.contains(from), "no {from} in {text}");
    text.replacen(from, to, 1)
}

#[test]
fn a_spec_reads_back_as_it_was_written() {
    let mut spec = sound();
    spec.layers[0].transfer = false;
    spec.layers[1].parts[0].tokens_per_state = TokensPerState::new(1, 4);
    spec.layers[2].parts[0].sharding = Sharding::Sharded { total: 8, first: Some(2) };
    spec.fingerprint.extra.insert("attn".to_owned(), "flashmla".to_owned());
    spec.topology.dcp.interleave = Some(16);
    let text = spec.to_json().unwrap();
    assert_eq!(CacheSpec::from_json(&text).unwrap(), spec);
}

#[test]
fn the_example_of_the_page_about_json_is_valid_and_its_requests_are_json() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/JSON.md")).unwrap();
    let blocks: Vec<&str> =
        page.split("```json\n").skip(1).map(|rest| rest.split_once("```").expect("an open block").0).collect();
    let [spec, request, answer] = blocks[..] else { panic!("{} blocks of JSON", blocks.len()) };

    let spec = CacheSpec::from_json(spec).unwrap().validate().unwrap();
    assert!(spec.layers[1].transfer, "left out, so true");
    assert!(!spec.storages[1].shared, "left out, so false");
    assert_eq!(spec.layers[0].parts[0].format, "");
    for other in [request, answer] {
        let value: serde_json::Value = serde_json::from_str(other).unwrap();
        assert!(value.is_object(), "{other}");
    }
}

#[test]
fn an_example_with_few_fields_is_read_with_its_defaults() {
    let spec = CacheSpec::from_json(
        r#"{"version": 1, "fingerprint": {"model": "m"},
            "storages": [{"base": 4294967296, "len": 1048576, "mem": "dram"},
                         {"base": 8589934592, "len": 1048576, "mem": {"vram": 3}, "shared": true}],
            "groups": [{"pool": 0, "block_tokens": 64, "num_blocks": 8}],
            "layers": [{"name": "a", "group": 0, "kind": "sliding_window_mla",
                        "parts": [{"name": "latent", "storage": 0, "offset": 0, "block_stride": 4608,
                                   "sharding": "replicated", "units": {"count": 1, "stride": 1},
                                   "tokens": [{"count": 16, "stride": 288}], "content": 288,
                                   "tokens_per_state": {"num": 8, "den": 2}}]}]}"#,
    )
    .unwrap();
    assert_eq!(spec.layers[0].parts[0].tokens_per_state, TokensPerState { num: 4, den: 1 });
    assert!(spec.layers[0].transfer);
    assert_eq!(spec.topology.dcp.size, 1);
    spec.validate().unwrap();
}

#[test]
fn a_wrong_field_is_named_by_its_path() {
    let (path, message) = refusal(&with("\"content\": 1152", "\"content\": 1.5"));
    assert_eq!(path, "layers[0].parts[0].content");
    assert!(message.contains("floating point `1.5`, expected u64"), "{message}");

    let (path, message) = refusal(&with("\"num_blocks\": 16", "\"num_blocks\": 18446744073709551616"));
    assert_eq!(path, "groups[0].num_blocks");
    assert!(message.contains("expected u64"), "{message}");

    let (path, message) = refusal(&with("\"total\": 8", "\"total\": -8"));
    assert_eq!(path, "layers[2].parts[0].sharding.total");
    assert!(message.contains("integer `-8`, expected u64"), "{message}");

    let (path, message) = refusal(&with("\"sharding\": \"replicated\"", "\"sharding\": \"split\""));
    assert_eq!(path, "layers[0].parts[0].sharding");
    assert!(message.contains("string \"split\", expected \"replicated\", {\"total\": units}"), "{message}");

    let (path, message) = refusal(&with("\"format\": \"bf16\"", "\"tokens_per_state\": [1]"));
    assert_eq!(path, "layers[0].parts[0].tokens_per_state");
    assert!(message.contains("expected a whole number of tokens"), "{message}");

    let (path, message) = refusal(&with("\"vram\": 0", "\"vram\": \"0\""));
    assert_eq!(path, "storages[0].mem.vram");
    assert!(message.contains("expected u32"), "{message}");

    let (path, message) = refusal(&with("\"kind\": \"mla\"", "\"kind\": \"gla\""));
    assert_eq!(path, "layers[0].kind");
    assert!(message.contains("unknown variant `gla`, expected one of `attention`"), "{message}");
}

#[test]
fn unknown_missing_and_repeated_fields_are_refused() {
    let (path, message) = refusal(&with("\"pool\": 0", "\"pol\": 0"));
    assert_eq!(path, "groups[0].pol");
    assert!(message.contains("unknown field `pol`, expected one of `pool`"), "{message}");

    let (path, message) = refusal(&with("\"pool\": 0,", ""));
    assert_eq!(path, "groups[0]");
    assert!(message.contains("missing field `pool`"), "{message}");

    let (_, message) = refusal(&with("\"pool\": 0,", "\"pool\": 0, \"pool\": 1,"));
    assert!(message.contains("duplicate field `pool`"), "{message}");
}

#[test]
fn text_that_is_no_spec_is_refused_without_a_panic() {
    let nested = "[".repeat(100_000);
    for text in ["", "null", "7", "[]", "\"\u{0}\"", "{", "{\"version\":", nested.as_str()] {
        let (path, message) = refusal(text);
        assert!(!path.is_empty() && !message.is_empty(), "{text:.20}");
    }
    let (path, message) = refusal(&format!("{} x", sound().to_json().unwrap()));
    assert_eq!(path, ".");
    assert!(message.contains("trailing characters"), "{message}");
    let (_, message) = refusal(&with("\"replicated\"", &"[".repeat(100_000)));
    assert!(message.contains("recursion limit") || message.contains("expected"), "{message}");
}

#[test]
fn every_cut_of_a_spec_is_refused_or_read() {
    let text = sound().to_json().unwrap();
    for end in 0..text.len() {
        assert!(CacheSpec::from_json(&text[..end]).is_err(), "read the first {end} bytes");
    }
}

#[test]
fn fields_are_never_taken_by_position() {
    let error = CacheSpec::from_json(r#"[1, {"model": "m"}, {}, [], [], []]"#).unwrap_err();
    assert!(error.to_string().starts_with(".: invalid type: sequence, expected an object"), "{error}");
    let error = CacheSpec::from_json("{\"version\": 1").unwrap_err();
    assert!(error.to_string().starts_with(".: EOF"), "{error}");
}
