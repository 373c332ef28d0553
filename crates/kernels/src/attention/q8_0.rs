//! Tiles of Q8_0 blocks: signed bytes with an F16 scale for 32 elements of a head.
//!
//! Products are of integers: the query, or the weights of the softmax, are rounded to words, block by block, with
//! errors of 2^-16 of the largest, a 256th of the errors of the bytes. Words times bytes are added exactly. So the only
//! float operations add the sum of one block after the other, in one order.
//!
//! Elements lie in pairs, which instructions multiply together: keys are `[head_dim / 2, TILE, 2]`, after them the last
//! element of a head of odd length `[TILE]`; values are `[TILE / 2, head_dim, 2]`. After either are their scales
//! `[blocks, TILE]`.

#![allow(clippy::needless_range_loop)] // queries, keys and vectors are indices of several arrays

use super::Attention;
use super::ahead::Ahead;
use super::passes::{Attend, COLUMNS};
use super::{KvElement, Query, TILE};
use crate::element::f16_at;
use half::f16;
use std::ops::Range;

/// Elements of a block; the last one of a head has what is left.
const BLOCK: usize = 32;

/// Bytes of a scale.
const SCALE: usize = size_of::<f16>();

/// The largest magnitude of a word that is made here.
const MOST: f32 = 32767.0;

/// The nearest integer, ties to even, for magnitudes below 2^22: adding 1.5 * 2^23 leaves no room for a fraction.
const ROUND: f32 = 12_582_912.0;

#[inline(always)]
fn nearest(x: f32) -> i32 {
    ((x + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32)
}

/// The largest magnitude by its bits, which have the order of the numbers; NaN counts as larger than all.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    f32::from_bits(x.iter().fold(0, |largest: u32, x| largest.max(x.to_bits() & 0x7fff_ffff)))
}

/// Floats as words, and the value of 1 in a word; NaN where one of them is infinite or NaN.
#[inline(always)]
fn words<const N: usize>(x: &[f32; N]) -> ([i16; N], f32) {
    let largest = largest(x);
    if !largest.is_finite() {
        return ([0; N], f32::NAN);
    }
    // Below it the quotient might overflow; products of so small a number with a key or a value do not change a sum.
    let factor = if largest > 1e-30 { MOST / largest } else { 0.0 };
    let mut words = [0; N];
    words.iter_mut().zip(x).for_each(|(word, x)| *word = nearest(x * factor) as i16);
    (words, largest / MOST)
}

/// Block `block` of a query as words, with zeros after its end.
#[inline(always)]
fn query_words(q: &[f32], block: usize) -> ([i16; BLOCK], f32) {
    let q = &q[block * BLOCK..];
    let mut padded = [0.0; BLOCK];
    match q.first_chunk() {
        Some(whole) => words::<BLOCK>(whole),
        None => {
            padded[..q.len()].copy_from_slice(q);
            words(&padded)
        }
    }
}

/// The weights of the values of a block as words: the weights times the scales.
#[inline(always)]
fn weight_words(weights: &[f32; TILE], scales: &[f32; TILE], seen: &Range<usize>) -> ([i16; TILE], f32) {
    let mut products = *weights;
    products.iter_mut().zip(scales).for_each(|(product, scale)| *product *= scale);
    if *seen != (0..TILE) {
        // A scale of a position that is not seen may be NaN.
        products[..seen.start].fill(0.0);
        products[seen.end..].fill(0.0);
    }
    words(&products)
}

/// Words `2 * i` and `2 * i + 1`.
#[inline(always)]
fn pair(words: &[i16], i: usize) -> i32 {
    i32::from(words[2 * i] as u16) | i32::from(words[2 * i + 1]) << 16
}

/// The place in a tile of the byte of element `d` of the key of `position`.
#[inline(always)]
fn key_at(head_dim: usize, position: usize, d: usize) -> usize {
    let paired = usize::from(d / 2 * 2 + 1 < head_dim);
    d / 2 * 2 * TILE + (position << paired) + d % 2
}

/// The place in a tile of the byte of element `d` of the value of `position`.
#[inline(always)]
fn value_at(head_dim: usize, position: usize, d: usize) -> usize {
    (position / 2 * head_dim + d) * 2 + position % 2
}

/// The place of the scale of block `block` of `position`.
#[inline(always)]
fn scale_at(head_dim: usize, position: usize, block: usize) -> usize {
    head_dim * TILE + (block * TILE + position) * SCALE
}

