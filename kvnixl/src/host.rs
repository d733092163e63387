//! Where a process runs, as it tells its peers: so that a slow path on one host is noticed, and a peer's death is
//! known for certain.
//!
//! Between processes of one host the kernel copies, if both belong to one user and share their PID and IPC
//! namespaces; else UCX silently takes TCP, several times slower. And only a process that is seen to be gone can
//! write nothing more: see `docs/settling.md`.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

/// What of a process others on its host can compare with theirs. Not authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Host {
    /// The kernel's boot id: the same for all containers of a host, another after each boot.
    boot: String,
    uid: u32,
    pid: u32,
    /// When the process started, in clock ticks since boot: with `pid` it names one process.
    start: u64,
    pid_ns: u64,
    ipc_ns: u64,
    uts_ns: u64,
}

impl Host {
    /// This process. `None` where `/proc` does not say.
    pub(crate) fn of_this_process() -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        // SAFETY: no preconditions, never fails.
        let uid = unsafe { libc::geteuid() };
        let pid = std::process::id();
        let namespace = |kind: &str| {
            let link = fs::read_link(format!("/proc/self/ns/{kind}")).ok()?;
            link.to_str()?.strip_suffix(']')?.rsplit_once('[')?.1.parse().ok()
        };
        Some(Self {
            boot,
            uid,
            pid,
            start: start_time(pid)?,
            pid_ns: namespace("pid")?,
            ipc_ns: namespace("ipc")?,
            uts_ns: namespace("uts")?,
        })
    }

    /// How a peer's place looks from this one.
    pub(crate) fn locality(ours: Option<&Self>, theirs: Option<&Self>) -> Locality {
        let (Some(ours), Some(theirs)) = (ours, theirs) else { return Locality::Unknown };
        if ours.boot != theirs.boot {
            return Locality::OtherHost;
        }
        let mut barriers = Vec::new();
        for (apart, barrier) in [
            (ours.uid != theirs.uid, Barrier::User),
            (ours.pid_ns != theirs.pid_ns, Barrier::PidNamespace),
            (ours.ipc_ns != theirs.ipc_ns, Barrier::IpcNamespace),
            (ours.uts_ns != theirs.uts_ns, Barrier::UtsNamespace),
        ] {
            if apart {
                barriers.push(barrier);
            }
        }
        if barriers.is_empty() { Locality::SameHost } else { Locality::SameHostApart(barriers) }
    }
}

/// When a process started; field 22 of its `stat`, behind a name that may hold anything.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Where a peer is, seen from an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Locality {
    /// The same host, with nothing in between: the kernel copies.
    SameHost,
    /// The same host, and something keeps the kernel from copying: expect TCP, several times slower.
    SameHostApart(Vec<Barrier>),
    /// Another host.
    OtherHost,
    /// One of the two did not say.
    Unknown,
}

/// What two processes of one host do not share, so that UCX takes TCP between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Barrier {
    /// They belong to different users.
    User,
    /// They have different PID namespaces, as containers do.
    PidNamespace,
    /// They have different IPC namespaces, as containers do.
    IpcNamespace,
    /// They have different UTS namespaces (host names), as containers do.
    UtsNamespace,
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "different users (run both as one)",
            Self::PidNamespace => "different PID namespaces (share them, for example --pid=host)",
            Self::IpcNamespace => "different IPC namespaces (share them, for example --ipc=host)",
            Self::UtsNamespace => "different UTS namespaces (share them, for example --uts=host)",
        })
    }
}

/// Watches a peer's process, if it can be seen from here.
#[derive(Debug)]
pub(crate) struct Watch {
    process: Option<OwnedFd>,
    gone: AtomicBool,
}

