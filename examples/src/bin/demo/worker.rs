//! The worker's side: caches, an agent and a peer, told what to do by the demo.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kvnixl::{Agent, Limits, NixlOptions, Peer, TransferOptions};
use kvplan::{BlockList, Descriptors, LocalPlan, Op, PairOptions, PairPlan, Request};
use kvspec::{BlockId, GroupId, Layout, ValidSpec};

use crate::args::Role;
use crate::error::Error;
use crate::memory::Memory;
use crate::model;
use crate::pattern::{self, Content};
use crate::protocol::{Answer, BlockLists, Command, Moved, Opened, receive, send};

/// For one transfer, or for all of them to settle.
const PATIENCE: Duration = Duration::from_secs(20);

/// Serves the demo until it says quit or goes away.
pub(crate) fn run(role: Role) -> ExitCode {
    let mut worker = Worker { role, memory: None, scratch: None, caches: None };
    match worker.serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo {}: {error}", role.name());
            ExitCode::FAILURE
        }
    }
}

struct Worker {
    role: Role,
    /// The caches: one allocation that every layout uses anew.
    memory: Option<Memory>,
    /// As large as the peer's caches, for comparing with memcpy.
    scratch: Option<Memory>,
    caches: Option<Caches>,
}

/// The caches in one layout.
struct Caches {
    spec: ValidSpec,
    num_blocks: u32,
    agent: Agent,
    peer: Option<Peer>,
}

impl Worker {
    fn serve(&mut self) -> Result<(), Error> {
        let mut channel = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        while let Some(command) = receive::<Command>(&mut channel)? {
            if matches!(command, Command::Quit) {
                self.close()?;
                return send(&mut channel, &Answer::Ended { peak_kib: peak_kib() });
            }
            let answer = self.obey(command).unwrap_or_else(|error| Answer::Failed(with_causes(&error)));
            send(&mut channel, &answer)?;
        }
        Ok(())
    }

    fn obey(&mut self, command: Command) -> Result<Answer, Error> {
        let done = |()| Answer::Done;
        match command {
            Command::Open { layout, num_blocks } => self.open(&layout, num_blocks).map(Answer::Opened),
            Command::Connect { blob, warm_up } => self.connect(&blob, warm_up).map(done),
            Command::Fill { lists } => {
                let listed = if self.role == Role::Prefill { &lists.prefill[..] } else { &[] };
                let (spec, memory, contents) = self.contents("fill", listed)?;
                pattern::fill(spec, memory, &contents).map(done)
            }
            Command::Transfer { op, lists } => self.transfer(op, &lists).map(Answer::Moved),
            Command::Memcpy { lists } => self.memcpy(&lists).map(Answer::Copied),
            Command::Spoil { lists } => self.spoil(&lists).map(done),
            Command::Check { lists } => {
                let (spec, memory, contents) = self.contents("check", self.own(&lists))?;
                pattern::check(spec, memory, &contents).map(Answer::Checked)
            }
            Command::Quit => self.close().map(done),
        }
    }

    /// Ends the agent of the layout before; the memory stays.
    fn close(&mut self) -> Result<(), Error> {
        if let Some(Caches { agent, peer, .. }) = self.caches.take() {
            drop(peer);
            agent.shutdown(PATIENCE)?;
        }
        Ok(())
    }

    fn open(&mut self, layout: &str, num_blocks: u32) -> Result<Opened, Error> {
        self.close()?;
        let layout: Layout = layout.parse().map_err(|error: kvspec::arrange::UnknownLayout| Error::Message {
            len: layout.len(),
            why: error.to_string(),
        })?;
        let arranged = model::arrange(layout, num_blocks)?;
        let len = arranged.storage_lens().iter().sum();
        let memory = match self.memory.take() {
            Some(memory) if memory.len() == len => memory,
            _ => Memory::new(len)?,
        };
        let memory = self.memory.insert(memory);
        let spec = arranged.at(&[memory.base()])?.validate()?;
        let plan = LocalPlan::new(&spec);
        let agent = Agent::nixl(self.role.name(), &NixlOptions::default(), Limits::default())?;
        // SAFETY: the memory is never freed, and is looked at and changed only between transfers.
        unsafe { agent.register(&plan)? };
        let opened = Opened {
            blob: agent.export()?,
            views: spec.layers.len(),
            memory_ranges: plan.memory_ranges().len(),
            regions: plan.regions().len(),
        };
        self.caches = Some(Caches { spec, num_blocks, agent, peer: None });
        Ok(opened)
    }

