//! What is remembered of things that have ended: for a while, and a bounded number.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A bounded memory: entries go when they are old, or when there are too many.
#[derive(Debug)]
pub(crate) struct Remembered<K, V> {
    entries: HashMap<K, V>,
    order: VecDeque<(Instant, K)>,
    lasts: Duration,
    most: usize,
}

impl<K: Eq + Hash + Clone, V> Remembered<K, V> {
    pub(crate) fn new(lasts: Duration, most: usize) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), lasts, most }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// Keys are never used twice.
    pub(crate) fn insert(&mut self, key: K, value: V, now: Instant) {
        self.entries.insert(key.clone(), value);
        self.order.push_back((now, key));
        self.forget(now);
    }

    pub(crate) fn forget(&mut self, now: Instant) {
        while let Some((since, key)) = self.order.front() {
            if self.order.len() <= self.most && now.saturating_duration_since(*since) < self.lasts {
                return;
            }
            self.entries.remove(key);
            self.order.pop_front();
        }
    }
}
