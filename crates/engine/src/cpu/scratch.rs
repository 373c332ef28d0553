//! The memory that a thread computes in besides the buffers of a step.

use crate::kernels::{Scratch, swap_scratch};
use crate::memory;
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// The scratch memory of threads that lead steps. It belongs to the model, which has planned it: a calling thread keeps
/// none of it, however many threads call.
#[derive(Default)]
pub(super) struct LeaderScratch(Mutex<Vec<Kept>>);

#[derive(Default)]
struct Kept {
    kernels: Scratch,
    outputs: Vec<f32>,
}

impl Kept {
    /// Swaps it with this thread's scratch memory.
    fn swap(&mut self) {
        swap_scratch(&mut self.kernels);
        OUTPUTS.with_borrow_mut(|own| std::mem::swap(own, &mut self.outputs));
    }
}

impl LeaderScratch {
    /// Replaces this thread's scratch memory until the returned value is dropped.
    pub(super) fn lend(&self) -> Lent<'_> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        kept.swap();
        Lent { to: self, own: kept }
    }
}

impl std::fmt::Debug for LeaderScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaderScratch").finish_non_exhaustive()
    }
}

/// The result of [`LeaderScratch::lend`]: the memory that the thread had before.
pub(super) struct Lent<'a> {
    to: &'a LeaderScratch,
    own: Kept,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.own.swap();
        let kept = std::mem::take(&mut self.own);
        self.to.0.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    }
}

thread_local! {
    /// A task's outputs before they are placed: at most two tiles.
    static OUTPUTS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Runs `body` on `len` floats of this thread's own, which hold unspecified numbers.
pub(super) fn with_scratch(len: usize, body: impl FnOnce(&mut [f32]) -> memory::Result<()>) -> memory::Result<()> {
    OUTPUTS.with_borrow_mut(|scratch| {
        memory::lengthen(scratch, len, 0.0, "a thread's outputs")?;
        body(&mut scratch[..len])
    })
}

/// Like [`with_scratch`], split into parts of these lengths and one of `rest` after them.
pub(super) fn with_scratch_parts<const N: usize>(
    lengths: [usize; N],
    rest: usize,
    body: impl FnOnce([&mut [f32]; N], &mut [f32]) -> memory::Result<()>,
) -> memory::Result<()> {
    with_scratch(lengths.iter().sum::<usize>() + rest, |mut left| {
        let parts = lengths.map(|length| {
            let (part, later) = std::mem::take(&mut left).split_at_mut(length);
            left = later;
            part
        });
        body(parts, left)
    })
}
