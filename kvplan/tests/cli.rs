//! The `kvplan` command: what it prints, and with which status it exits.
#![cfg(feature = "cli")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn mla(num_layers: u64, block_outermost: bool) -> Value {
    let (page, num_blocks) = (73_728, 8);
    let layers: Vec<Value> = (0..num_layers)
        .map(|i| {
            let (offset, stride) =
                if block_outermost { (i * page, num_layers * page) } else { (i * num_blocks * page, page) };
            json!({"name": format!("layers.{i}"), "group": 0, "kind": "mla", "parts": [{
                "name": "latent", "storage": 0, "offset": offset, "block_stride": stride, "sharding": "replicated",
                "units": {"count": 1, "stride": page}, "tokens": [{"count": 64, "stride": 1152}], "content": 1152}]})
        })
        .collect();
    json!({"version": 1, "fingerprint": {"model": "m"},
        "storages": [{"base": 4096, "len": num_layers * num_blocks * page, "mem": "dram"}],
        "groups": [{"pool": 0, "block_tokens": 64, "num_blocks": num_blocks}], "layers": layers})
}

struct Files(std::path::PathBuf);

impl Files {
    fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("kvplan-cli-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn put(&self, name: &str, content: impl ToString) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn kvplan(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvplan")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn descriptors_prints_exactly_the_documented_form() {
    let files = Files::new("descriptors");
    let spec = files.put("spec.json", mla(3, true));
    let request = files.put(
        "request.json",
        json!({"op": "read", "local": [{"group": 0, "blocks": [5, 6]}], "remote": [{"group": 0, "blocks": [1, 2]}]}),
    );
    let output = kvplan(&["descriptors", &spec, &spec, &request]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = json!({"descriptors": [{"local": [0, 5 * 221_184], "remote": [0, 221_184], "len": 442_368}],
        "zero": [], "padding_bytes": 0});
    assert_eq!(serde_json::from_str::<Value>(&stdout(&output)).unwrap(), expected);
}

#[test]
fn two_ids_of_one_pool_that_share_bytes_are_a_finding() {
    for (name, blocks) in [("strides", ["block 0", "block 1"]), ("shifted", ["block 1", "block 0"])] {
        let path = format!("{}/../kvspec/tests/data/pool_{name}.json", env!("CARGO_MANIFEST_DIR"));
        let output = kvplan(&["check", &path]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let text = stderr(&output);
        let said = |words: &str| text.contains(words);
        assert!(said(&format!("{} of layer", blocks[0])) && said(&format!("{} of layer swa.0", blocks[1])), "{text}");
    }
}

#[test]
fn zero_ranges_of_a_write_are_the_peers() {
    let files = Files::new("zero");
    let (local, mut remote) = (mla(1, true), mla(1, true));
    remote["groups"][0]["block_tokens"] = json!(128);
    remote["layers"][0]["parts"][0]["tokens"][0]["count"] = json!(128);
    remote["layers"][0]["parts"][0]["block_stride"] = json!(147_456);
    remote["groups"][0]["num_blocks"] = json!(4);
    let request =
        json!({"op": "write", "local": [{"group": 0, "blocks": [7]}], "remote": [{"group": 0, "blocks": [2]}]});
    let output = kvplan(&[
        "descriptors",
        &files.put("l.json", local),
        &files.put("r.json", remote),
        &files.put("q.json", request),
    ]);
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(answer["zero"], json!([{"remote": [0, 2 * 147_456 + 73_728], "len": 73_728}]));
}

#[test]
fn the_exit_status_tells_a_refusal_from_bad_input() {
    let files = Files::new("status");
    let spec = files.put("spec.json", mla(2, true));
    let mut other = mla(2, true);
    other["fingerprint"]["model"] = json!("other");
    let other = files.put("other.json", other);
    let mut invalid = mla(2, true);
    invalid["layers"][1]["name"] = json!("layers.0");
    invalid["storages"][0]["len"] = json!(10);
    let invalid = files.put("invalid.json", invalid);
    let mut unknown = mla(2, true);
    unknown["layers"][1]["parts"][0]["colour"] = json!("red");
    let unknown = files.put("unknown.json", unknown);
    let too_far = files.put(
        "request.json",
        json!({"op": "read", "local": [{"group": 0, "blocks": [8]}], "remote": [{"group": 0, "blocks": [1]}]}),
    );

    let refused = kvplan(&["pair", &spec, &other]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("fingerprint field model is \"m\" here and \"other\" at the peer"));
    let request = kvplan(&["descriptors", &spec, &spec, &too_far]);
    assert_eq!(request.status.code(), Some(1));
    assert!(stderr(&request).contains("block 8 of group 0 is out of range, the group has 8 blocks"));

    let findings = kvplan(&["check", &invalid]);
    assert_eq!(findings.status.code(), Some(2));
    let text = stderr(&findings);
    assert!(text.contains("layers.0") && text.contains("10"), "all findings at once: {text}");
    let json_findings: Value = serde_json::from_str(&stdout(&kvplan(&["check", "--json", &invalid]))).unwrap();
    assert_eq!(json_findings["valid"], json!(false));
    assert!(json_findings["findings"].as_array().unwrap().len() >= 2);
    let field = kvplan(&["check", &unknown]);
    assert_eq!(field.status.code(), Some(2));
    assert!(stderr(&field).contains("layers[1].parts[0]"), "{}", stderr(&field));
    assert_eq!(kvplan(&["check", "no/such/file"]).status.code(), Some(2));
    assert_eq!(kvplan(&["pair", &spec]).status.code(), Some(2));
    assert_eq!(kvplan(&["pair", &spec, &spec, "--max-gap", "some"]).status.code(), Some(2));
}

#[test]
fn pair_explains_what_breaks_a_row() {
    let files = Files::new("pair");
    let (rows, pages) = (files.put("rows.json", mla(4, true)), files.put("pages.json", mla(4, false)));
    let text = stdout(&kvplan(&["pair", &pages, &rows]));
    assert!(text.contains("4 descriptors a block") && text.contains("breaks at layer layers.1"), "{text}");
    let json: Value = serde_json::from_str(&stdout(&kvplan(&["pair", "--json", &pages, &rows]))).unwrap();
    assert_eq!(json["schema"], json!(1));
    assert_eq!(json["lanes"][0]["cuts"][0]["descriptors"], json!(4));
    assert_eq!(json["lanes"][0]["breaks"].as_array().unwrap().len(), 3);

    let whole = kvplan(&["pair", "--require-whole-rows", &rows, &rows]);
    assert_eq!(whole.status.code(), Some(0));
    let broken = kvplan(&["pair", "--require-whole-rows", &pages, &rows]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(stderr(&broken).contains("layers.1"), "{}", stderr(&broken));
}

#[test]
fn regions_fold_rows_and_whole_rows_can_be_required() {
    let files = Files::new("regions");
    let (rows, pages) = (files.put("rows.json", mla(4, true)), files.put("pages.json", mla(4, false)));
    let regions =
        |spec: &str| -> Value { serde_json::from_str(&stdout(&kvplan(&["regions", "--json", spec]))).unwrap() };
    assert_eq!(regions(&rows)["memory_ranges"].as_array().unwrap().len(), 1);
    assert_eq!(regions(&rows)["regions"].as_array().unwrap().len(), 1);
    assert_eq!(regions(&rows)["regions"][0]["members"][2]["offset"], json!(2 * 73_728));
    assert_eq!(regions(&pages)["regions"].as_array().unwrap().len(), 4);
    assert_eq!(kvplan(&["regions", "--require-whole-rows", &rows]).status.code(), Some(0));
    let broken = kvplan(&["regions", "--require-whole-rows", &pages]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(stderr(&broken).contains("layer layers.1: part latent"), "{}", stderr(&broken));
}

#[test]
fn a_spec_can_come_from_standard_input() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kvplan"))
        .args(["check", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(mla(1, true).to_string().as_bytes()).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
}

fn json_of(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|error| panic!("{error}: {}", stdout(output)))
}

#[test]
fn draw_shows_layers_by_name_padding_hatched_and_a_legend() {
    let files = Files::new("draw");
    // Rows of two pages with 1,000 bytes behind each that nobody owns.
    let mut padded = mla(2, true);
    let stride = 2 * 74_728;
    padded["storages"][0]["len"] = json!(8 * stride);
    for i in 0..2 {
        padded["layers"][i]["parts"][0]["block_stride"] = json!(stride);
        padded["layers"][i]["parts"][0]["offset"] = json!(i * 74_728);
    }
    let spec = files.put("padded.json", padded);
    let to_file = files.0.join("row.svg");
    let to_file = to_file.to_str().unwrap();
    assert_eq!(kvplan(&["draw", &spec, "-o", to_file]).status.code(), Some(0));
    let svg = std::fs::read_to_string(to_file).unwrap();
    assert_eq!(stdout(&kvplan(&["draw", &spec])), svg, "the same picture on standard output");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains(">padded</text>") || svg.contains("\npadded\n"), "the file's name is the title: {svg}");
    for layer in ["layers.0", "layers.1"] {
        assert!(svg.contains(layer), "{layer} is named: {svg}");
    }
    // Two pieces of padding, and its swatch in the legend.
    assert_eq!(svg.matches("url(#padding)").count(), 3, "{svg}");
    assert!(svg.contains("padding, 2000 bytes in the rows shown"), "{svg}");
    assert!(svg.contains("147456 bytes in the rows shown"), "{svg}");

    let whole = files.put("whole.json", mla(2, true));
    assert!(!stdout(&kvplan(&["draw", &whole])).contains("url(#padding)"), "a row without gaps has no padding");
}

#[test]
fn a_picture_that_cannot_be_written_exits_with_2() {
    let files = Files::new("unwritable");
    let spec = files.put("spec.json", mla(1, true));
    let nowhere = files.0.join("no/such/folder/row.svg");
    let output = kvplan(&["draw", &spec, "-o", nowhere.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("row.svg"), "the file is named: {}", stderr(&output));
    assert_eq!(stdout(&output), "");
}

#[test]
fn refusals_under_json_are_answers_on_standard_output() {
    let files = Files::new("refusals");
    let (rows, pages) = (files.put("rows.json", mla(4, true)), files.put("pages.json", mla(4, false)));
    let mut other = mla(4, true);
    other["fingerprint"]["model"] = json!("other");
    let other = files.put("other.json", other);
    let cases: [(&[&str], &str); 3] = [
        (&["pair", "--json", &rows, &other], "fingerprint field model"),
        (&["topology", "--json", &rows, "--to", &other], "fingerprint field model"),
        (&["regions", "--json", "--require-whole-rows", &pages], "layer layers.1: part latent"),
    ];
    for (args, reason) in cases {
        let output = kvplan(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert_eq!(stderr(&output), "", "{args:?}");
        let answer = json_of(&output);
        assert_eq!(answer["schema"], json!(1), "{args:?}");
        let refusals = answer["refusals"].as_array().unwrap();
        assert!(refusals.len() == 1 && refusals[0].as_str().unwrap().contains(reason), "{args:?}: {answer}");
        // Without --json the same reason is on standard error, and nothing is on standard output.
        let text: Vec<&str> = args.iter().copied().filter(|arg| *arg != "--json").collect();
        let output = kvplan(&text);
        assert_eq!((output.status.code(), stdout(&output)), (Some(1), String::new()), "{args:?}");
        assert!(stderr(&output).contains(reason), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn check_under_json_answers_for_text_that_is_no_spec() {
    let files = Files::new("no-spec");
    let mut misspelt = mla(1, true);
    misspelt["layers"][0]["colour"] = json!("red");
    for (spec, place) in
        [(files.put("cut.json", "{\"version\": 1,"), "cut.json"), (files.put("m.json", misspelt), "layers[0]")]
    {
        let output = kvplan(&["check", "--json", &spec]);
        assert_eq!(output.status.code(), Some(2));
        let answer = json_of(&output);
        assert_eq!((&answer["schema"], &answer["valid"]), (&json!(1), &json!(false)));
        let findings = answer["findings"].as_array().unwrap();
        assert!(findings.len() == 1 && findings[0].as_str().unwrap().contains(place), "{answer}");
    }
}
