//! What NIXL guarantees after an error, a release or a lost agent: may bytes still land, here or at the peer?
//! `kvnixl/docs/settling.md` keeps the answers and what the library makes of them.
//!
//! Raw `nixl-sys`, two processes, memory that both map, so that the bytes at a peer can be watched after its
//! death. Every destination byte is 0xee, every source byte 0x11; after the event the source becomes 0x77, so that
//! late reads of it show too. `cargo bench -p kvnixl --bench settling [part of a case's name]`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use common::Via;
use common::bare::Bare;
use nixl_sys::{NixlError, XferOp, XferRequest, XferStatus};

const ROLE: &str = "KVNIXL_SETTLING_PEER";
/// Set for the process that runs one case: what one does to its connections must not meet the next.
const CASE: &str = "KVNIXL_SETTLING_CASE";
const MIB: usize = 1 << 20;
const PIECE: usize = MIB;
/// How long memory is watched after the event.
const WATCH: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// The peer is killed once the first bytes have landed.
    KillMid,
    /// The peer is stopped, the request posted, the peer killed.
    KillStopped,
    /// The peer unmaps the middle of its memory before the post (CMA only: over TCP that kills the peer).
    Unmap,
    /// The same with the end of its memory, which the last descriptor names.
    UnmapEnd,
    /// The connection is shut down under NIXL once the first bytes have landed; the peer lives.
    CutMid,
    /// Posted at a stopped peer, the connection shut down under NIXL, then the peer goes on.
    CutStopped,
    /// The request is released once the first bytes have landed.
    ReleaseMid,
    /// Posted at a stopped peer and released, then the peer goes on.
    ReleaseStopped,
    /// The peer's metadata is invalidated once the first bytes have landed.
    InvalidateMid,
    /// Posted at a stopped peer, metadata invalidated, then the peer goes on.
    InvalidateStopped,
    /// As before, and the request is released too.
    InvalidateReleaseStopped,
    /// Posted at a stopped peer that then goes on: the control.
    Resume,
}

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return serve(&role);
    }
    // SAFETY: before NIXL is loaded; nothing else reads the environment meanwhile.
    unsafe {
        std::env::set_var("UCX_NET_DEVICES", "lo");
        // The answers are in the table.
        std::env::set_var("NIXL_LOG_LEVEL", "FATAL");
    }
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let only = std::env::var(CASE).ok();
    if only.is_none() {
        heading();
    }
    use Event::{
        CutMid, CutStopped, InvalidateMid, InvalidateReleaseStopped, InvalidateStopped, KillMid, KillStopped,
        ReleaseMid, ReleaseStopped, Resume, Unmap, UnmapEnd,
    };
    let cma: &[Event] = &[KillMid, Unmap, UnmapEnd, KillStopped, ReleaseStopped];
    let tcp: &[Event] = &[
        Resume,
        KillMid,
        KillStopped,
        CutMid,
        CutStopped,
        ReleaseMid,
        ReleaseStopped,
        InvalidateMid,
        InvalidateStopped,
        InvalidateReleaseStopped,
    ];
    for (tcp, events) in [(false, cma), (true, tcp)] {
        for &event in events {
            for op in [XferOp::Read, XferOp::Write] {
                let name = format!("{} {op:?} {event:?}", if tcp { "TCP" } else { "CMA" });
                match &only {
                    Some(only) if *only == name => case(&name, tcp, event, op),
                    None if name.contains(&wanted) => {
                        let mut child =
                            Command::new(std::env::current_exe().unwrap()).env(CASE, &name).spawn().unwrap();
                        assert!(child.wait().unwrap().success(), "{name}");
                    }
                    _ => {}
                }
            }
        }
    }
}

fn heading() {
    println!("landed: pages of 4 KiB out of all, at the event's end and {WATCH:?} later; late: pages with bytes that");
    println!("the source got after the event's end\n");
    println!(
        "{:<34}{:>8}{:>9}{:>9}{:>7}{:>12}  answer, then a second poll",
        "case", "all", "landed", "later", "late", "last change"
    );
}

