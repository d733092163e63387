//! A list that keeps its first entries and counts the others.
//!
//! What is wrong with a spec, or keeps two workers apart, is listed; and what comes from a peer may be wrong in a
//! million places. The first hundred tell the story.

/// Entries that a list keeps.
pub const MAX_KEPT: usize = 100;

/// A list of which the first [`MAX_KEPT`] entries are kept, and the others counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounded<T> {
    kept: Vec<T>,
    more: usize,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), more: 0 }
    }
}

impl<T> Bounded<T> {
    /// Adds an entry.
    pub fn push(&mut self, entry: T) {
        if self.kept.len() < MAX_KEPT { self.kept.push(entry) } else { self.more += 1 }
    }

    /// Adds an entry that is kept in any case: one that says why nothing follows.
    pub fn push_last(&mut self, entry: T) {
        self.kept.push(entry);
    }

    /// Entries added, also those that were only counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len() + self.more
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether what is added now is only counted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.kept.len() >= MAX_KEPT
    }

    /// The entries, and behind them what `more` makes of the number of those that were only counted, if there are any.
    #[must_use]
    pub fn into_vec(self, more: impl FnOnce(usize) -> T) -> Vec<T> {
        let mut kept = self.kept;
        if self.more > 0 {
            kept.push(more(self.more));
        }
        kept
    }
}

impl<T> Extend<T> for Bounded<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, entries: I) {
        entries.into_iter().for_each(|entry| self.push(entry));
    }
}

impl<T> FromIterator<T> for Bounded<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut list = Self::default();
        list.extend(entries);
        list
    }
}
