//! The peers that an agent has connected, by name.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use kvspec::ValidSpec;

use super::{Agent, since_1970};
use crate::blob::{self, Blob, Header};
use crate::error::{Error, Result};
use crate::host::{Host, Locality, Watch};
use crate::memory::{RangeTable, Registered};
use crate::notify;
use crate::peer::{Peer, PeerInner};

#[derive(Default)]
pub(super) struct Peers {
    by_name: HashMap<String, Arc<PeerInner>>,
    /// Replaced with transfers that had not settled: the transport knows them until those have.
    retired: Vec<Arc<PeerInner>>,
}

/// A peer that says who it is and is not reachable yet.
pub(super) struct Introduced {
    pub(super) name: String,
    /// 0 if it is not of this library.
    pub(super) incarnation: u64,
    pub(super) generation: u64,
    /// When its process started, as it says.
    pub(super) started: Option<u64>,
    /// Whether what is connected under its name counts.
    pub(super) stands: Stands,
    pub(super) transport_name: String,
    pub(super) metadata: Vec<u8>,
    pub(super) layout: ValidSpec,
    pub(super) ranges: RangeTable,
    pub(super) host: Option<Host>,
}

/// Registrations that a peer has taken away and that the transport still knows. More are forgotten with the peer.
const MAX_GONE: usize = 4096;

/// How the memory of a peer comes to be known.
enum Loaded {
    /// To a transport that knew nothing of it.
    Anew,
    /// Beside this, which the peer has taken away.
    Beside(Vec<Registered>),
}

impl Loaded {
    /// All that the transport knows then.
    fn with(self, ranges: &RangeTable) -> Vec<Registered> {
        let mut loaded: Vec<Registered> = ranges.iter().collect();
        if let Self::Beside(mut gone) = self {
            loaded.append(&mut gone);
        }
        loaded
    }
}

/// Whether what is connected under a peer's name counts: if so, only what is newer takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    Yes,
    /// It cannot be reached: whatever comes in its place is no worse.
    No,
}

impl Peers {
    /// Whether the transport knows somebody by this name for a reason.
    fn has_named(&self, transport_name: &str) -> bool {
        self.by_name.values().chain(&self.retired).any(|peer| peer.transport_name == transport_name)
    }

    /// Whether this is the connection that counts.
    ///
    /// # Errors
    ///
    /// [`Error::PeerGone`] when it was replaced or let go.
    pub(super) fn check(&self, peer: &Peer) -> Result<()> {
        match self.by_name.get(peer.name()) {
            Some(current) if Arc::ptr_eq(current, &peer.inner) => Ok(()),
            _ => Err(Error::PeerGone { peer: peer.name().to_owned() }),
        }
    }
}

impl Agent {
    /// Connects the peer whose blob this is, whoever that is. The same blob again gives the same peer. A later
    /// generation of the same process replaces it, and so does a process that started later, or any other if the one
    /// that is connected is known to have ended. A failed connect changes nothing. Who knows whose blob it should be
    /// says so: [`Agent::connect_named`].
    ///
    /// # Errors
    ///
    /// The `Blob…` errors for bytes that are not a blob of this version; [`Error::FingerprintMismatch`];
    /// [`Error::PeerLayout`] and the range errors for a layout that does not hold together; [`Error::BlobRefused`] when
    /// the same bytes were refused for one of these lately; [`Error::OwnBlob`]; [`Error::StaleBlob`],
    /// [`Error::OlderProcess`]; [`Error::PeerEnded`] for a process that is known to be gone; [`Error::NotRegistered`];
    /// [`Error::InUse`] while transfers with the peer have not settled and it has registered anew what it had: then the
    /// peer stays as it was;
    /// [`Error::Nixl`] and [`Error::PeerNameMismatch`] for NIXL metadata that cannot be used.
    pub fn connect(&self, blob: &[u8]) -> Result<Peer> {
        self.connect_if(blob, |_| Ok(Stands::Yes))
    }

    /// Connects the peer of this name from its blob, as [`Agent::connect`] does. A blob that names another peer, which
    /// may be connected, is refused before it is read any further.
    ///
    /// # Errors
    ///
    /// As [`Agent::connect`], and [`Error::UnexpectedPeer`].
    pub fn connect_named(&self, name: &str, blob: &[u8]) -> Result<Peer> {
        self.connect_if(blob, |header| header.expect(name).map(|()| Stands::Yes))
    }

