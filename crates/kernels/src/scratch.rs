//! The memory of each thread in which vector kernels unpack panels and arrange activations.

use super::input::{Lines, Q8};
use super::order::BLOCK;
use crate::dtypes::blocks::Format;
use crate::memory;
use bytemuck::Pod;
use std::cell::RefCell;

/// A thread's memory for unpacked panels and rearranged activations.
#[derive(Default)]
pub struct Scratch {
    pub(super) bytes: Lines<u8>,
    /// Stored rows of a panel that has fewer rows than others.
    pub(super) rows: Lines<u8>,
    pub(super) floats: Lines<f32>,
    pub(super) more_floats: Lines<f32>,
    pub(super) ints: Lines<i32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch {
            bytes: Lines::new(),
            rows: Lines::new(),
            floats: Lines::new(),
            more_floats: Lines::new(),
            ints: Lines::new(),
        })
    };
}

/// Calls `with` with this thread's scratch memory.
#[inline]
pub(super) fn with_scratch(with: impl FnOnce(&mut Scratch) -> memory::Result<()>) -> memory::Result<()> {
    SCRATCH.with_borrow_mut(with)
}

/// Swaps this thread's scratch memory with `other`.
pub fn swap_scratch(other: &mut Scratch) {
    SCRATCH.with_borrow_mut(|own| std::mem::swap(own, other));
}

/// Room for `len` elements, whose values are unspecified.
#[inline]
pub(super) fn room<T: Pod>(lines: &mut Lines<T>, len: usize) -> memory::Result<&mut [T]> {
    lines.grow(len)?;
    Ok(&mut lines.all_mut()[..len])
}

/// The activations of `blocks` blocks, zeros past the last one, in steps of eight vectors of `N` bytes: 16 bytes number `i` of
/// them have number `order(i)` in the row.
#[inline]
pub(super) fn arranged_bytes<'a, const N: usize>(
    lines: &'a mut Lines<u8>,
    row: &Q8<'_>,
    blocks: usize,
    order: impl Fn(usize) -> usize,
) -> memory::Result<&'a [[[u8; N]; 8]]> {
    let bytes = room(lines, blocks * BLOCK)?;
    let (from, _) = row.bytes.as_chunks::<16>();
    for (i, to) in bytes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        *to = from.get(order(i)).unwrap_or(&[0; 16]).map(|x| x as u8);
    }
    Ok(bytes.as_chunks().0.as_chunks().0)
}

/// A row's numbers for each block, for `blocks` blocks, zeros past the last one, `N` at a time: number `i` of them is for
/// block `order(i)`.
#[inline]
pub(super) fn arranged<'a, T: Pod + Default, const N: usize>(
    lines: &'a mut Lines<T>,
    row: &[T],
    blocks: usize,
    order: impl Fn(usize) -> usize,
) -> memory::Result<&'a [[T; N]]> {
    let all = room(lines, blocks)?;
    all.iter_mut().enumerate().for_each(|(i, to)| *to = row.get(order(i)).copied().unwrap_or_default());
    Ok(all.as_chunks().0)
}

/// Like [`arranged`], in the row's own order: what the offset of each block's weights adds too much, or, where half blocks have
/// scales, the sums of both halves with their sign turned, as two words.
#[inline]
pub(super) fn arranged_sums<'a, F: Format, const N: usize>(
    lines: &'a mut Lines<i32>,
    row: &Q8<'_>,
    blocks: usize,
) -> memory::Result<&'a [[i32; N]]> {
    let all = room(lines, blocks)?;
    for (b, to) in all.iter_mut().enumerate() {
        *to = match row.half_offsets.as_chunks::<2>().0.get(b) {
            Some([first, second]) if F::HALVES => first >> 7 & 0xffff | second >> 7 << 16,
            Some(_) => row.offsets[b] >> F::SHIFT,
            None => 0,
        };
    }
    Ok(all.as_chunks().0)
}
