//! Products with many tokens for block dtypes: 16 weight rows unpacked once into bytes, then multiplied with all tokens.
//!
//! A panel holds 16 rows so that one vector register has four consecutive elements of each row, and one `vpdpbusd` with
//! four activations of a token, repeated in all lanes, advances 16 outputs. A lane is a row: each output's sum runs
//! through the same operations as in the dtype's product with one token, where a lane is a block.

#![allow(unsafe_code)]

use super::avx512::{Scratch, load_floats, room, store, store_floats, transpose, with_scratch};
use super::input::{BLOCK, Q8};
use super::{Input, LANES, Output};
use std::arch::x86_64::*;

/// Rows in a panel.
pub(super) const ROWS: usize = 16;

/// One scale a block, and bytes with an offset of 128 (Q8_0).
pub(super) const SCALES: u8 = 0;
/// One scale and one minimum a block, and unsigned bytes (Q4_K).
pub(super) const SCALES_AND_MINS: u8 = 1;
/// An integer scale each 16 elements, one factor for all of a block, and bytes with an offset of 128 (Q6_K).
pub(super) const HALF_SCALES: u8 = 2;

/// The memory of one panel, to be filled by the dtype.
pub(super) struct Panel<'a> {
    /// `[blocks, 8, 16 rows, 4]`
    bytes: &'a mut [[u8; 64]],
    /// `[blocks, floats a block, 16 rows]`
    floats: &'a mut [[f32; ROWS]],
}

impl Panel<'_> {
    /// Puts in elements `64 * i ..` of all rows.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn put(&mut self, i: usize, rows: [__m512i; ROWS]) {
        let bytes: &mut [[u8; 64]; 16] = &mut self.bytes.as_chunks_mut::<16>().0[i];
        for (bytes, column) in bytes.iter_mut().zip(transpose(rows)) {
            store(bytes, column);
        }
    }

    /// Puts in 16 floats of all rows: for row `r`, `rows[r]` goes to the floats `16 * i ..`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn put_floats(&mut self, i: usize, rows: [__m512i; ROWS]) {
        for (floats, column) in self.floats[16 * i..].iter_mut().zip(transpose(rows)) {
            store_floats(floats, _mm512_castsi512_ps(column));
        }
    }

    /// Puts in the 16 scales of a super-block of 256 for all rows, and its factor for all rows.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn put_scales(&mut self, i: usize, rows: [__m512i; ROWS], factors: __m512) {
        let columns = transpose(rows);
        for (b, floats) in self.floats[24 * i..].as_chunks_mut::<3>().0.iter_mut().take(8).enumerate() {
            store_floats(&mut floats[0], _mm512_castsi512_ps(columns[2 * b]));
            store_floats(&mut floats[1], _mm512_castsi512_ps(columns[2 * b + 1]));
            store_floats(&mut floats[2], factors);
        }
    }

    /// The floats `[blocks, floats a block, 16 rows]`.
    pub(super) fn floats(&mut self) -> &mut [[f32; ROWS]] {
        self.floats
    }
}

/// The floats that a kind has for each block.
const fn floats_a_block(kind: u8) -> usize {
    [1, 2, 3][kind as usize]
}

/// Multiplies rows with tokens; `unpack(rows, panel)` fills a panel with up to 16 rows of stored bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn matmul<const KIND: u8>(
    weight: &[u8],
    input: &Input,
    output: &mut Output<'_>,
    unpack: impl Fn(&[u8], &mut Panel<'_>),
) {
    let blocks = input.inputs() / BLOCK;
    let row_bytes = weight.len() / output.rows();
    // The dtypes unpack whole super-blocks or pairs of blocks.
    let padded = blocks.next_multiple_of(16);
    let (bytes_each, floats_each) = (padded * BLOCK * ROWS, padded * floats_a_block(KIND) * ROWS);
    with_scratch(|Scratch { bytes, floats, .. }| {
        let panels = output.rows().div_ceil(ROWS);
        let bytes = room(bytes, panels * bytes_each);
        let floats = room(floats, panels * floats_each);
        for (i, rows) in weight.chunks(ROWS * row_bytes).enumerate() {
            let bytes = &mut bytes[i * bytes_each..][..bytes_each];
            let mut panel = Panel {
                bytes: bytes.as_chunks_mut().0,
                floats: floats[i * floats_each..][..floats_each].as_chunks_mut().0,
            };
            unpack(rows, &mut panel);
        }
        let tokens = input.tokens();
        let mut token = 0;
        while token < tokens {
            let mut all = |token, count| {
                for (i, (bytes, floats)) in
                    bytes.chunks_exact(bytes_each).zip(floats.chunks_exact(floats_each)).enumerate()
                {
                    let at = (i * ROWS, token);
                    match count {
                        1 => tile::<KIND, 1>(bytes, floats, blocks, input, at, output),
                        2 => tile::<KIND, 2>(bytes, floats, blocks, input, at, output),
                        3 => tile::<KIND, 3>(bytes, floats, blocks, input, at, output),
                        4 => tile::<KIND, 4>(bytes, floats, blocks, input, at, output),
                        5 => tile::<KIND, 5>(bytes, floats, blocks, input, at, output),
                        6 => tile::<KIND, 6>(bytes, floats, blocks, input, at, output),
                        _ => tile::<KIND, 8>(bytes, floats, blocks, input, at, output),
                    }
                }
            };
            let count = match tokens - token {
                few @ 1..=6 => few,
                7 | 9 => 5,
                _ => 8,
            };
            all(token, count);
            token += count;
        }
    });
}

