//! What an exchange asks of its agent besides transfers.

use std::sync::atomic::Ordering;

use kvplan::{BlockList, Side};

use super::Agent;
use crate::error::{Error, Result};
use crate::notify::Notification;

impl Agent {
    /// Checks lists of blocks that a peer is to write.
    ///
    /// # Errors
    ///
    /// [`Error::ListsRefused`], [`Error::NotRegistered`].
    pub(crate) fn check_reserved(&self, lists: &[BlockList]) -> Result<()> {
        let memory = self.memory();
        let (spec, _) = self.registered(&memory)?;
        kvplan::check_destination(spec, Side::Local, lists).map_err(|source| Error::ListsRefused { source })
    }

    /// Takes all notifications that have arrived. Those of one sender are in order.
    ///
    /// # Errors
    ///
    /// [`Error::ExchangeExists`] while the agent has an exchange: notifications are its own, and those that are not come
    /// as [`Event::Notification`](crate::Event::Notification). [`Error::Nixl`].
    pub fn notifications(&self) -> Result<Vec<Notification>> {
        match self.has_exchange.load(Ordering::Acquire) {
            true => Err(Error::ExchangeExists { agent: self.name.clone() }),
            false => self.take_notifications(),
        }
    }
}
