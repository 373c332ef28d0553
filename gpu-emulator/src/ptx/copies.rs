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
    pub(super) committed: u32,
    pub(super) flying: VecDeque<(u32, AsyncCopy)>,
}

impl Copies {
    /// Takes a copy that is not of the last `left` groups, nor of none yet.
    pub(super) fn next_landed(&mut self, left: u32) -> Option<AsyncCopy> {
        let (_, copy) = self.flying.pop_front_if(|(group, _)| group.saturating_add(left) < self.committed)?;
        Some(copy)
    }
}
