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
