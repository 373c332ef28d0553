//! Q8_0 by AVX-512 VNNI.

use super::blocks::{Panel, Step, many_tokens_of_blocks};
use super::{columns_of_16, load, load_apart, load_floats, load_numbers, rows_times_token, sum_quarters_of_four};
use crate::Call;
use crate::arch::x86_64::avx2::{load as load_32, load_16};
use crate::dtypes::q8_0::{BYTES, Q80};
use crate::scratch::{Scratch, arranged, arranged_bytes};
use std::arch::x86_64::*;

/// Blocks in a step of the product with one token.
const STEP: usize = 16;

/// The order in which the lanes have each eight blocks.
const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    let few = call.few_tokens(|Scratch { bytes, floats, ints, .. }, weight, [x], y| {
        // The activations, padded to a whole number of steps.
        let blocks = x.scales.len().next_multiple_of(STEP);
        let order = |i: usize| ORDER[i % 8] + i / 8 * 8;
        let x_bytes = arranged_bytes::<64, 1>(bytes, &[x], false, blocks, |i| i)?;
        let x_scales = arranged(floats, [x.scales], blocks, order)?;
        let x_offsets = arranged(ints, [x.offsets], blocks, order)?;
        let order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
        rows_times_token!(1, weight, y, order, |[blocks]: [&[u8; STEP * BYTES]; 1], _, i, [[sums]]| {
            [[step(blocks, &x_bytes[i], &x_scales[i], &x_offsets[i], sums)]]
        });
        Ok(())
    });
    if !few {
        many_tokens_of_blocks::<Q80, BYTES, { 4 * BYTES }>(call, |fours, i, panel| put(fours, i, panel));
    }
}

/// Puts the elements of four blocks of 16 rows into a panel.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn put(fours: Step<'_, { 4 * BYTES }>, i: usize, panel: &mut Panel<'_>) {
    let flip = _mm512_set1_epi8(-128);
    for half in 0..8 {
        let at = half / 2 * BYTES + 2 + half % 2 * 16;
        let mut columns = columns_of_16(|r| load_16(fours.part(r, at)));
        columns.iter_mut().for_each(|column| *column = _mm512_xor_si512(*column, flip));
        panel.put_some_columns(4 * i + half / 2, half % 2 * 4, &columns);
    }
}

/// Adds the products of 16 blocks, one in each lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn step(
    blocks: &[u8; STEP * BYTES],
    x: &[[u8; 64]; 8],
    x_scales: &[f32; 16],
    x_offsets: &[i32; 16],
    sums: __m512,
) -> __m512 {
    let (blocks, _) = blocks.as_chunks::<{ 2 * BYTES }>();
    let zero = _mm512_setzero_si512();
    let flip = _mm512_set1_epi8(-128);
    let from = _mm512_castsi256_si512(_mm256_setr_epi16(0, 0, 0, 0, 17, 17, 17, 17, 0, 0, 0, 0, 17, 17, 17, 17));
    let mut products = [zero; 8];
    let mut scales = [zero; 2];
    for i in 0..8 {
        let two = &blocks[i];
        // The f16 at words 0 and 17 go to the places of their blocks in ORDER.
        let first = two.first_chunk::<64>().map_or(zero, |bytes| load_apart(bytes));
        let to = 0x11u32 << (i % 4 + i / 4 * 8);
        scales[i / 4] = _mm512_mask_permutexvar_epi16(scales[i / 4], to, from, first);
        let low = two[2..].first_chunk::<32>().map_or(_mm256_setzero_si256(), |bytes| load_32(bytes));
        let high = two.last_chunk::<32>().map_or(_mm256_setzero_si256(), |bytes| load_32(bytes));
        let pair = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
        products[i] = _mm512_dpbusd_epi32(zero, _mm512_xor_si512(pair, flip), load(&x[i]));
    }
    // The eight sums of each block's half: within each 128 bits, one double word for each pair of blocks.
    let [p0, p1, p2, p3, p4, p5, p6, p7] = products;
    let (a, b) = (sum_quarters_of_four([p0, p1, p2, p3]), sum_quarters_of_four([p4, p5, p6, p7]));
    let even = _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b);
    let odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b);
    let dots = _mm512_add_epi32(_mm512_add_epi32(even, odd), load_numbers(x_offsets)); // in ORDER
    let scales = _mm512_castsi512_si256(_mm512_or_si512(scales[0], scales[1]));
    let scales = _mm512_mul_ps(_mm512_cvtph_ps(scales), load_floats(x_scales));
    _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scales, sums)
}
