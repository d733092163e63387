//! Two prefill ranks and four decode ranks, each a process of its own on real NIXL: pull, then push, of a hybrid model
//! in unequal layouts and block sizes, with every byte of every decode rank checked.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(90);

/// A rank's process; killed when dropped.
struct Rank {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
    blob: String,
}

impl Rank {
    fn spawn(role: &str, rank: usize, size: usize) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kv_worker"))
            .args([role, &rank.to_string(), &size.to_string()])
            .env("UCX_NET_DEVICES", "lo")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (send, answers) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { child, input, answers, blob: String::new() }
    }

    fn tell(&mut self, command: &str, peers: &[Rank]) {
        let blobs: Vec<&str> = peers.iter().map(|peer| peer.blob.as_str()).collect();
        writeln!(self.input, "{command} {}", blobs.join(" ")).unwrap();
    }

    fn answer(&self) -> String {
        self.answers.recv_timeout(PATIENCE).expect("the rank answers in time")
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn deployment(role: &str, size: usize) -> Vec<Rank> {
    let mut ranks: Vec<Rank> = (0..size).map(|rank| Rank::spawn(role, rank, size)).collect();
    for rank in &mut ranks {
        rank.blob = rank.answer();
    }
    ranks
}

#[test]
fn two_prefill_ranks_serve_four_decode_ranks_in_pull_and_in_push() {
    let mut prefill = deployment("prefill", 2);
    let mut decode = deployment("decode", 4);

    for rank in &mut decode {
        rank.tell("pull", &prefill);
    }
    // A decode rank's request: 256 tokens of three latents and two of eight heads, and a quarter of the state.
    for rank in &decode {
        let answer = rank.answer();
        let needed: usize = answer.strip_prefix("ok ").unwrap_or_else(|| panic!("pull: {answer}")).parse().unwrap();
        assert!(needed >= 256 * (3 * 656 + 2 * 256), "only {needed} bytes were needed");
    }

    for rank in &mut prefill {
        rank.tell("push", &decode);
    }
    for rank in &mut decode {
        rank.tell("pushed", &prefill);
    }
    for rank in &prefill {
        assert_eq!(rank.answer(), "ok 2", "each prefill rank serves two decode ranks");
    }
    for rank in &decode {
        let answer = rank.answer();
        assert!(answer.starts_with("ok "), "push: {answer}");
    }
}
