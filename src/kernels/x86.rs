//! What the vector kernels of all x86 levels share: prefetches, and memory of each thread.

#![allow(unsafe_code)]

use super::input::{Lines, Plain};
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::cell::RefCell;

/// How far ahead of the product with one token weights are asked for: the next four rows, or more if they are short.
/// The processor's own prefetch alone gives half the bandwidth, because it starts anew with each row and page.
#[inline]
pub(super) fn rows_ahead(row_bytes: usize) -> usize {
    8192usize.div_ceil(4 * row_bytes) * 4 * row_bytes
}

/// Asks for `N` bytes to be brought into the second-level cache.
#[inline]
pub(super) fn prefetch<const N: usize>(bytes: *const u8) {
    for line in 0..N.div_ceil(64) {
        // SAFETY: every x86-64 processor has the instruction, and it accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(bytes.wrapping_add(64 * line).cast()) };
    }
}

/// A thread's memory for unpacked panels and rearranged activations.
pub(super) struct Scratch {
    pub(super) bytes: Lines<u8>,
    pub(super) floats: Lines<f32>,
    pub(super) more_floats: Lines<f32>,
    pub(super) ints: Lines<i32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch { bytes: Lines::new(),
            floats: Lines::new(), more_floats: Lines::new(), ints: Lines::new() })
    };
}

/// Calls `with` with this thread's scratch memory.
#[inline]
pub(super) fn with_scratch(with: impl FnOnce(&mut Scratch)) {
    SCRATCH.with_borrow_mut(with);
}

/// Room for `len` elements, whose values are unspecified.
#[inline]
pub(super) fn room<T: Plain>(lines: &mut Lines<T>, len: usize) -> &mut [T] {
    lines.grow(len);
    &mut lines.all_mut()[..len]
}