/// The places of the scales of the first `positions`.
fn used_scales(head_dim: usize, positions: usize) -> impl Iterator<Item = Range<usize>> {
    let run = move |block| scale_at(head_dim, 0, block)..scale_at(head_dim, positions, block);
    (0..head_dim.div_ceil(BLOCK)).map(run)
}

/// Stores `head` as the key of `position` of a tile, and returns whether the blocks hold it: no infinity or NaN, and
/// nothing too large for an F16 scale, 127 * 65504 and more. Panics when the tile is of another length.
#[must_use]
pub fn put_key(tile: &mut [u8], position: usize, head: &[f32]) -> bool {
    put(tile, position, head, key_at)
}

/// Like [`put_key`], for a value.
#[must_use]
pub fn put_value(tile: &mut [u8], position: usize, head: &[f32]) -> bool {
    put(tile, position, head, value_at)
}

fn put(tile: &mut [u8], position: usize, head: &[f32], at: fn(usize, usize, usize) -> usize) -> bool {
    let head_dim = head.len();
    assert!(tile.len() == u8::tile_len(head_dim) && position < TILE, "{} bytes, position {position}", tile.len());
    let mut held = true;
    for (block, x) in head.chunks(BLOCK).enumerate() {
        let rounded = f16::from_f32(largest(x) / 127.0);
        let scale = rounded.to_f32();
        held &= scale.is_finite();
        tile[scale_at(head_dim, position, block)..][..SCALE].copy_from_slice(&rounded.to_le_bytes());
        for (d, &x) in (block * BLOCK..).zip(x) {
            // The stored scale is used; a subnormal scale may be a good deal less than it should be.
            let byte = if scale > 0.0 { nearest((x / scale).clamp(-127.0, 127.0)) } else { 0 };
            tile[at(head_dim, position, d)] = byte as i8 as u8;
        }
    }
    held
}

impl KvElement for u8 {
    const INTEGERS: bool = true;
    const WIDENS: bool = false;

    fn tile_len(head_dim: usize) -> usize {
        (head_dim + head_dim.div_ceil(BLOCK) * SCALE) * TILE
    }

    fn used_keys(head_dim: usize, positions: usize) -> impl Iterator<Item = Range<usize>> {
        let run = move |d| key_at(head_dim, 0, d)..key_at(head_dim, positions, d);
        (0..head_dim).step_by(2).map(run).chain(used_scales(head_dim, positions))
    }

    fn used_values(head_dim: usize, positions: usize) -> impl Iterator<Item = Range<usize>> {
        let pairs = value_at(head_dim, positions / 2 * 2, 0);
        // If a position has no next one to pair with, its elements alternate with those of the missing one.
        let single = (0..positions % 2 * head_dim).map(move |d| pairs + 2 * d..pairs + 2 * d + 1);
        std::iter::once(0..pairs).chain(single).chain(used_scales(head_dim, positions))
    }

    fn values_of_keys(keys: &[u8], head_dim: usize, values: &mut [u8], value_dim: usize) {
        assert!(
            keys.len() == u8::tile_len(head_dim) && values.len() == u8::tile_len(value_dim) && value_dim <= head_dim
        );
        for d in 0..value_dim {
            for position in 0..TILE {
                values[value_at(value_dim, position, d)] = keys[key_at(head_dim, position, d)];
            }
        }
        // The last block of a value is a part of one of a key, and has its scale.
        let scales = value_dim.div_ceil(BLOCK) * TILE * SCALE;
        values[value_dim * TILE..].copy_from_slice(&keys[head_dim * TILE..][..scales]);
    }

    fn products(q: &[f32], keys: &[u8]) -> [f32; TILE] {
        let mut products = [0.0; TILE];
        for block in 0..q.len().div_ceil(BLOCK) {
            let (words, unit) = query_words(q, block);
            for (position, product) in products.iter_mut().enumerate() {
                let elements = (block * BLOCK..q.len()).zip(&words);
                let byte = |d: usize| i32::from(keys[key_at(q.len(), position, d)] as i8);
                let sum: i32 = elements.map(|(d, &word)| i32::from(word) * byte(d)).sum();
                *product += sum as f32 * unit * f16_at(keys, scale_at(q.len(), position, block));
            }
        }
        products
    }