    /// As [`Agent::connect`], unless `admit` refuses who it is.
    pub(crate) fn connect_if(&self, blob: &[u8], admit: impl FnOnce(&Header) -> Result<Stands>) -> Result<Peer> {
        let fingerprint = self.registered(&self.memory())?.0.fingerprint.clone();
        let admit = |header: &Header| {
            if header.incarnation == self.incarnation {
                return Err(Error::OwnBlob { agent: self.name.clone() });
            }
            admit(header)
        };
        let (blob, stands) = self.refused.read(blob, |blob| blob::decode(blob, &fingerprint, admit))?;
        let Header { agent: name, incarnation, generation, started, .. } = blob.header;
        let transport_name = notify::transport_name(&name, incarnation);
        let Blob { layout, ranges, metadata, host, .. } = blob;
        self.introduce(Introduced {
            name,
            incarnation,
            generation,
            started,
            stands,
            transport_name,
            metadata,
            layout,
            ranges,
            host,
        })
    }

    /// Makes a peer reachable that says who it is.
    pub(super) fn introduce(&self, new: Introduced) -> Result<Peer> {
        let Introduced {
            name,
            incarnation,
            generation,
            started,
            stands,
            transport_name,
            metadata,
            layout,
            ranges,
            host,
        } = new;
        // Nobody starts in the future: who says so is not newer than all that come later.
        let started = started.map(|started| started.min(since_1970()));
        // Held throughout: connecting the same peer twice at once would mix up the two.
        let mut peers = self.peers();
        self.forget_retired(&mut peers);
        let of_name = peers.by_name.get(&name);
        let current = of_name.filter(|peer| peer.incarnation == incarnation).cloned();
        // One that was replaced and is back is still the one with which something is under way.
        let retired = |peer: &&Arc<PeerInner>| peer.name == name && peer.incarnation == incarnation;
        let known = current.clone().or_else(|| peers.retired.iter().find(retired).cloned());
        let watch = match &known {
            Some(known) => known.watch.clone(),
            None => Arc::new(Watch::new(self.host.as_ref(), host.as_ref())),
        };
        if watch.is_gone() {
            return Err(Error::PeerEnded { peer: name, incarnation });
        }
        if let Some(other) = of_name.filter(|other| other.incarnation != incarnation && stands == Stands::Yes) {
            let is_newer = started.zip(other.started).is_some_and(|(new, old)| new > old);
            if !is_newer && !other.watch.is_gone() {
                return Err(Error::OlderProcess { peer: name, incarnation, current: other.incarnation });
            }
        }
        if let Some(current) = &current {
            if generation < current.generation && stands == Stands::Yes {
                return Err(Error::StaleBlob { peer: name, stale: generation, current: current.generation });
            }
            if generation == current.generation {
                return Ok(Peer { inner: current.clone() });
            }
        }
        let loaded = self.make_room(known.as_deref(), &ranges)?;
        let transport = self.transport()?;
        let named = transport.load_peer(&metadata);
        if let (Err(_), Loaded::Anew, Some(known)) = (&named, &loaded, &known) {
            // It stays as it was.
            transport.load_peer(&known.metadata)?;
        }
        let named = named?;
        if named != transport_name {
            if !peers.has_named(&named) {
                self.forget(&named);
            }
            return Err(Error::PeerNameMismatch { peer: transport_name, named });
        }
        let locality = Host::locality(self.host.as_ref(), host.as_ref());
        if known.is_none() {
            self.warn_of_barriers(&name, incarnation, &locality);
        }
        let has_failed = known.as_ref().map(|peer| peer.has_failed.clone()).unwrap_or_default();
        let unsettled = known.map(|peer| peer.unsettled.clone()).unwrap_or_default();
        let inner = Arc::new(PeerInner {
            name: name.clone(),
            incarnation,
            generation,
            started,
            transport_name,
            metadata,
            layout,
            loaded: loaded.with(&ranges),
            ranges,
            unsettled,
            locality,
            watch,
            has_failed,
        });
        if let Some(old) = peers.by_name.insert(name, inner.clone()).filter(|old| old.incarnation != incarnation) {
            peers.retired.push(old);
            self.forget_retired(&mut peers);
        }
        tracing::info!(agent = %self.name, peer = %inner.name, incarnation, generation, locality = ?inner.locality, "peer connected");
        Ok(Peer { inner })
    }

