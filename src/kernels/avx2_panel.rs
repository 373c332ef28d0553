//! Products with many tokens for block dtypes by AVX2: 8 weight rows unpacked once into bytes, then multiplied with all
//! tokens, as in `super::panel` with half the rows.
//!
//! One vector has four consecutive elements of each row; one `vpmaddubsw` with four activations of a token, repeated in
//! all lanes, gives two sums of pairs for each of 8 outputs. As many of these as fit 16 bits are added before they are
//! brought to 32.

#![allow(unsafe_code)]

use super::avx2::{Factors, load, load_floats, pairs, scales_and_mins_of_halves, store, store_floats, transpose};
use super::blocks::Format;
use super::input::{BLOCK, Packed};
use super::order::{GROUP, Order};
use super::x86::{room, with_scratch};
use super::{Input, LANES, Output};
use std::arch::x86_64::*;

/// Rows in a panel.
const ROWS: usize = 8;

/// The most tokens at once; the group's others follow.
const TOKENS: usize = 4;

/// The memory of one panel.
struct Panel<'a> {
    order: Order,
    /// `[blocks, 8, 8 rows, 4]`
    bytes: &'a mut [[[u8; 32]; 8]],
    /// `[blocks, floats a block, 8 rows]`
    floats: &'a mut [[f32; ROWS]],
}

/// The floats that a format has for each block: a scale, a minimum, the scales of both halves, and their minima, as far
/// as there are any.
const fn floats_a_block<F: Format>() -> usize {
    (1 + F::MINS as usize) * (1 + 2 * F::HALVES as usize)
}