fn case(name: &str, tcp: bool, event: Event, op: XferOp) {
    let len = if tcp { 64 * MIB } else { 512 * MIB };
    let read = matches!(op, XferOp::Read);
    let (ours, theirs) = (Memory::new(len), Memory::new(len));
    let (source, destination) = if read { (&theirs, &ours) } else { (&ours, &theirs) };
    source.fill(0x11);
    destination.fill(0xee);
    let mut peer = Peer::spawn(tcp, &theirs);
    let node = Node::new("initiator", tcp, &ours);
    let remote = node.bare.agent.load_remote_md(&peer.metadata).unwrap();
    // Connects the two; rewrites one byte with what it has.
    let warm = node.request(op, &remote, peer.base, len, 1).unwrap();
    if read {
        theirs.fill_at(0, 1, 0xee)
    } else {
        ours.fill_at(0, 1, 0xee)
    }
    assert_eq!(node.finish(&warm, &node.bare.post(&warm)), "success", "{name}: warm-up");
    source.fill_at(0, 1, 0x11);
    drop(warm);

    match event {
        Event::Unmap => peer.ask(&format!("unmap {}", len / 2)),
        Event::UnmapEnd => peer.ask(&format!("unmap {}", len - 4 * MIB)),
        _ => {}
    }
    let stopped = matches!(event, Event::KillStopped | Event::ReleaseStopped | Event::InvalidateStopped)
        || matches!(event, Event::InvalidateReleaseStopped | Event::CutStopped | Event::Resume);
    if stopped {
        peer.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(50));
    }
    let request = node.request(op, &remote, peer.base, len, PIECE).unwrap();
    let mut request = Some(request);
    let first = || {
        let start = Instant::now();
        while !destination.any_landed() && start.elapsed() < PATIENCE {
            std::hint::spin_loop();
        }
    };
    // The event may have to happen inside the post.
    let posted = std::thread::scope(|scope| {
        if event == Event::KillMid {
            scope.spawn(|| {
                first();
                peer.signal(libc::SIGKILL);
            });
        }
        node.bare.post(request.as_ref().unwrap())
    });
    let mut answer = format!("post {}", shown(&posted));
    let in_progress = matches!(posted, Ok(true));
    match event {
        Event::KillStopped => peer.signal(libc::SIGKILL),
        Event::CutStopped => cut(),
        Event::ReleaseMid | Event::InvalidateMid | Event::CutMid if in_progress => {
            while !destination.any_landed() {
                let _ = node.bare.agent.get_xfer_status(request.as_ref().unwrap());
            }
        }
        _ => {}
    }
    if event == Event::CutMid {
        cut();
    }
    match event {
        Event::KillMid | Event::KillStopped | Event::CutMid | Event::CutStopped | Event::Unmap | Event::UnmapEnd => {
            answer += &format!(", {}", node.finish(request.as_ref().unwrap(), &posted));
        }
        Event::ReleaseMid | Event::ReleaseStopped => {
            answer += ", released";
            request = None;
        }
        Event::InvalidateMid | Event::InvalidateStopped | Event::InvalidateReleaseStopped => {
            answer += &format!(", invalidate {:?}", node.bare.agent.invalidate_remote_md(&remote));
            if event == Event::InvalidateReleaseStopped {
                request = None;
            }
        }
        Event::Resume => {}
    }
    let landed = destination.landed();
    source.fill_quick(0x77);
    let end = Instant::now();
    if stopped && event != Event::KillStopped {
        peer.signal(libc::SIGCONT);
    }
    let (mut later, mut last) = (landed, None);
    let mut second = String::new();
    while end.elapsed() < WATCH {
        if let Some(request) = &request {
            second = shown_status(node.bare.agent.get_xfer_status(request));
        }
        std::thread::sleep(Duration::from_millis(5));
        let now = destination.landed();
        if now != later {
            (later, last) = (now, Some(end.elapsed()));
        }
    }
    let late = destination.count(|byte| byte == 0x77);
    let last = last.map_or("-".to_owned(), |at| format!("{:.0} ms", at.as_secs_f64() * 1e3));
    println!("{name:<34}{:>8}{landed:>9}{later:>9}{late:>7}{last:>12}  {answer}; {second}", len / 4096);
    drop(peer);
    drop(request);
}

/// Shuts down every TCP connection of this process, as a network that fails would.
fn cut() {
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let Ok(fd) = entry.unwrap().file_name().to_str().unwrap().parse::<i32>() else { continue };
        // SAFETY: all zero is a valid value.
        let mut peer: libc::sockaddr = unsafe { std::mem::zeroed() };
        let mut len = libc::socklen_t::try_from(size_of::<libc::sockaddr>()).unwrap();
        // SAFETY: the address and its length are live; what is no connected socket refuses.
        let connected = unsafe { libc::getpeername(fd, &raw mut peer, &raw mut len) } == 0;
        if connected && i32::from(peer.sa_family) == libc::AF_INET {
            // SAFETY: takes integers.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        }
    }
}