    fn connect(&mut self, blob: &[u8], warm_up: Option<Op>) -> Result<(), Error> {
        let caches = self.caches.as_mut().ok_or(Error::Order { asked: "connect", missing: "the caches are open" })?;
        caches.peer = Some(caches.agent.connect(blob)?);
        if let Some(op) = warm_up {
            self.transfer(op, &BlockLists { prefill: vec![0], decode: vec![0] })?;
        }
        Ok(())
    }

    fn transfer(&self, op: Op, lists: &BlockLists) -> Result<Moved, Error> {
        let (caches, peer, _) = self.connected("transfer")?;
        let descriptors = self.plan(op, lists)?;
        let started = Instant::now();
        let options = TransferOptions::default().deadline(PATIENCE);
        let transfer = caches.agent.start_answer(peer, &descriptors, options)?;
        transfer.wait(PATIENCE)?;
        let seconds = started.elapsed().as_secs_f64();
        Ok(Moved { descriptors: descriptors.as_slice().len(), bytes: descriptors.num_bytes(), seconds })
    }

    fn memcpy(&mut self, lists: &BlockLists) -> Result<f64, Error> {
        let op = if self.role == Role::Decode { Op::Read } else { Op::Write };
        let descriptors = self.plan(op, lists)?;
        if self.scratch.is_none() {
            let len = self.connected("copy")?.1.layout().storages.iter().map(|storage| storage.len).sum();
            let scratch = Memory::new(len)?;
            // Untouched memory is one page of zeros: touch it.
            (0..len).step_by(4096).for_each(|page| scratch.write(page, &[1]));
            self.scratch = Some(scratch);
        }
        let (_, _, memory) = self.connected("copy")?;
        let scratch = self.scratch.as_ref().ok_or(Error::Order { asked: "copy", missing: "there is memory" })?;
        let started = Instant::now();
        for d in descriptors.as_slice() {
            match op {
                Op::Read => memory.copy_from(d.local_offset, scratch, d.remote_offset, d.len),
                Op::Write => scratch.copy_from(d.remote_offset, memory, d.local_offset, d.len),
            }
        }
        Ok(started.elapsed().as_secs_f64())
    }

    fn spoil(&self, lists: &BlockLists) -> Result<(), Error> {
        let (spec, memory, _) = self.contents("spoil", &[])?;
        let part = &spec.layers[0].parts[0];
        let block = self.own(lists).first().copied().unwrap_or_default();
        let offset = part.offset + u64::from(block) * part.block_stride;
        let mut byte = [0];
        memory.read(offset, &mut byte);
        memory.write(offset, &[byte[0] ^ 1]);
        Ok(())
    }

    fn plan(&self, op: Op, lists: &BlockLists) -> Result<Descriptors, Error> {
        let (caches, peer, _) = self.connected("plan")?;
        let plan = PairPlan::new(&caches.spec, peer.layout(), &PairOptions { op, ..PairOptions::default() })?;
        let list = |blocks: &[u32]| {
            vec![BlockList { group: GroupId(0), first: None, blocks: blocks.iter().copied().map(BlockId).collect() }]
        };
        let others = if self.role == Role::Prefill { &lists.decode } else { &lists.prefill };
        let request = Request { op, local: list(self.own(lists)), remote: list(others), ..Request::default() };
        let mut descriptors = Descriptors::new();
        plan.descriptors(&request, &mut descriptors)?;
        Ok(descriptors)
    }

    fn own<'a>(&self, lists: &'a BlockLists) -> &'a [u32] {
        if self.role == Role::Prefill { &lists.prefill } else { &lists.decode }
    }

    fn connected(&self, asked: &'static str) -> Result<(&Caches, &Peer, &Memory), Error> {
        let missing = "the peer is connected";
        match (&self.caches, &self.memory) {
            (Some(caches), Some(memory)) => {
                let peer = caches.peer.as_ref().ok_or(Error::Order { asked, missing })?;
                Ok((caches, peer, memory))
            }
            _ => Err(Error::Order { asked, missing }),
        }
    }

    /// What each block must hold when the `listed` ones hold the request's sequence.
    fn contents(&self, asked: &'static str, listed: &[u32]) -> Result<(&ValidSpec, &Memory, Vec<Content>), Error> {
        let (Some(caches), Some(memory)) = (&self.caches, &self.memory) else {
            return Err(Error::Order { asked, missing: "the caches are open" });
        };
        Ok((&caches.spec, memory, Content::of_blocks(caches.num_blocks, listed, self.role as u64)))
    }
}

/// An error and what caused it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Some errors have their cause in their own words.
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

/// The most memory that this process has had, from Linux's process file system.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0)
}
