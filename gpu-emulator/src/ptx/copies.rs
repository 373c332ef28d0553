//! Copies from the GPU's memory to shared memory that are on their way (PTX ISA 9.7.9.25, `cp.async`). A copy takes place at
//! any time between its start and the wait for it: its bytes are those of the start, and a source that has changed by the wait is a
//! fault, as is any use of the bytes that it goes to.

use std::collections::VecDeque;

/// A copy on its way.
#[derive(Debug)]
pub(super) struct AsyncCopy {
    /// In shared memory.
    pub(super) to: u64,
    /// In the GPU's memory.
    pub(super) from: u64,
    /// Bytes of the source; zeros follow.
    pub(super) read: usize,
    pub(super) bytes: Vec<u8>,
}

/// Those of a thread, in the order of their groups.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Groups that were committed.
    committed: u32,
    /// Copies with the numbers of their groups.
    flying: VecDeque<(u32, AsyncCopy)>,
}

impl Copies {
    pub(super) fn start(&mut self, copy: AsyncCopy) {
        self.flying.push_back((self.committed, copy));
    }

    /// What was started since the last group becomes one.
    pub(super) fn commit(&mut self) {
        self.committed += 1;
    }

    /// Takes a copy that is not of the last `left` groups, nor of none yet.
    pub(super) fn next_landed(&mut self, left: u32) -> Option<AsyncCopy> {
        let landed = self.flying.front().is_some_and(|(group, _)| group.saturating_add(left) < self.committed);
        if landed { self.flying.pop_front().map(|(_, copy)| copy) } else { None }
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = AsyncCopy> {
        self.flying.into_iter().map(|(_, copy)| copy)
    }
}