    fn add(weights: &[f32; TILE], values: &[u8], seen: &Range<usize>, out: &mut [f32]) {
        let head_dim = out.len();
        for (block, out) in out.chunks_mut(BLOCK).enumerate() {
            let scales = std::array::from_fn(|position| f16_at(values, scale_at(head_dim, position, block)));
            let (words, unit) = weight_words(weights, &scales, seen);
            for (d, out) in (block * BLOCK..).zip(out) {
                let byte = |position: usize| i32::from(values[value_at(head_dim, position, d)] as i8);
                let sum: i32 = words.iter().enumerate().map(|(i, &word)| i32::from(word) * byte(i)).sum();
                *out += sum as f32 * unit;
            }
        }
    }

    #[inline(always)]
    unsafe fn widened<S: Attend>(_: S, _: *const u8) -> S::Floats {
        unreachable!("bytes are multiplied as integers")
    }

    #[inline(always)]
    fn steps<S: Attend>(head_dim: usize) -> [usize; 2] {
        [head_dim.div_ceil(2), head_dim.div_ceil(BLOCK) * TILE / 2]
    }

    #[inline(always)]
    fn dots<S: Attend, const Q: usize, const N: usize>(
        simd: S,
        queries: &[Query<'_>],
        keys: &[u8],
        part: usize,
        ahead: Ahead,
    ) -> [[S::Floats; COLUMNS]; Q] {
        let head_dim = queries[0].q.len();
        assert!(keys.len() == u8::tile_len(head_dim) && part < S::PARTS && N <= COLUMNS);
        let first = part * COLUMNS * S::LANES;
        let mut sums = [[simd.all(0.0); COLUMNS]; Q];
        for block in 0..head_dim.div_ceil(BLOCK) {
            let (mut words, mut units) = ([[0; BLOCK]; Q], [0.0; Q]);
            for i in 0..Q {
                (words[i], units[i]) = query_words(&queries[i].q[..head_dim], block);
            }
            let left = (head_dim - block * BLOCK).min(BLOCK);
            let row = keys[block * BLOCK * TILE + 2 * first..].as_ptr();
            let mut products = [[simd.no_ints(); N]; Q];
            for step in 0..left / 2 {
                ahead.ask(block * BLOCK / 2 + step);
                // SAFETY: the pairs of elements `2 * step` and the next one of `N * LANES` positions from `first` on.
                let vectors = unsafe { load_pairs::<S, N>(simd, row.add(step * 2 * TILE)) };
                for i in 0..Q {
                    let x = simd.all_ints(pair(&words[i], step));
                    for j in 0..N {
                        products[i][j] = simd.add_pairs(products[i][j], x, vectors[j]);
                    }
                }
            }
            if left % 2 == 1 {
                for j in 0..N {
                    let at = keys[key_at(head_dim, first + j * S::LANES, head_dim - 1)..].as_ptr();
                    // SAFETY: the last elements of as many positions.
                    let vector = unsafe { simd.load_bytes_apart(at) };
                    for i in 0..Q {
                        let x = simd.all_ints(i32::from(words[i][left - 1]));
                        products[i][j] = simd.add_pairs(products[i][j], x, vector);
                    }
                }
            }
            for j in 0..N {
                let at = keys[scale_at(head_dim, first + j * S::LANES, block)..].as_ptr().cast::<f16>();
                // SAFETY: the scales of as many positions are there.
                let scales = unsafe { simd.load_f16::<true>(at, S::LANES) };
                for i in 0..Q {
                    let product = simd.mul(simd.to_floats(products[i][j]), simd.all(units[i]));
                    sums[i][j] = simd.mul_add(product, scales, sums[i][j]);
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn add_values<S: Attend, const WHOLE: bool, const Q: usize>(
        simd: S,
        queries: &mut [Query<'_>],
        attention: &Attention<'_, u8>,
        weights: &[[f32; TILE]; Q],
        rescale: &[f32; Q],
        mut ahead: Ahead,
    ) {
        // These are copied: through a reference they would be loaded again in each step.
        let (values, seen) = (attention.tile.values, attention.seen.clone());
        let head_dim = queries[0].out.len();
        assert!(values.len() == u8::tile_len(head_dim) && seen.end <= TILE);
        for block in 0..head_dim.div_ceil(BLOCK) {
            let mut scales = [0.0; TILE];
            for scales in scales.chunks_exact_mut(S::LANES).enumerate() {
                let at = values[scale_at(head_dim, scales.0 * S::LANES, block)..].as_ptr().cast::<f16>();
                // SAFETY: the scales of as many positions are there.
                let wide = unsafe { simd.load_f16::<true>(at, S::LANES) };
                // SAFETY: the chunk has as many.
                unsafe { simd.store(scales.1.as_mut_ptr(), S::LANES, wide) };
            }
            let (mut words, mut units) = ([[0; TILE]; Q], [0.0; Q]);
            for i in 0..Q {
                (words[i], units[i]) = weight_words(&weights[i], &scales, &seen);
            }
            match S::LANES {
                16 => add_block::<S, Q, 2>(simd, queries, attention, (&words, &units), rescale, block, ahead),
                _ => add_block::<S, Q, 4>(simd, queries, attention, (&words, &units), rescale, block, ahead),
            }
            ahead = ahead.after(TILE / 2);
        }
    }
}

/// Loads `N` vectors of pairs.
///
/// # Safety
/// That many elements can be read.
#[inline(always)]
unsafe fn load_pairs<S: Attend, const N: usize>(simd: S, at: *const u8) -> [S::Bits; N] {
    let mut vectors = [simd.no_ints(); N];
    for j in 0..N {
        // SAFETY: the caller guarantees it.
        vectors[j] = unsafe { simd.load_pairs(at.add(j * 2 * S::LANES)) };
    }
    vectors
}

/// Like [`KvElement::add_values`], for block `block` of `WIDE` vectors: the weights are `words` of these `units`.
#[inline(always)]
fn add_block<S: Attend, const Q: usize, const WIDE: usize>(
    simd: S,
    queries: &mut [Query<'_>],
    attention: &Attention<'_, u8>,
    (words, units): (&[[i16; TILE]; Q], &[f32; Q]),
    rescale: &[f32; Q],
    block: usize,
    ahead: Ahead,
) {
    // These are copied: through a reference they would be loaded again in each step.
    let (values, seen) = (attention.tile.values, attention.seen.clone());
    let head_dim = queries[0].out.len();
    assert!(values.len() == u8::tile_len(head_dim) && seen.end <= TILE && WIDE * S::LANES == BLOCK);
    let row = values[value_at(head_dim, 0, block * BLOCK)..].as_ptr();
    let mut products = [[simd.no_ints(); WIDE]; Q];
    for step in seen.start / 2..seen.end.div_ceil(2) {
        ahead.ask(step);
        // SAFETY: a block is 64 bytes of the row. What is missing of the last block is in the next row, and after the last
        // row are the scales, of which 64 positions have 128 bytes at least.
        let vectors = unsafe { load_pairs::<S, WIDE>(simd, row.add(step * 2 * head_dim)) };
        for i in 0..Q {
            let x = simd.all_ints(pair(&words[i], step));
            for j in 0..WIDE {
                products[i][j] = simd.add_pairs(products[i][j], x, vectors[j]);
            }
        }
    }
    for i in 0..Q {
        for j in 0..WIDE {
            let Some(out) = queries[i].out.get_mut(block * BLOCK + j * S::LANES..) else { break };
            // SAFETY: what is left can be read, or a vector of it.
            let before = unsafe { simd.load::<false>(out.as_ptr(), out.len()) };
            let before = simd.mul(before, simd.all(rescale[i]));
            let after = simd.mul_add(simd.to_floats(products[i][j]), simd.all(units[i]), before);
            // SAFETY: the reason above holds here too.
            unsafe { simd.store(out.as_mut_ptr(), out.len(), after) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_tile_is_an_element_or_a_scale() {
        for head_dim in [1, 8, 20, 31, 32, 33, 64, 80, 96, 128] {
            for at in [key_at, value_at] {
                let mut tile = vec![0; u8::tile_len(head_dim)];
                for position in 0..TILE {
                    (0..head_dim).for_each(|d| tile[at(head_dim, position, d)] += 1);
                    for block in 0..head_dim.div_ceil(BLOCK) {
                        let scale = scale_at(head_dim, position, block);
                        tile[scale..scale + SCALE].iter_mut().for_each(|byte| *byte += 1);
                    }
                }
                assert_eq!(tile, vec![1; tile.len()], "{head_dim}");
            }
        }
        assert_eq!(u8::tile_len(128), 128 * TILE * 34 / 32);
    }
}
