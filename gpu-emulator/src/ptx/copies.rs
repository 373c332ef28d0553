//! Copies from the GPU's memory to shared memory that are in flight (PTX ISA 9.7.9.25, `cp.async`). A copy takes place at
//! any time between its start and the wait for it: its bytes are those of the start, and a source that has changed by the wait is a
//! fault, as is any use of the destination's bytes.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct AsyncCopy {
    /// The destination's address in shared memory.
    pub(super) to: u64,
    /// The source's address in the GPU's memory.
    pub(super) from: u64,
    /// Bytes of the source; zeros follow.
    pub(super) read: usize,
    pub(super) bytes: Vec<u8>,
}

/// The copies of a thread, in the order of their groups.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pub(super) committed: u32,
    pub(super) flying: VecDeque<(u32, AsyncCopy)>,
}

impl Copies {
    /// Takes a copy of a group that is not among the last `left`; copies without a group stay.
    pub(super) fn next_landed(&mut self, left: u32) -> Option<AsyncCopy> {
        let (_, copy) = self.flying.pop_front_if(|(group, _)| group.saturating_add(left) < self.committed)?;
        Some(copy)
    }
}