/// Vectors of pairs that fit 16 bits when they are added up; half a block has four.
const fn pairs_a_word<F: Format>() -> usize {
    match F::BITS {
        0..=4 if !F::HALVES => 8,
        0..=5 => 4,
        6 => 2,
        _ => 1,
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<F: Format, const EIGHT: usize>(
    weight: &[u8],
    input: &Input,
    output: &mut Output<'_>,
    elements: impl Fn(&[u8; EIGHT]) -> [__m256i; 8],
    factors: impl Fn(&[u8; EIGHT]) -> Factors,
) {
    let order = Order::new(input.inputs() / BLOCK);
    let row_bytes = weight.len() / output.rows();
    let (bytes_each, floats_each) = (order.blocks * BLOCK * ROWS, order.blocks * floats_a_block::<F>() * ROWS);
    let done = with_scratch(|scratch| {
        let panels = output.rows().div_ceil(ROWS);
        let bytes = room(&mut scratch.bytes, panels * bytes_each)?;
        let floats = room(&mut scratch.floats, panels * floats_each)?;
        for (i, rows) in weight.chunks(ROWS * row_bytes).enumerate() {
            let bytes = &mut bytes[i * bytes_each..][..bytes_each];
            let mut panel = Panel {
                order,
                bytes: bytes.as_chunks_mut().0.as_chunks_mut().0,
                floats: floats[i * floats_each..][..floats_each].as_chunks_mut().0,
            };
            unpack::<F, EIGHT>(rows, row_bytes, &mut panel, &elements, &factors);
        }
        for first in (0..input.tokens()).step_by(GROUP) {
            let tiles = Tiles { order, bytes, floats, x: input.packed(first / GROUP), first };
            tiles.multiply::<F>(output);
        }
        Ok(())
    });
    output.note(done);
}

/// Fills a panel with up to 8 rows; what the others hold is unspecified.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<F: Format, const EIGHT: usize>(
    rows: &[u8],
    row_bytes: usize,
    panel: &mut Panel<'_>,
    elements: impl Fn(&[u8; EIGHT]) -> [__m256i; 8],
    factors: impl Fn(&[u8; EIGHT]) -> Factors,
) {
    let order = panel.order;
    let zero = _mm256_setzero_si256();
    let mut padded = [0; EIGHT];
    for i in 0..order.blocks.div_ceil(8) {
        let (mut quants, mut scales, mut mins) = ([[zero; ROWS]; 8], [zero; ROWS], [zero; ROWS]);
        let (mut halves, mut half_mins) = ([[zero; ROWS]; 2], [[zero; ROWS]; 2]);
        for (r, row) in rows.chunks_exact(row_bytes).enumerate() {
            let bytes = &row[i * EIGHT..];
            let eight = bytes.first_chunk().unwrap_or_else(|| {
                padded[..bytes.len()].copy_from_slice(bytes);
                &padded
            });
            for (quants, elements) in quants.iter_mut().zip(elements(eight)) {
                quants[r] = elements;
            }
            let factors = factors(eight);
            scales[r] = _mm256_castps_si256(factors.scales);
            mins[r] = _mm256_castps_si256(factors.mins);
            if F::HALVES {
                let wide = |bytes: __m128i| _mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
                let [scales, mins] = scales_and_mins_of_halves::<F>(factors.halves);
                for (to, bytes) in [(&mut halves, scales), (&mut half_mins, mins)] {
                    to[0][r] = wide(bytes);
                    to[1][r] = wide(_mm_srli_si128::<8>(bytes));
                }
            }
        }
        let (scales, mins) = (transpose(scales), transpose(mins));
        let [halves, half_mins] = [halves, half_mins].map(|halves| halves.map(|halves| transpose(halves)));
        for b in 0..8 {
            let Some(place) = order.place(8 * i + b) else { return };
            for (bytes, column) in panel.bytes[place].iter_mut().zip(transpose(quants[b])) {
                store(bytes, column);
            }
            let each = floats_a_block::<F>();
            let floats = &mut panel.floats[place * each..][..each];
            let mut put = |i: usize, v: __m256i| store_floats(&mut floats[i], _mm256_castsi256_ps(v));
            put(0, scales[b]);
            if F::HALVES {
                put(1, halves[b / 4][b % 4 * 2]);
                put(2, halves[b / 4][b % 4 * 2 + 1]);
            }
            if F::MINS {
                put(each / 2, mins[b]);
            }
            if F::MINS && F::HALVES {
                put(4, half_mins[b / 4][b % 4 * 2]);
                put(5, half_mins[b / 4][b % 4 * 2 + 1]);
            }
        }
    }
}

/// All panels of a call, and the group of tokens that they are multiplied with, whose first is `first`.
struct Tiles<'a> {
    order: Order,
    bytes: &'a [u8],
    floats: &'a [f32],
    x: Packed<'a>,
    first: usize,
}