/// One panel times `T` tokens.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tile<const KIND: u8, const T: usize>(
    bytes: &[u8],
    floats: &[f32],
    blocks: usize,
    input: &Input,
    (row, token): (usize, usize),
    output: &mut Output<'_>,
) {
    let x: [Q8<'_>; T] = std::array::from_fn(|t| input.q8(token + t));
    for x in &x {
        assert!(x.bytes.len() >= blocks * BLOCK && x.scales.len() >= blocks && x.sums.len() >= blocks);
        assert!(x.offsets.len() >= blocks && x.half_offsets.len() >= 2 * blocks);
    }
    assert!(bytes.len() >= blocks * BLOCK * ROWS && floats.len() >= blocks * floats_a_block(KIND) * ROWS);
    let zero = _mm512_setzero_ps();
    // The lanes of `sum_lanes`, visited so that each pair it adds is at hand: 0, 8, 4, 12, 2, 10, ...
    let mut waiting = [[zero; T]; 5];
    for i in 0..LANES {
        let lane = (i as u8).reverse_bits() as usize >> 4;
        let mut sums = [zero; T];
        for b in (lane..blocks).step_by(LANES) {
            // SAFETY: `b < blocks`, and the lengths above are those of `blocks` blocks.
            unsafe { block::<KIND, T>(bytes, floats, b, &x, &mut sums) };
        }
        let mut level = 0;
        while i >> level & 1 == 1 {
            for t in 0..T {
                sums[t] = _mm512_add_ps(waiting[level][t], sums[t]);
            }
            level += 1;
        }
        waiting[level] = sums;
    }
    let rows = ROWS.min(output.rows() - row);
    for (t, sums) in waiting[4].into_iter().enumerate() {
        let mut y = [0.0; ROWS];
        store_floats(&mut y, sums);
        output.part(token + t, row, rows).copy_from_slice(&y[..rows]);
    }
}

/// Adds block `b` of 16 rows to the sums of `T` tokens.
///
/// # Safety
/// The panel and all of `x` have that block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn block<const KIND: u8, const T: usize>(
    bytes: &[u8],
    floats: &[f32],
    b: usize,
    x: &[Q8<'_>; T],
    sums: &mut [__m512; T],
) {
    /// Four consecutive groups of four elements.
    ///
    /// # Safety
    /// The panel and all of `x` have elements `at ..`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn half<const T: usize>(bytes: &[u8], at: usize, x: &[Q8<'_>; T], mut sums: [__m512i; T]) -> [__m512i; T] {
        for group in (at..at + 16).step_by(4) {
            // SAFETY: the caller's: four elements of 16 rows.
            let w = unsafe { _mm512_load_si512(bytes.as_ptr().add(group * ROWS).cast()) };
            for t in 0..T {
                // SAFETY: the caller's: four elements.
                let x = unsafe { x[t].bytes.as_ptr().add(group).cast::<i32>().read_unaligned() };
                sums[t] = _mm512_dpbusd_epi32(sums[t], w, _mm512_set1_epi32(x));
            }
        }
        sums
    }
    let at = b * BLOCK;
    let float = |i: usize| {
        // SAFETY: the caller's: the floats of block `b` for 16 rows.
        load_floats(unsafe { &*floats.as_ptr().add((b * floats_a_block(KIND) + i) * ROWS).cast::<[f32; 16]>() })
    };
    if KIND == HALF_SCALES {
        let first = std::array::from_fn(|t| {
            // SAFETY: the caller's.
            _mm512_set1_epi32(unsafe { *x[t].half_offsets.get_unchecked(2 * b) })
        });
        // SAFETY: the caller's.
        let first = unsafe { half::<T>(bytes, at, x, first) };
        let second = std::array::from_fn(|t| {
            // SAFETY: the caller's.
            _mm512_set1_epi32(unsafe { *x[t].half_offsets.get_unchecked(2 * b + 1) })
        });
        // SAFETY: the caller's.
        let second = unsafe { half::<T>(bytes, at + 16, x, second) };
        let (first_scale, second_scale, factor) = (float(0), float(1), float(2));
        for t in 0..T {
            // |sum| <= 16 * 32 * 127 = 2^15.99 and |scale| <= 2^7: every product and their sum are exact in f32.
            let sum = _mm512_mul_ps(_mm512_cvtepi32_ps(first[t]), first_scale);
            let sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(second[t]), second_scale, sum);
            // SAFETY: the caller's.
            let scale = _mm512_set1_ps(unsafe { *x[t].scales.get_unchecked(b) });
            sums[t] = _mm512_fmadd_ps(sum, _mm512_mul_ps(factor, scale), sums[t]);
        }
        return;
    }
    let start = std::array::from_fn(|t| {
        if KIND == SCALES {
            // SAFETY: the caller's.
            _mm512_set1_epi32(unsafe { *x[t].offsets.get_unchecked(b) })
        } else {
            _mm512_setzero_si512()
        }
    });
    // SAFETY: the caller's.
    let products = unsafe { half::<T>(bytes, at, x, start) };
    // SAFETY: the caller's.
    let products = unsafe { half::<T>(bytes, at + 16, x, products) };
    let factor = float(0);
    for t in 0..T {
        // SAFETY: the caller's.
        let scale = _mm512_set1_ps(unsafe { *x[t].scales.get_unchecked(b) });
        sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[t]), _mm512_mul_ps(factor, scale), sums[t]);
    }
    if KIND == SCALES_AND_MINS {
        let min = float(1);
        for t in 0..T {
            // SAFETY: the caller's.
            let sum = _mm512_set1_ps(unsafe { *x[t].sums.get_unchecked(b) });
            sums[t] = _mm512_fnmadd_ps(min, sum, sums[t]);
        }
    }
}
