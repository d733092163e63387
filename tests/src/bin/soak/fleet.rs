//! The processes of the fleet, and what is done to them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::worker::{MARK, clock};

/// What the fleet consists of. Consumers know all producers.
pub(crate) const WORKERS: [&str; 5] = ["prefill-0", "prefill-1", "decode-0", "decode-1", "decode-2"];
/// Workers that are killed now and then.
pub(crate) const KILLABLE: [&str; 3] = ["prefill-1", "decode-1", "decode-2"];
/// Workers that are never killed: their memory is watched.
pub(crate) const SURVIVORS: [&str; 2] = ["prefill-0", "decode-0"];

/// Whether a worker is a producer.
pub(crate) fn is_producer(name: &str) -> bool {
    name.starts_with("prefill")
}

/// A line of a worker; `start` tells its processes apart.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) start: u32,
    pub(crate) text: String,
}

/// When a worker was not to be relied on, in milliseconds of [`clock`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disturbance {
    pub(crate) name: &'static str,
    pub(crate) from: u64,
    /// Not over yet.
    pub(crate) to: Option<u64>,
}

/// A worker's process; killed when dropped.
pub(crate) struct Process {
    pub(crate) name: &'static str,
    pub(crate) start: u32,
    child: Child,
    input: ChildStdin,
    pub(crate) heard: Instant,
    pub(crate) stopped: bool,
}

impl Process {
    /// Starts a process under this name.
    pub(crate) fn start(name: &'static str, start: u32, tcp: bool, lines: Sender<Line>) -> Self {
        let program = std::env::current_exe().expect("Linux");
        let mut child = Command::new(program)
            .args(["worker", name, if tcp { "tcp" } else { "default" }])
            .envs([("UCX_NET_DEVICES", "lo"), ("UCX_LOG_LEVEL", "fatal"), ("NIXL_LOG_LEVEL", "FATAL")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("processes can be started");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Some((_, text)) = line.split_once(MARK) else { continue };
                let sent = lines.send(Line { name, start, text: text.to_owned() });
                if sent.is_err() {
                    return;
                }
            }
        });
        Self { name, start, child, input, heard: Instant::now(), stopped: false }
    }

    /// Sends a line, if somebody reads it.
    pub(crate) fn tell(&mut self, line: &str) {
        // One that has just died does not.
        let _ = writeln!(self.input, "{line}");
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }

    /// Stops every thread of it.
    pub(crate) fn stop(&mut self) {
        self.signal(libc::SIGSTOP);
        self.stopped = true;
    }

    /// Lets it go on.
    pub(crate) fn go_on(&mut self) {
        self.signal(libc::SIGCONT);
        self.stopped = false;
        self.heard = Instant::now();
    }

    fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a process id");
        // SAFETY: the child has not been reaped, so the id is its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "our own child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Begins a disturbance of a worker.
pub(crate) fn disturb(disturbances: &mut Vec<Disturbance>, name: &'static str) {
    disturbances.push(Disturbance { name, from: clock(), to: None });
}

/// Ends what disturbs a worker; it may still be felt for a while.
pub(crate) fn undisturb(disturbances: &mut [Disturbance], name: &str) {
    for open in disturbances.iter_mut().filter(|open| open.name == name && open.to.is_none()) {
        open.to = Some(clock() + 1000);
    }
}
