//! What a worker is told, taken out of its events; and the one request of these tests.

use kvnixl::lease::{ArrivalFailed, EndReason, LeaseId, PushId, RequestId};
use kvnixl::{Event, PullFailed};
use kvplan::{BlockList, Descriptor};

use crate::common::descriptor;

pub(crate) fn request() -> RequestId {
    RequestId::new("r").unwrap()
}

pub(crate) fn whole() -> [Descriptor; 1] {
    [descriptor(2048, 1024, 2048)]
}

pub(crate) fn pulled(event: &Event<&'static str>) -> Option<&'static str> {
    if let Event::Pulled { blocks, .. } = event { Some(blocks) } else { None }
}

pub(crate) fn pull_failed(event: &Event<&'static str>) -> Option<PullFailed> {
    if let Event::PullFailed { why, .. } = event { Some(why.clone()) } else { None }
}

pub(crate) fn returned(event: &Event<&'static str>) -> Option<&'static str> {
    match event {
        Event::ReturnedPull { blocks, .. } | Event::ReturnedReservation { blocks, .. } => Some(blocks),
        _ => None,
    }
}

pub(crate) fn freed(event: &Event<&'static str>) -> Option<EndReason> {
    if let Event::Freed(freed) = event { Some(freed.why) } else { None }
}

pub(crate) fn arrived(event: &Event<&'static str>) -> Option<&'static str> {
    if let Event::Arrived { blocks, .. } = event { Some(blocks) } else { None }
}

pub(crate) fn arrival_failed(event: &Event<&'static str>) -> Option<ArrivalFailed> {
    if let Event::ArrivalFailed { why, .. } = event { Some(why.clone()) } else { None }
}

pub(crate) fn push(event: &Event<&'static str>) -> Option<(PushId, LeaseId, Vec<BlockList>)> {
    if let Event::Push { id, lease, lists, .. } = event { Some((id.clone(), *lease, lists.clone())) } else { None }
}

pub(crate) fn withdrawn(event: &Event<&'static str>) -> Option<()> {
    matches!(event, Event::Withdrawn).then_some(())
}