fn shown(posted: &Result<bool, NixlError>) -> String {
    match posted {
        Ok(true) => "in progress".to_owned(),
        Ok(false) => "done".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

fn shown_status(status: Result<XferStatus, NixlError>) -> String {
    match status {
        Ok(XferStatus::Success) => "success".to_owned(),
        Ok(XferStatus::InProgress) => "in progress".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

/// Memory of a file without a name, so that another process can map it.
struct Memory {
    file: File,
    base: *mut u8,
    len: usize,
}

// SAFETY: all access goes through volatile reads and raw writes; nothing else is claimed of the bytes.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(len: usize) -> Self {
        // SAFETY: the name is a C string; the descriptor is checked. Inherited: no CLOEXEC.
        let fd = unsafe { libc::memfd_create(c"kvnixl-settling".as_ptr(), 0) };
        assert!(fd >= 0);
        // SAFETY: just made, owned by nobody else.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(len as u64).unwrap();
        Self::map(file, len)
    }

    fn map(file: File, len: usize) -> Self {
        let (prot, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: a new shared mapping of a file of this length.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self { file, base: base.cast(), len }
    }

    fn fill(&self, byte: u8) {
        self.fill_at(0, self.len, byte);
    }

    fn fill_at(&self, at: usize, len: usize, byte: u8) {
        assert!(at + len <= self.len);
        // SAFETY: inside the mapping.
        unsafe { std::ptr::write_bytes(self.base.add(at), byte, len) };
    }

    /// The byte of each page that is looked at.
    fn fill_quick(&self, byte: u8) {
        for page in 0..self.len / 4096 {
            self.fill_at(page * 4096 + 2048, 1, byte);
        }
    }

    fn at(&self, offset: usize) -> u8 {
        assert!(offset < self.len);
        // SAFETY: inside the mapping.
        unsafe { self.base.add(offset).read_volatile() }
    }

    fn any_landed(&self) -> bool {
        (0..self.len / PIECE).any(|piece| self.at(piece * PIECE + 2048) != 0xee)
    }

    fn count(&self, of: impl Fn(u8) -> bool) -> usize {
        (0..self.len / 4096).filter(|page| of(self.at(page * 4096 + 2048))).count()
    }

    fn landed(&self) -> usize {
        self.count(|byte| byte != 0xee)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

struct Node {
    base: usize,
    bare: Bare,
}

impl Node {
    fn new(name: &str, tcp: bool, memory: &Memory) -> Self {
        let base = memory.base.expose_provenance();
        let via = if tcp { Via::Tcp } else { Via::Default };
        Self { base, bare: Bare::new(name, via, base, memory.len) }
    }

    fn request(
        &self,
        op: XferOp,
        peer: &str,
        remote: usize,
        len: usize,
        piece: usize,
    ) -> Result<XferRequest, NixlError> {
        let pieces = (0..if piece == 1 { 1 } else { len }).step_by(piece);
        self.bare.request(op, peer, pieces.map(|at| (self.base + at, remote + at, piece)))
    }

    /// Polls until something else than "in progress" is said.
    fn finish(&self, request: &XferRequest, posted: &Result<bool, NixlError>) -> String {
        let start = Instant::now();
        match posted {
            Ok(false) => return "success".to_owned(),
            Err(error) => return format!("{error:?}"),
            Ok(true) => {}
        }
        loop {
            match self.bare.agent.get_xfer_status(request) {
                Ok(XferStatus::InProgress) if start.elapsed() < PATIENCE / 4 => std::thread::yield_now(),
                status => return shown_status(status),
            }
        }
    }
}

/// The other process; killed when dropped.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
    metadata: Vec<u8>,
    base: usize,
}

impl Peer {
    fn spawn(tcp: bool, memory: &Memory) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, format!("{} {} {}", u8::from(tcp), memory.file.as_raw_fd(), memory.len))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut peer = Self { child, input, output, metadata: Vec::new(), base: 0 };
        let line = peer.line();
        let (base, hex) = line.split_once(' ').unwrap();
        peer.base = base.parse().unwrap();
        peer.metadata = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
        peer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn ask(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
        assert_eq!(self.line(), "ok");
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the child has not been waited for, so the id is its own.
        assert_eq!(unsafe { libc::kill(libc::pid_t::try_from(self.child.id()).unwrap(), signal) }, 0);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process.
fn serve(role: &str) {
    let [tcp, fd, len] = role.split(' ').map(|word| word.parse::<usize>().unwrap()).collect::<Vec<_>>()[..] else {
        panic!("{role}");
    };
    // SAFETY: inherited from the parent for this purpose.
    let file = unsafe { File::from_raw_fd(i32::try_from(fd).unwrap()) };
    let memory = Memory::map(file, len);
    let node = Node::new("target", tcp == 1, &memory);
    let hex: String = node.bare.agent.get_local_md().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{} {hex}", node.base);
    for line in std::io::stdin().lines() {
        if let Some(at) = line.unwrap().strip_prefix("unmap ") {
            let at: usize = at.parse().unwrap();
            assert!(at + 4 * MIB <= len);
            // SAFETY: a part of the mapping; nothing here touches it again.
            unsafe { libc::munmap(memory.base.add(at).cast(), 4 * MIB) };
        }
        println!("ok");
    }
}
