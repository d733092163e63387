//! What threads share, in every order in which they can meet: the sources of `gate`, `inbox` and `state`, compiled with
//! loom's locks and counters. Loom never lets a wait time out, so a wake-up that is lost is a deadlock, which it reports.

use std::time::{Duration, Instant};

use loom::thread;

use crate::gate::{Gate, InUse};
use crate::inbox::{Inbox, Pause, Refused};
use crate::state::{Standing, TransferState, TransferStats};
use crate::sync::{Arc, AtomicUsize, Ordering};

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
}

mod error {
    #[derive(Debug)]
    #[allow(unreachable_pub, reason = "what is included names it in its interface")]
    pub struct Error;
}

#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/inbox.rs"]
#[allow(dead_code, reason = "loom lets no wait time out")]
mod inbox;
#[path = "../src/state.rs"]
#[allow(unreachable_pub, dead_code, reason = "the crate hands it on")]
mod state;

/// Nothing waits for it.
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_job_is_taken_once_or_refused_whenever_the_thread_is_to_end() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let worker = thread::spawn({
            let inbox = inbox.clone();
            move || {
                let mut taken = Vec::new();
                while inbox.take(&mut taken, |stopping| if stopping { Pause::No } else { Pause::UntilWoken }).is_none()
                {
                }
                taken.extend(inbox.close("it has ended"));
                taken
            }
        });
        let pusher = thread::spawn({
            let inbox = inbox.clone();
            move || inbox.push(7)
        });
        inbox.stop(Instant::now());
        let pushed = pusher.join().unwrap();
        let taken = worker.join().unwrap();
        match pushed {
            Ok(()) => assert_eq!(taken, [7]),
            Err(Refused::Stopping | Refused::Closed(_)) => assert_eq!(taken, []),
        }
        assert_eq!(inbox.push(8), Err(Refused::Closed("it has ended")));
        assert!(inbox.is_empty());
    });
}

#[test]
fn a_thread_that_sleeps_is_woken_by_each_job() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let pushers: Vec<_> = (1..=2)
            .map(|job| {
                let inbox = inbox.clone();
                thread::spawn(move || inbox.push(job).unwrap())
            })
            .collect();
        let mut taken = Vec::new();
        while taken.len() < 2 {
            assert!(inbox.take(&mut taken, |_| Pause::UntilWoken).is_none());
        }
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    });
}

#[test]
fn a_thread_that_is_roused_knows_how_long_it_may_sleep() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::<u32>::new());
        let nap = Arc::new(AtomicUsize::new(0));
        let engine = thread::spawn({
            let (inbox, nap) = (inbox.clone(), nap.clone());
            move || {
                nap.store(1, Ordering::Release);
                inbox.rouse();
            }
        });
        let may_sleep = || nap.load(Ordering::Acquire) == 0;
        while may_sleep() {
            inbox.take(&mut Vec::new(), |_| if may_sleep() { Pause::UntilWoken } else { Pause::No });
        }
        engine.join().unwrap();
    });
}

#[test]
fn whoever_learns_that_a_transfer_has_settled_finds_its_memory_unused() {
    loom::model(|| {
        let standing = Arc::new(Standing::new(TransferStats::default()));
        let unsettled = Arc::new(AtomicUsize::new(0));
        let in_use = InUse::new(&unsettled);
        let poster = thread::spawn({
            let standing = standing.clone();
            move || {
                assert!(standing.end(false, |_| Err(Arc::new(error::Error))));
                drop(in_use);
                assert!(standing.settle());
            }
        });
        let state = standing.wait(LONG, TransferState::is_finished);
        assert!(matches!(state, TransferState::Failed { .. }));
        let state = standing.wait(LONG, TransferState::is_settled);
        assert!(matches!(state, TransferState::Failed { settled: true, .. }));
        assert_eq!(unsettled.load(Ordering::Acquire), 0);
        poster.join().unwrap();
    });
}

#[test]
fn the_first_of_two_outcomes_stands_and_all_who_wait_learn_it() {
    loom::model(|| {
        let standing = Arc::new(Standing::new(TransferStats::default()));
        let end = |outcome: fn() -> Result<(), Arc<error::Error>>| {
            let standing = standing.clone();
            thread::spawn(move || standing.end(true, |_| outcome()))
        };
        let (done, failed) = (end(|| Ok(())), end(|| Err(Arc::new(error::Error))));
        let first = matches!(standing.wait(LONG, TransferState::is_finished), TransferState::Done);
        let [done, failed] = [done, failed].map(|thread| thread.join().unwrap());
        assert!(done != failed && done == first);
        assert_eq!(matches!(standing.state(), TransferState::Done), first);
        assert!(!standing.settle(), "either outcome had settled");
    });
}

#[test]
fn a_cancelled_transfer_is_seen_to_be_so_and_counts_are_not_lost() {
    loom::model(|| {
        let standing = Arc::new(Standing::new(TransferStats::default()));
        let poster = thread::spawn({
            let standing = standing.clone();
            move || {
                standing.count(|stats| stats.requests += 1);
                standing.is_cancelled()
            }
        });
        standing.count(|stats| stats.requests += 1);
        standing.cancel();
        poster.join().unwrap();
        assert!(standing.is_cancelled() && standing.stats().requests == 2);
    });
}

#[test]
fn the_gate_is_wanted_exactly_while_somebody_is_in_it() {
    loom::model(|| {
        let gate = Arc::new(Gate::new());
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let gate = gate.clone();
                thread::spawn(move || {
                    let _first = gate.enter();
                    assert!(gate.is_wanted());
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        assert!(!gate.is_wanted());
    });
}
