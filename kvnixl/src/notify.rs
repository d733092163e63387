//! Notifications: short messages between agents, delivered in order for each sender.

use crate::error::{Error, Result};

/// Longest notification that can be sent. Up to this length UCX sends one fragment (about 20 to 70 µs on one
/// host); longer ones hold up everything behind them.
pub const MAX_NOTIFICATION_BYTES: usize = 8 * 1024;

/// Longest name of a sender: no agent has a longer one.
const MAX_SENDER_BYTES: usize = 256;

/// A notification that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Name of the sending agent. Not authenticated: whoever can reach the agent can claim a name.
    pub sender: String,
    /// Incarnation of the sending agent; `None` when the sender is not of this library.
    pub incarnation: Option<u64>,
    /// The bytes that were sent, at most [`MAX_NOTIFICATION_BYTES`].
    pub message: Vec<u8>,
}

/// Refuses what is too long.
pub(crate) fn check_length(message: &[u8]) -> Result<()> {
    let (len, max) = (message.len(), MAX_NOTIFICATION_BYTES);
    if len > max { Err(Error::NotificationTooLong { len, max }) } else { Ok(()) }
}

/// Turns what the transport delivered into notifications; drops what no agent of this library sends, and says how
/// many those were.
pub(crate) fn accept(arrived: Vec<(String, Vec<u8>)>) -> (Vec<Notification>, usize) {
    let num_arrived = arrived.len();
    let accept = |(sender, message): (String, Vec<u8>)| {
        if sender.len() > MAX_SENDER_BYTES {
            tracing::warn!(bytes = sender.len(), "dropped a notification: the name of its sender is too long");
            return None;
        }
        if message.len() > MAX_NOTIFICATION_BYTES {
            tracing::warn!(?sender, bytes = message.len(), "dropped a notification that is too long");
            return None;
        }
        let (sender, incarnation) = split_name(&sender);
        Some(Notification { sender: sender.to_owned(), incarnation, message })
    };
    let kept: Vec<Notification> = arrived.into_iter().filter_map(accept).collect();
    let dropped = num_arrived - kept.len();
    (kept, dropped)
}

/// An agent's name on the transport: `name@incarnation`, so that a process that comes back under its old name is
/// somebody else to NIXL, which would refuse or mix up the two.
pub(crate) fn transport_name(name: &str, incarnation: u64) -> String {
    format!("{name}@{incarnation:016x}")
}

/// The name and the incarnation of an agent of this library; of others the whole name, as it is.
fn split_name(given: &str) -> (&str, Option<u64>) {
    let ours = |(name, hex)| Some((name, u64::from_str_radix(hex, 16).ok()?));
    match given.rsplit_once('@').and_then(ours) {
        // An agent is spelled in one way.
        Some((name, incarnation)) if check_name(name).is_ok() && transport_name(name, incarnation) == given => {
            (name, Some(incarnation))
        }
        _ => (given, None),
    }
}

/// Refuses agent names that cannot be told apart, printed or sent.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let refuse = |why| Err(Error::AgentName { name: name.to_owned(), why });
    match name {
        "" => refuse("it is empty"),
        _ if name.len() > 128 => refuse("it is longer than 128 bytes"),
        _ if name.contains('@') => refuse("it contains @"),
        _ if !name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') => refuse("it is not printable ASCII"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_names_split_into_name_and_incarnation() {
        assert_eq!(split_name(&transport_name("decode-0", 0xab)), ("decode-0", Some(0xab)));
        let others = ["a@00000000000000AB", "a@+0000000000000ab", "a@ab", "@00000000000000ab", "a\nb@00000000000000ab"];
        let long = transport_name(&"x".repeat(129), 0xab);
        for foreign in ["decode-0", "a@b", "a@zzzzzzzzzzzzzzzz", "@", &long].into_iter().chain(others) {
            assert_eq!(split_name(foreign), (foreign, None));
        }
    }

    #[test]
    fn messages_that_are_too_long_are_refused_on_both_sides() {
        let long = vec![0; MAX_NOTIFICATION_BYTES + 1];
        assert!(check_length(&long[1..]).is_ok());
        assert!(matches!(check_length(&long), Err(Error::NotificationTooLong { .. })));
        let nobody = ("x".repeat(MAX_SENDER_BYTES + 1), vec![0]);
        let arrived = vec![("a".to_owned(), long), nobody, ("a".to_owned(), vec![0, 0xff])];
        let (kept, dropped) = accept(arrived);
        assert_eq!((kept.len(), dropped), (1, 2));
        assert_eq!(kept[0].message, [0, 0xff]);
    }

    #[test]
    fn names_that_cannot_be_used_are_refused() {
        for bad in ["", "a@b", "a\nb", "ä", &"x".repeat(129)] {
            assert!(matches!(check_name(bad), Err(Error::AgentName { .. })), "{bad:?}");
        }
        assert!(check_name("prefill-0 node.1").is_ok());
    }
}