impl Watch {
    /// Finds the process that `theirs` names. Without one nothing is ever known of it.
    pub(crate) fn new(ours: Option<&Host>, theirs: Option<&Host>) -> Self {
        let unknown = Self { process: None, gone: AtomicBool::new(false) };
        let (Some(ours), Some(theirs)) = (ours, theirs) else { return unknown };
        // Elsewhere the number means another process.
        if ours.boot != theirs.boot || ours.pid_ns != theirs.pid_ns {
            return unknown;
        }
        match open_process(theirs.pid) {
            // Opened before the comparison: the descriptor stays with its process, whoever gets the number later.
            Ok(process) => match start_time(theirs.pid) {
                Some(start) if start == theirs.start => Self { process: Some(process), ..unknown },
                // The number belongs to somebody else, so its process is gone.
                Some(_) => Self { process: None, gone: AtomicBool::new(true) },
                None => unknown,
            },
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                Self { process: None, gone: AtomicBool::new(true) }
            }
            Err(_) => unknown,
        }
    }

    /// Takes somebody's word that the process is gone.
    pub(crate) fn declare_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether it is certain that the process is gone, all its threads with it.
    pub(crate) fn is_gone(&self) -> bool {
        if self.gone.load(Ordering::Acquire) {
            return true;
        }
        let Some(process) = &self.process else { return false };
        let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live entry, no waiting.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
        let gone = ready == 1 && poll.revents & libc::POLLIN != 0;
        if gone {
            self.gone.store(true, Ordering::Release);
        }
        gone
    }
}

fn open_process(pid: u32) -> io::Result<OwnedFd> {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return Err(io::Error::from_raw_os_error(libc::ESRCH)) };
    // SAFETY: takes two integers; the kernel refuses what is not a process.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(fd) {
        // SAFETY: just made, owned by nobody else.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn here() -> Host {
        Host::of_this_process().unwrap()
    }

    #[test]
    fn what_keeps_two_processes_of_a_host_apart_is_named() {
        let ours = here();
        let seen = |change: fn(&mut Host)| {
            let mut theirs = ours.clone();
            change(&mut theirs);
            Host::locality(Some(&ours), Some(&theirs))
        };
        assert_eq!(seen(|_| {}), Locality::SameHost);
        assert_eq!(seen(|host| host.uid += 1), Locality::SameHostApart(vec![Barrier::User]));
        assert_eq!(
            seen(|host| (host.pid_ns, host.ipc_ns, host.uts_ns) = (1, 1, 1)),
            Locality::SameHostApart(vec![Barrier::PidNamespace, Barrier::IpcNamespace, Barrier::UtsNamespace])
        );
        assert_eq!(seen(|host| host.boot = "other".into()), Locality::OtherHost);
        assert_eq!(Host::locality(Some(&ours), None), Locality::Unknown);
    }

    #[test]
    fn a_process_is_gone_once_it_has_ended_and_not_before() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let ours = here();
        let theirs = Host { pid: child.id(), start: start_time(child.id()).unwrap(), ..ours.clone() };
        let watch = Watch::new(Some(&ours), Some(&theirs));
        assert!(!watch.is_gone());
        child.kill().unwrap();
        // A process that nobody has waited for is gone too: its memory is.
        let start = std::time::Instant::now();
        while !watch.is_gone() {
            assert!(start.elapsed().as_secs() < 20);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(watch.is_gone());
        assert!(Watch::new(Some(&ours), Some(&theirs)).is_gone(), "it was gone before we looked");
    }

    #[test]
    fn nothing_is_known_of_processes_elsewhere_or_of_none() {
        let ours = here();
        let dead = Host { pid: 999_999_999, ..ours.clone() };
        assert!(Watch::new(Some(&ours), Some(&dead)).is_gone());
        for theirs in [Host { boot: "other".into(), ..dead.clone() }, Host { pid_ns: 1, ..dead.clone() }] {
            assert!(!Watch::new(Some(&ours), Some(&theirs)).is_gone());
        }
        assert!(!Watch::new(Some(&ours), None).is_gone());
        assert!(!Watch::new(Some(&ours), Some(&ours)).is_gone());
        // Our number with another start: whoever had it is gone.
        assert!(Watch::new(Some(&ours), Some(&Host { start: ours.start + 1, ..ours.clone() })).is_gone());
    }
}