impl Tiles<'_> {
    /// All panels times the group.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn multiply<F: Format>(&self, output: &mut Output<'_>) {
        for panel in 0..output.rows().div_ceil(ROWS) {
            for token in (0..self.x.tokens).step_by(TOKENS) {
                match self.x.tokens - token {
                    1 => self.tile::<F, 1>(panel, token, output),
                    2 => self.tile::<F, 2>(panel, token, output),
                    3 => self.tile::<F, 3>(panel, token, output),
                    _ => self.tile::<F, TOKENS>(panel, token, output),
                }
            }
        }
    }

    /// Panel `panel` times `T` tokens of the group from `token` on.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn tile<F: Format, const T: usize>(&self, panel: usize, token: usize, output: &mut Output<'_>) {
        let zero = _mm256_setzero_ps();
        let mut waiting = [[zero; T]; 5];
        let mut place = 0;
        for i in 0..LANES {
            let mut sums = [zero; T];
            for _ in 0..self.order.count(i) {
                self.block::<F, T>(panel, place, token, &mut sums);
                place += 1;
            }
            let mut level = 0;
            while i >> level & 1 == 1 {
                for t in 0..T {
                    sums[t] = _mm256_add_ps(waiting[level][t], sums[t]);
                }
                level += 1;
            }
            waiting[level] = sums;
        }
        let rows = ROWS.min(output.rows() - panel * ROWS);
        for (t, sums) in waiting[4].into_iter().enumerate() {
            let mut y = [0.0; ROWS];
            store_floats(&mut y, sums);
            output.part(self.first + token + t, panel * ROWS, rows).copy_from_slice(&y[..rows]);
        }
    }

    /// Adds the block at `place` of 8 rows to the sums of `T` tokens of the group from `token` on.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn block<F: Format, const T: usize>(&self, panel: usize, place: usize, token: usize, sums: &mut [__m256; T]) {
        let at = panel * self.order.blocks + place;
        let w: &[[u8; 32]; 8] = &self.bytes.as_chunks::<32>().0.as_chunks::<8>().0[at];
        let each = floats_a_block::<F>();
        let w_floats = &self.floats.as_chunks::<ROWS>().0[at * each..][..each];
        let tokens = self.x.tokens;
        let x: &[[[i8; 4]; 8]] = &self.x.bytes.as_chunks::<4>().0.as_chunks::<8>().0[place * tokens + token..][..T];
        let floats = &self.x.floats[place * 2 * tokens + token..][..tokens + T];
        let ints = &self.x.ints[place * 3 * tokens + token..][..2 * tokens + T];
        let zero = _mm256_setzero_si256();
        let ones = _mm256_set1_epi16(1);

        // The sums of the products of some groups of four elements.
        let products = |groups: std::ops::Range<usize>| {
            let mut dots = [zero; T];
            for some in groups.step_by(const { pairs_a_word::<F>() }) {
                let mut words = [zero; T];
                for group in some..some + const { pairs_a_word::<F>() } {
                    let w = load(&w[group]);
                    for t in 0..T {
                        let x = _mm256_set1_epi32(i32::from_le_bytes(x[t][group].map(|x| x as u8)));
                        words[t] = _mm256_add_epi16(words[t], pairs::<F>(w, x));
                    }
                }
                for t in 0..T {
                    dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(words[t], ones));
                }
            }
            dots
        };
        // What the offset adds too much: for the block (0) or a half (1, 2).
        let less = |dots: __m256i, i: usize, t: usize| {
            let offset = if F::OFFSET > 0 { ints[i * tokens + t] >> F::SHIFT } else { 0 };
            _mm256_cvtepi32_ps(_mm256_add_epi32(dots, _mm256_set1_epi32(offset)))
        };
        if F::HALVES {
            let (first, second) = (products(0..4), products(4..8));
            for t in 0..T {
                // |sum| <= 16 * 32 * 127 < 2^16 and |scale| <= 2^7: both products and their sum are exact in f32.
                let sum = _mm256_mul_ps(less(first[t], 1, t), load_floats(&w_floats[1]));
                let sum = _mm256_fmadd_ps(less(second[t], 2, t), load_floats(&w_floats[2]), sum);
                let factor = _mm256_mul_ps(load_floats(&w_floats[0]), _mm256_set1_ps(floats[t]));
                sums[t] = _mm256_fmadd_ps(sum, factor, sums[t]);
                if F::MINS {
                    // The ints are -128 times a sum; what follows is exact too.
                    let x_sum = |half: usize| _mm256_cvtepi32_ps(_mm256_set1_epi32(ints[half * tokens + t] >> 7));
                    let less = _mm256_mul_ps(x_sum(1), load_floats(&w_floats[4]));
                    let less = _mm256_fmadd_ps(x_sum(2), load_floats(&w_floats[5]), less);
                    let factor = _mm256_mul_ps(load_floats(&w_floats[3]), _mm256_set1_ps(floats[t]));
                    sums[t] = _mm256_fmadd_ps(less, factor, sums[t]);
                }
            }
            return;
        }
        let dots = products(0..8);
        for t in 0..T {
            let factor = _mm256_mul_ps(load_floats(&w_floats[0]), _mm256_set1_ps(floats[t]));
            sums[t] = _mm256_fmadd_ps(less(dots[t], 0, t), factor, sums[t]);
            if F::MINS {
                sums[t] = _mm256_fnmadd_ps(load_floats(&w_floats[1]), _mm256_set1_ps(floats[tokens + t]), sums[t]);
            }
        }
    }
}
