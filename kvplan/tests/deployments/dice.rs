//! Choices read off a tape of random numbers, so that a tape that shrinks gives a case that shrinks.

/// Reads choices from a tape; past its end every choice is the simplest one.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    tape: Vec<u16>,
    next: usize,
}

impl Dice {
    pub(super) fn new(tape: &[u16]) -> Dice {
        Dice { tape: tape.to_vec(), next: 0 }
    }

    /// A number below `n`; 0 is the simplest.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        let number = self.tape.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        u64::from(number) * n / 65536
    }

    /// True once in `n`; false is the simplest.
    pub(super) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }

    /// Bytes of padding: mostly none.
    pub(super) fn pad(&mut self) -> u64 {
        if self.once_in(3) { 1 + self.below(6) } else { 0 }
    }

    /// One of the items, the first being the simplest.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[usize::try_from(self.below(items.len() as u64)).expect("an index fits")]
    }

    /// Shuffles in place; zeros leave the order alone.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            let back = usize::try_from(self.below(index as u64 + 1)).expect("an index fits");
            items.swap(index, index - back);
        }
    }
}
