//! The golden vectors through the `kvplan` command: the same answers as the library's, which are judged by meaning
//! in the workspace's tests, and the right exit status.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kvplan::{BlockList, Op, Request};
use kvspec::CacheSpec;
use kvtests::cells::Place;
use kvtests::run::{judge_all, plan};
use kvtests::transfer::{Move, Moved, Worker};
use kvtests::vectors::{Stage, Vector, load};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    descriptors: Vec<Copied>,
    zero: Vec<Zeroed>,
    padding_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Copied {
    local: (u32, u64),
    remote: (u32, u64),
    len: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Zeroed {
    local: Option<(u32, u64)>,
    remote: Option<(u32, u64)>,
    len: u64,
}

fn place((storage, offset): (u32, u64)) -> Place {
    Place { storage, offset }
}

impl Answer {
    /// The answer as the library's would be; `None` where a range to zero names the wrong side.
    fn moved(self, op: Op) -> Option<Moved> {
        let copies = self.descriptors.into_iter().map(|copied| {
            let (dst, src) = match op {
                Op::Read => (copied.local, copied.remote),
                Op::Write => (copied.remote, copied.local),
            };
            Move { dst: place(dst), src: place(src), len: copied.len }
        });
        let zero = self.zero.into_iter().map(|zeroed| match (op, zeroed.local, zeroed.remote) {
            (Op::Read, Some(at), None) | (Op::Write, None, Some(at)) => Some((place(at), zeroed.len)),
            _ => None,
        });
        Some(Moved { copies: copies.collect(), zero: zero.collect::<Option<_>>()?, padding_bytes: self.padding_bytes })
    }
}

struct Files(PathBuf);

impl Files {
    fn put(&self, name: &str, value: &impl serde::Serialize) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, serde_json::to_string(value).expect("plain data")).expect("the folder can be written");
        path
    }
}

fn descriptors(local: &Path, remote: &Path, request: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvplan"));
    command.arg("descriptors").args([local, remote, request]).args(["--max-gap", "max"]);
    command.output().expect("the command starts")
}

/// Runs the command for every pair of ranks: `answers[destination][source]`, or the first exit status that is not 0.
fn plan_by_command(vector: &Vector, files: &Files) -> Result<Vec<Vec<Moved>>, i32> {
    let transfer = vector.transfer();
    let put = |workers: &[Worker], side: &str| -> Vec<PathBuf> {
        let name = |rank: usize| format!("{side}{rank}.json");
        let spec = |worker: &Worker| -> CacheSpec { worker.spec.clone() };
        workers.iter().enumerate().map(|(rank, worker)| files.put(&name(rank), &spec(worker))).collect()
    };
    let (sources, destinations) = (put(&transfer.sources, "source"), put(&transfer.destinations, "destination"));
    let mut answers = Vec::new();
    for (destination, to) in destinations.iter().zip(&transfer.destinations) {
        let mut row = Vec::new();
        for (source, from) in sources.iter().zip(&transfer.sources) {
            let lists = |worker: &Worker| -> Vec<BlockList> { worker.lists.clone() };
            let (local, remote, here, there) = match vector.op {
                Op::Read => (destination, source, lists(to), lists(from)),
                Op::Write => (source, destination, lists(from), lists(to)),
            };
            let request =
                files.put("request.json", &Request { op: vector.op, local: here, remote: there, ..Request::default() });
            let output = descriptors(local, remote, &request);
            if !output.status.success() {
                assert!(!output.stderr.is_empty(), "{}: an error without a message", vector.name);
                return Err(output.status.code().unwrap_or(-1));
            }
            let answer: Answer = serde_json::from_slice(&output.stdout).expect("the documented form");
            row.push(answer.moved(vector.op).expect("ranges to zero lie at the destination"));
        }
        answers.push(row);
    }
    Ok(answers)
}

#[test]
fn the_command_answers_every_vector_as_the_library_does() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vectors_by_command");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let files = Files(folder);
    let vectors = load().expect("vectors load");
    assert_eq!(vectors.len(), 454);
    let mut wrong = Vec::new();
    for vector in &vectors {
        let expected = match vector.error_stage {
            None => None,
            Some(Stage::Spec) => Some(2),
            Some(Stage::Pair | Stage::Request) => Some(1),
        };
        match (plan_by_command(vector, &files), expected) {
            (Err(status), Some(expected)) if status == expected => {}
            (Ok(answers), None) => {
                if Ok(&answers) != plan(&vector.transfer()).as_ref() {
                    wrong.push(format!("{}: not what the library answers", vector.name));
                } else if let Err(error) = judge_all(&vector.transfer(), &answers, false) {
                    wrong.push(format!("{}: {error}", vector.name));
                }
            }
            (answer, expected) => {
                wrong.push(format!("{}: exit status {:?}, must be {expected:?}", vector.name, answer.err()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