    /// A transport adds to what it knows of a peer, and what it knows stays. So what the peer has taken away is in the way
    /// of what it registers there later, or is taken for it: then the transport forgets the peer first, while nothing is
    /// under way with it.
    fn make_room(&self, known: Option<&PeerInner>, ranges: &RangeTable) -> Result<Loaded> {
        let Some(known) = known else { return Ok(Loaded::Beside(Vec::new())) };
        let gone = |old: &&Registered| !ranges.iter().any(|new| new.is_same(old));
        let gone: Vec<Registered> = known.loaded.iter().filter(gone).copied().collect();
        let transfers = known.unsettled.load(Ordering::Acquire);
        if gone.is_empty() {
            return Ok(Loaded::Beside(gone));
        }
        if transfers == 0 {
            self.forget(&known.transport_name);
            return Ok(Loaded::Anew);
        }
        let is_in_the_way = |old: &Registered| ranges.iter().any(|new| new.overlaps(old));
        if gone.len() > MAX_GONE || gone.iter().any(is_in_the_way) {
            let what = format!("memory that peer {} has registered anew", known.name);
            return Err(Error::InUse { what, transfers });
        }
        Ok(Loaded::Beside(gone))
    }

    /// Opens the way to a peer anew, for example after a network failure: an error of a transfer may have closed it
    /// for good, though the peer lives. Failed transfers with it stay in quarantine; those in progress fail and go
    /// there too.
    ///
    /// # Errors
    ///
    /// [`Error::PeerGone`] when it is not connected; [`Error::Nixl`] when the peer cannot be loaded again, and then
    /// transfers with it fail.
    pub fn reconnect(&self, peer: &Peer) -> Result<()> {
        // Held throughout, as in `connect`.
        let peers = self.peers();
        peers.check(peer)?;
        let transport = self.transport()?;
        self.forget(&peer.inner.transport_name);
        transport.load_peer(&peer.inner.metadata)?;
        peer.inner.has_failed.store(false, Ordering::Release);
        tracing::info!(agent = %self.name, peer = peer.name(), incarnation = peer.incarnation(), "peer reconnected");
        Ok(())
    }

    /// Lets a peer go.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while a transfer with it has not settled; [`Error::PeerGone`] when it is not connected.
    pub fn disconnect(&self, peer: &Peer) -> Result<()> {
        let mut peers = self.peers();
        peers.check(peer)?;
        match peer.unsettled() {
            0 => {
                peers.by_name.remove(peer.name());
                self.forget(&peer.inner.transport_name);
                Ok(())
            }
            transfers => Err(Error::InUse { what: format!("peer {}", peer.name()), transfers }),
        }
    }

    pub(super) fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn warn_of_barriers(&self, peer: &str, incarnation: u64, locality: &Locality) {
        let Locality::SameHostApart(barriers) = locality else { return };
        let causes: Vec<String> = barriers.iter().map(ToString::to_string).collect();
        tracing::warn!(
            agent = %self.name,
            peer,
            incarnation,
            causes = causes.join("; "),
            "peer is on this host, but the kernel cannot copy between the two: UCX takes TCP, several times slower"
        );
    }

    /// Forgets replaced peers that nothing is under way with any more.
    fn forget_retired(&self, peers: &mut Peers) {
        let Peers { by_name, retired } = peers;
        retired.retain(|peer| {
            let under_way = peer.unsettled.load(Ordering::Acquire) > 0;
            // Unless it has come back.
            if !under_way && !by_name.values().any(|current| current.transport_name == peer.transport_name) {
                self.forget(&peer.transport_name);
            }
            under_way
        });
    }

    fn forget(&self, transport_name: &str) {
        if let Err(error) = self.transport().and_then(|transport| transport.forget_peer(transport_name)) {
            tracing::warn!(agent = %self.name, peer = transport_name, %error, "cannot forget a peer");
        }
    }
}
