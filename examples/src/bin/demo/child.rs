//! A worker's process, as the demo sees it: never waited for without end, and gone when this is dropped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use crate::args::Role;
use crate::error::Error;
use crate::protocol::{Answer, Command, Moved, Opened, receive, send};

/// For one answer. Long, since machines can be busy; a process that has ended is noticed at once.
const PATIENCE: Duration = Duration::from_secs(60);
const GOODBYE: Duration = Duration::from_secs(5);

/// A worker's process.
#[derive(Debug)]
pub(crate) struct Worker {
    role: Role,
    child: Child,
    channel: UnixStream,
}

impl Worker {
    /// Starts this program again, as a worker.
    ///
    /// Both directions of the channel are the worker's standard input. Its standard output goes to standard error, so
    /// that nothing that a library prints ends up in an answer or in the demo's document.
    pub(crate) fn start(role: Role) -> Result<Self, Error> {
        let start = || -> io::Result<Self> {
            let (channel, other) = UnixStream::pair()?;
            channel.set_read_timeout(Some(PATIENCE))?;
            channel.set_write_timeout(Some(PATIENCE))?;
            let mut process = Process::new(std::env::current_exe()?);
            process.args(["--worker", role.name()]);
            if std::env::var_os("UCX_NET_DEVICES").is_none() {
                process.env("UCX_NET_DEVICES", "lo");
            }
            let stderr = io::stderr().as_fd().try_clone_to_owned()?;
            let child = process.stdin(Stdio::from(OwnedFd::from(other))).stdout(Stdio::from(stderr)).spawn()?;
            Ok(Self { role, child, channel })
        };
        start().map_err(|source| Error::Start { role: role.name(), source })
    }

    /// Prefill or decode.
    pub(crate) fn name(&self) -> &'static str {
        self.role.name()
    }

    /// Asks for something that is answered with [`Answer::Done`].
    pub(crate) fn tell(&mut self, command: &Command) -> Result<(), Error> {
        match self.ask(command)? {
            Answer::Done => Ok(()),
            _ => Err(self.unexpected(command)),
        }
    }

    /// Lays out and registers caches.
    pub(crate) fn open(&mut self, command: &Command) -> Result<Opened, Error> {
        match self.ask(command)? {
            Answer::Opened(opened) => Ok(opened),
            _ => Err(self.unexpected(command)),
        }
    }

    /// Moves blocks.
    pub(crate) fn transfer(&mut self, command: &Command) -> Result<Moved, Error> {
        match self.ask(command)? {
            Answer::Moved(moved) => Ok(moved),
            _ => Err(self.unexpected(command)),
        }
    }

    /// Any command and its answer.
    pub(crate) fn ask(&mut self, command: &Command) -> Result<Answer, Error> {
        let (role, asked) = (self.role.name(), command.verb());
        let answer = send(&mut self.channel, command).and_then(|()| receive(&mut self.channel));
        match answer {
            Ok(Some(Answer::Failed(message))) => Err(Error::Worker { role, asked, message }),
            Ok(Some(answer)) => Ok(answer),
            Err(Error::Io(error)) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Err(Error::Silent { role, asked, patience: PATIENCE })
            }
            Ok(None) | Err(Error::Io(_)) => {
                let status = self.wait(GOODBYE).unwrap_or_else(|| "it closed its channel".to_owned());
                Err(Error::Ended { role, asked, status })
            }
            Err(error) => Err(error),
        }
    }

    /// Ends the process and says how much memory it had at most, in KiB.
    pub(crate) fn quit(mut self) -> Result<u64, Error> {
        let answer = self.ask(&Command::Quit)?;
        self.wait(GOODBYE);
        match answer {
            Answer::Ended { peak_kib } => Ok(peak_kib),
            _ => Err(self.unexpected(&Command::Quit)),
        }
    }

    fn unexpected(&self, command: &Command) -> Error {
        Error::Unexpected { role: self.role.name(), asked: command.verb() }
    }

    /// How the process ended, if it does in time.
    fn wait(&mut self, patience: Duration) -> Option<String> {
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status.to_string()),
                Ok(None) if start.elapsed() < patience => std::thread::sleep(Duration::from_millis(5)),
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both do nothing for a process that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
