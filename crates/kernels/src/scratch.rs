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
    /// The rows of weights that are stored by columns, their scales and biases, and these by columns. Kernels of rows run while they
    /// are taken.
    pub(super) columns: (Lines<u8>, Lines<f32>, Lines<f32>),
}

impl Scratch {
    /// The bytes that it holds.
    pub fn bytes(&self) -> usize {
        let Scratch { bytes, rows, floats, more_floats, ints, columns } = self;
        let bytes = [bytes, rows, &columns.0].map(|bytes| bytes.all().len());
        let floats = [floats, more_floats, &columns.1, &columns.2].map(|floats| size_of_val(floats.all()));
        bytes.iter().chain(&floats).sum::<usize>() + size_of_val(ints.all())
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Calls `with` with this thread's scratch memory.
#[inline]
pub(super) fn with_scratch<T>(with: impl FnOnce(&mut Scratch) -> memory::Result<T>) -> memory::Result<T> {
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

/// Which part a number belongs to, and its number in that part, of numbers that have `step` of each of `P` parts in turns.
#[inline(always)]
pub(super) fn in_turns<const P: usize>(i: usize, step: usize) -> (usize, usize) {
    (i / step % P, i / (step * P) * step + i % step)
}

/// The activations of `blocks` blocks, zeros past the last one, in steps of eight vectors of `N` bytes, a step of each row in turns:
/// 16 bytes number `i` of a row's steps have number `order(i)` in the row; of a block they are the halves, or the bytes at even and
/// those at odd places if `evens_first`.
#[inline]
pub(super) fn arranged_bytes<'a, const N: usize, const P: usize>(
    lines: &'a mut Lines<u8>,
    rows: &[Q8<'_>; P],
    evens_first: bool,
    blocks: usize,
    order: impl Fn(usize) -> usize,
) -> memory::Result<&'a [[[u8; N]; 8]]> {
    let bytes = room(lines, P * blocks * BLOCK)?;
    for (i, to) in bytes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (part, i) = in_turns::<P>(i, N / 2);
        let (block, half) = (order(i) / 2, order(i) % 2);
        let block = rows[part].bytes.as_chunks::<BLOCK>().0.get(block).unwrap_or(&[0; BLOCK]);
        *to = match evens_first {
            true => std::array::from_fn(|k| block[2 * k + half] as u8),
            false => std::array::from_fn(|k| block[16 * half + k] as u8),
        };
    }
    Ok(bytes.as_chunks().0.as_chunks().0)
}

/// The numbers of rows for each block, for `blocks` blocks, zeros past the last one, `N` of each row in turns: number `i` of a row is
/// for block `order(i)`.
#[inline]
pub(super) fn arranged<'a, T: Pod + Default, const N: usize, const P: usize>(
    lines: &'a mut Lines<T>,
    rows: [&[T]; P],
    blocks: usize,
    order: impl Fn(usize) -> usize,
) -> memory::Result<&'a [[T; N]]> {
    let all = room(lines, P * blocks)?;
    for (i, to) in all.iter_mut().enumerate() {
        let (part, i) = in_turns::<P>(i, N);
        *to = rows[part].get(order(i)).copied().unwrap_or_default();
    }
    Ok(all.as_chunks().0)
}

/// Like [`arranged`], in the order of the rows: what the offset of each block's weights adds too much, or, where half blocks have
/// scales, the sums of both halves with their sign turned, as two words. Where these scales are floats, what the offset adds too much
/// in `N` first halves, then in the second ones.
#[inline]
pub(super) fn arranged_sums<'a, F: Format, const N: usize, const P: usize>(
    lines: &'a mut Lines<i32>,
    rows: &[Q8<'_>; P],
    blocks: usize,
) -> memory::Result<&'a [[i32; N]]> {
    let each = if F::FLOATS && F::OFFSET > 0 { 2 } else { 1 };
    let all = room(lines, P * blocks * each)?;
    for (i, to) in all.iter_mut().enumerate() {
        let (part, i) = in_turns::<P>(i, N * each);
        let (b, half) = (i / (N * each) * N + i % N, i / N % each);
        *to = match rows[part].half_offsets.as_chunks::<2>().0.get(b) {
            Some(halves) if each == 2 => halves[half] >> F::SHIFT,
            Some([first, second]) if F::HALVES => first >> 7 & 0xffff | second >> 7 << 16,
            Some(_) => rows[part].offsets[b] >> F::SHIFT,
            None => 0,
        };
    }
    Ok(all.as_chunks().0)
}
