//! Who may read or write which blocks until when: state machines without I/O, threads or a clock.
//!
//! Time is an argument everywhere, so that every order of events can be tested. [`Exchange`](crate::Exchange) drives
//! them over an agent.
//!
//! | question | module |
//! |---|---|
//! | when are a producer's blocks free, and whose completion counts? | `LeaseBook` in `book` |
//! | what is known of leases that have ended? | `ended` |
//! | how does a long registration arrive? | `assembly` |
//! | when do a push's two halves meet, and what was the outcome? | `PushBook` in `push` |
//! | when does a decode worker get destination blocks back? | `ReservationBook` in `reservation` |
//! | which messages are sent again, and until when? | `Outbox` in `outbox` |
//! | is a peer usable, and when is its blob fetched again? | `PeerBook` in `peers` |
//!
//! Blocks are a type of the engine's, `B`: a list of ids, or better, a guard that gives them back when it is dropped.
//! A book owns them and gives them up once, by value. So they cannot be freed twice, and destination blocks that may
//! still be written cannot be had at all: `ReservationBook` forgets them when it is dropped.

mod assembly;
mod book;
mod ended;
mod identity;
mod outbox;
mod peers;
mod push;
mod reservation;

pub(crate) use assembly::{Assembled, Assembly, Chunk, append};
pub(crate) use book::{Completion, LeaseBook, after};
pub use book::{EndReason, Freed, LeaseOptions, LeaseStats, LostReaders};
pub(crate) use ended::Remembered;
pub use identity::{LeaseId, MAX_REQUEST_ID_BYTES, PeerId, RequestId, ReservationId};
pub(crate) use identity::{Numbers, Reading};
pub(crate) use outbox::{Number, Outbox};
pub(crate) use peers::{Loaded, PeerBook};
pub use peers::{PeerOptions, PeerState, PeerStats, Wanted};
pub(crate) use push::{Admission, Outcome, PushBook, Resolved};
pub use push::{PushId, PushOptions, PushStats};
pub use reservation::{ArrivalFailed, ReservationStats};
pub(crate) use reservation::{ReservationBook, ReservationEvent};

#[cfg(test)]
mod book_tests;
#[cfg(test)]
mod peers_tests;
#[cfg(test)]
mod push_tests;
#[cfg(test)]
mod reservation_tests;
