//! A peer in a process of its own: the test program again, told what to do over its standard input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use super::{PATIENCE, Via, Worker};

const ROLE: &str = "KVNIXL_TEST_PEER";
/// Before each answer, since the test harness prints too.
const MARK: &str = "@@";

/// A peer named `prefill`, killed when dropped.
#[derive(Debug)]
pub struct PeerProcess {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
    pub blob: Vec<u8>,
}

impl PeerProcess {
    /// Starts a peer with `len` bytes of the pattern of `seed`.
    pub fn spawn(via: Via, len: usize, seed: u64) -> Self {
        Self::spawn_under(&[], via, len, seed)
    }

    /// The same, started by another command.
    pub fn spawn_under(wrapper: &[&str], via: Via, len: usize, seed: u64) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut command = match wrapper {
            [] => Command::new(program),
            [wrapper, args @ ..] => {
                let mut command = Command::new(wrapper);
                command.args(args).arg(program);
                command
            }
        };
        let mut child = command
            .args(["--exact", "peer_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env("UCX_LOG_FILE", "stderr")
            .env(ROLE, format!("{} {len} {seed}", u8::from(via == Via::Tcp)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The harness may have printed on the same line.
                if let Some((_, answer)) = line.split_once(MARK) {
                    let _ = send.send(answer.to_owned());
                }
            }
        });
        let mut peer = Self { child, input, answers, blob: Vec::new() };
        peer.blob = bytes(&peer.answer());
        peer
    }

    /// Sends a command and waits for its answer.
    pub fn ask(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        self.answers.recv_timeout(PATIENCE).expect("the peer process answers")
    }

    /// Connects the peer to a blob.
    pub fn connect(&mut self, blob: &[u8]) {
        assert_eq!(self.ask(&format!("connect {}", hex(blob))), "ok");
    }

    /// Whether the peer's bytes at `offset` are the pattern of `seed` at `from`.
    pub fn holds(&mut self, offset: usize, len: usize, seed: u64, from: usize) -> bool {
        self.ask(&format!("holds {offset} {len} {seed} {from}")) == "true"
    }

    /// Sends a notification from the peer to whom it connected.
    pub fn notify(&mut self, message: &[u8]) {
        assert_eq!(self.ask(&format!("notify {}", hex(message))), "ok");
    }

    /// The peer sends everything back that it gets for so long; [`PeerProcess::echoed`] waits until it has stopped.
    pub fn echo(&mut self, millis: u64) {
        writeln!(self.input, "echo {millis}").unwrap();
    }

    /// The peer has stopped echoing.
    pub fn echoed(&mut self) {
        assert_eq!(self.answers.recv_timeout(PATIENCE * 3).expect("the peer process answers"), "ok");
    }

    /// The next notification that the peer gets.
    pub fn next_notification(&mut self) -> (String, Option<u64>, Vec<u8>) {
        let answer = self.ask("next");
        let [sender, incarnation, message] = answer.split(' ').collect::<Vec<_>>()[..] else {
            panic!("no notification: {answer}");
        };
        (sender.to_owned(), incarnation.parse().ok(), bytes(message))
    }

    /// Unmaps pages of the peer's memory, which stays registered.
    pub fn unmap(&mut self, offset: usize, len: usize) {
        assert_eq!(self.ask(&format!("unmap {offset} {len}")), "ok");
    }

    /// Deregisters the peer's memory, which stays mapped.
    pub fn deregister(&mut self) {
        assert_eq!(self.ask("deregister"), "ok");
    }

    /// Stops every thread of the peer.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: the status is written to a live integer. This returns when the last thread has stopped.
        let waited = unsafe { libc::waitpid(self.pid(), &raw mut status, libc::WUNTRACED) };
        assert!(waited == self.pid() && libc::WIFSTOPPED(status));
    }

    /// Lets a stopped peer go on.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the child has not been reaped, so the id is its own.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    fn pid(&self) -> libc::pid_t {
        libc::pid_t::try_from(self.child.id()).unwrap()
    }

    /// Kills the peer and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// NIXL's own words inside a blob.
pub fn nixl_metadata(blob: &[u8]) -> &[u8] {
    let at = blob.windows(5).rposition(|window| window == b"\xa4nixl").unwrap() + 5;
    match blob[at..] {
        [0xc4, len, ref rest @ ..] => &rest[..usize::from(len)],
        [0xc5, high, low, ref rest @ ..] => &rest[..usize::from(u16::from_be_bytes([high, low]))],
        _ => panic!("no bytes follow: {:#x}", blob[at]),
    }
}

/// Whether this process is to be a peer.
pub fn is_peer() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// The worker that this process is to be.
pub fn worker() -> Worker {
    let role = std::env::var(ROLE).expect("run by another test");
    let [tcp, len, seed] = role.split(' ').map(|word| word.parse::<u64>().unwrap()).collect::<Vec<_>>()[..] else {
        panic!("{ROLE}: {role}");
    };
    let via = if tcp == 1 { Via::Tcp } else { Via::Default };
    Worker::nixl("prefill", via, usize::try_from(len).unwrap(), seed)
}

/// The peer's side; ends when its standard input does.
pub fn serve() {
    let worker = worker();
    say(&hex(&worker.agent.export().unwrap()));
    let mut peer = None;
    let mut arrived = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["connect", blob] => {
                peer = Some(worker.agent.connect(&bytes(blob)).unwrap());
                say("ok");
            }
            ["holds", ..] => {
                let [offset, len, seed, from] =
                    words[1..].iter().map(|word| word.parse::<usize>().unwrap()).collect::<Vec<_>>()[..]
                else {
                    panic!("{line}");
                };
                let expected = super::pattern(seed as u64, from, len);
                say(&(worker.memory.read(offset, len) == expected).to_string());
            }
            ["unmap", offset, len] => {
                worker.memory.unmap(offset.parse().unwrap(), len.parse().unwrap());
                say("ok");
            }
            ["deregister"] => {
                worker.agent.deregister().unwrap();
                say("ok");
            }
            ["notify", message] => {
                worker.agent.notify(peer.as_ref().unwrap(), &bytes(message)).unwrap();
                say("ok");
            }
            ["echo", millis] => {
                let (start, peer) = (Instant::now(), peer.as_ref().unwrap());
                while start.elapsed().as_millis() < millis.parse().unwrap() {
                    for arrived in worker.agent.notifications().unwrap() {
                        worker.agent.notify(peer, &arrived.message).unwrap();
                    }
                    std::thread::sleep(std::time::Duration::from_micros(20));
                }
                say("ok");
            }
            ["next"] => {
                let start = Instant::now();
                while arrived.is_empty() && start.elapsed() < PATIENCE / 2 {
                    arrived.extend(worker.agent.notifications().unwrap());
                }
                if arrived.is_empty() {
                    say("none");
                } else {
                    let next = arrived.remove(0);
                    let incarnation = next.incarnation.map(|number| number.to_string()).unwrap_or_default();
                    say(&format!("{} {incarnation} {}", next.sender, hex(&next.message)));
                }
            }
            _ => panic!("{line}"),
        }
    }
}

/// Answers a command, or says that the peer is there.
pub fn say(answer: &str) {
    println!("{MARK}{answer}");
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}
