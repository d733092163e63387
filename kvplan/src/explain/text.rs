//! An explanation as text for people.

use std::fmt;

use super::{Explanation, LaneExplanation, Why};
use crate::request::Op;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            Op::Read => "read (the peer to this worker)",
            Op::Write => "write (this worker to the peer)",
        };
        let plural = if self.lanes.len() == 1 { "" } else { "s" };
        writeln!(f, "{op}, {} lane{plural}", self.lanes.len())?;
        self.lanes.iter().try_for_each(|lane| lane.fmt(f))
    }
}

impl fmt::Display for LaneExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key;
        writeln!(
            f,
            "lane: group {} ({}) here, group {} ({}) at the peer",
            key.local_group, key.local_mem, key.remote_group, key.remote_mem
        )?;
        for cut in &self.cuts {
            write!(f, "  ")?;
            if self.cuts.len() > 1 {
                let (l, r, n) = (cut.local_token, cut.remote_token, cut.tokens);
                write!(f, "tokens {l}..{} here, {r}..{} at the peer: ", l + n, r + n)?;
            }
            let plural = if cut.descriptors == 1 { "" } else { "s" };
            write!(f, "{} descriptor{plural} a block, {} bytes", cut.descriptors, cut.bytes)?;
            match (cut.shortest, cut.longest) {
                (short, long) if short != long => write!(f, " in pieces of {short} to {long}")?,
                (_, long) if cut.descriptors > 1 => write!(f, " in pieces of {long}")?,
                _ => {}
            }
            if cut.padding_bytes > 0 {
                write!(f, ", {} of them padding", cut.padding_bytes)?;
            }
            writeln!(f)?;
        }
        for alike in self.breaks.chunk_by(|a, b| a.why == b.why) {
            write!(f, "  breaks at layer {}, part {}", alike[0].layer, alike[0].part)?;
            if alike.len() > 1 {
                write!(f, " and {} more", alike.len() - 1)?;
            }
            writeln!(f, ": {}", alike[0].why)?;
        }
        if self.num_breaks_omitted > 0 {
            writeln!(f, "  and {} more breaks", self.num_breaks_omitted)?;
        }
        Ok(())
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::OtherStorage { side } => {
                write!(f, "at {side} it lies in another storage; allocate the row's layers together there")
            }
            Why::BlockPieces { tokens, local, remote } => write!(
                f,
                "blocks meet in pieces of {tokens} tokens (a block holds {local} here and {remote} at the peer); use the \
                 same block size and context-parallel interleave on both sides"
            ),
            Why::UnitSlice { local, remote } => write!(
                f,
                "this rank holds {local} of its units and the peer {remote}, so only a slice travels; with equal tensor \
                 parallelism it would travel with its neighbours"
            ),
            Why::TokenSlices { run } => write!(
                f,
                "a slice of its units is {run} bytes for each token; use a head-major layout (H before N) on both \
                 sides, or equal sharding"
            ),
            Why::Padding { gap } => {
                write!(f, "{gap} bytes of padding lie before it; a max_gap of {gap} or more bridges them")
            }
            Why::Live { gap, layer: Some(layer) } => write!(
                f,
                "{gap} bytes before it do not travel and belong to layer {layer} at the destination; transfer that \
                 layer as well, or place it at the end of the row"
            ),
            Why::Live { gap, layer: None } => {
                write!(f, "{gap} bytes before it may be owned by another block or pool at the destination")
            }
            Why::Apart { local, remote } => write!(
                f,
                "it follows {local} bytes after its predecessor here and {remote} at the peer; use the same \
                 block-outermost layout and order of layers on both sides"
            ),
        }
    }
}
