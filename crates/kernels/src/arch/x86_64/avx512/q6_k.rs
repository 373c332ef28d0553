//! Q6_K by AVX-512 VNNI.

use super::blocks::{Panel, ROWS, Step, columns, many_tokens_by};
use super::{columns_of_16, load, load_floats, load_numbers, rows_times_token};
use crate::Call;
use crate::arch::x86_64::avx2::{load as load_32, load_16};
use crate::dtypes::q6_k::{BYTES, Q6K};
use crate::scratch::{Scratch, arranged, arranged_bytes, room};
use std::arch::x86_64::*;

/// The order in which the product with one token has the eight blocks of a super-block.
const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    let few = call.few_tokens(|Scratch { bytes, floats, ints, .. }, weight, [x], y| {
        // The activations, padded to whole steps; and what the weights' offset adds too much in each four products.
        let steps = x.scales.len().div_ceil(16);
        let x_bytes = arranged_bytes::<64, 1>(bytes, &[x], false, steps * 16, |i| i)?;
        let x_scales = arranged(floats, [x.scales], steps * 16, |i| ORDER[i % 8] + i / 8 * 8)?;
        let x_offsets = room(ints, steps * 128)?;
        let fours = x_bytes.as_flattened().as_flattened().as_chunks::<4>().0;
        for (offset, four) in x_offsets.iter_mut().zip(fours) {
            *offset = -32 * four.iter().map(|&q| i32::from(q as i8)).sum::<i32>();
        }
        let x_offsets = x_offsets.as_chunks::<16>().0.as_chunks::<8>().0;
        let order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
        rows_times_token!(1, weight, y, order, |[two]: [&[u8; 2 * BYTES]; 1], _, i, [[sums]]| {
            let [a, b] = two.as_chunks::<BYTES>().0 else { unreachable!("two super-blocks") };
            [[step(a, b, &x_bytes[i], &x_offsets[i], &x_scales[i], sums)]]
        });
        Ok(())
    });
    if !few {
        many_tokens_by::<Q6K, BYTES>(call, 8, |blocks, i, panel| {
            put(blocks, i, panel);
            put_scales(blocks, i, panel);
        });
    }
}

/// The elements of a super-block, 64 a vector, with their offset of 32: from 0 to 63.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn elements(block: &[u8; BYTES]) -> [__m512i; 4] {
    let zero = _mm512_setzero_si512();
    let (nibble, pair) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x30));
    // Rotations of double words that bring each 32 bytes' pairs to bits 4 and 5.
    let first = _mm512_setr_epi32(4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2);
    let second = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 30, 30, 30, 30, 30, 30, 30, 30);
    let half = |low: Option<&[u8; 64]>, high: Option<&[u8; 32]>| {
        let low = low.map_or(zero, |bytes| load(bytes));
        let high = high.map_or(zero, |bytes| _mm512_broadcast_i64x4(load_32(bytes)));
        // (low & nibble) | (high & pair), as the bits of the table 0xea: a & b | c.
        let both =
            |low: __m512i, high: __m512i| _mm512_ternarylogic_epi32::<0xea>(low, nibble, _mm512_and_si512(high, pair));
        (both(low, _mm512_rolv_epi32(high, first)), both(_mm512_srli_epi16::<4>(low), _mm512_rolv_epi32(high, second)))
    };
    let (a, b) = half(block.first_chunk(), block[128..].first_chunk());
    let (c, d) = half(block[64..].first_chunk(), block[160..].first_chunk());
    [a, b, c, d]
}

/// The 16 scales of a super-block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn scales(block: &[u8; BYTES]) -> __m128i {
    block[192..].first_chunk::<16>().map_or(_mm_setzero_si128(), |bytes| load_16(bytes))
}

fn d(block: &[u8; BYTES]) -> i32 {
    i32::from(u16::from_le_bytes([block[208], block[209]]))
}

/// Stores the scales of super-block `i` of 16 rows, and d.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn put_scales(blocks: Step<'_, BYTES>, i: usize, panel: &mut Panel<'_>) {
    let mut d = [[0; 2]; ROWS];
    d.iter_mut().enumerate().for_each(|(r, d)| *d = *blocks.part(r, 208));
    let d = d.as_flattened().first_chunk::<32>();
    let d = _mm512_cvtph_ps(d.map_or(_mm256_setzero_si256(), |halves| load_32(halves)));
    for (four, scales) in columns_of_16(|r| load_16(blocks.part(r, 192))).into_iter().enumerate() {
        let scale = |k: i32| {
            let scales = _mm512_sllv_epi32(scales, _mm512_set1_epi32(24 - 8 * k));
            _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(scales))
        };
        panel.put_floats(8 * i + 2 * four, [scale(0), scale(1), d]);
        panel.put_floats(8 * i + 2 * four + 1, [scale(2), scale(3), d]);
    }
}

/// Stores the elements of super-block `i` of 16 rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn put(blocks: Step<'_, BYTES>, i: usize, panel: &mut Panel<'_>) {
    let (nibble, pair) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x30));
    let pairs = columns(blocks, 128);
    for (half, high) in pairs.as_chunks::<8>().0.iter().enumerate() {
        let lows = columns(blocks, 64 * half);
        for (j, low) in lows.as_chunks::<8>().0.iter().enumerate() {
            let (mut first, mut second) = ([nibble; 8], [nibble; 8]);
            for (c, (&low, &high)) in low.iter().zip(high).enumerate() {
                // An offset of 32 becomes one of 128; (low & nibble) | (high & pair) by the table a & b | c.
                let both = |low: __m512i, high: __m512i| {
                    let high = _mm512_and_si512(high, pair);
                    let both = _mm512_ternarylogic_epi32::<0xea>(low, nibble, high);
                    _mm512_add_epi8(both, _mm512_set1_epi8(96))
                };
                let high = _mm512_rorv_epi32(high, _mm512_set1_epi32(2 * j as i32));
                first[c] = both(low, _mm512_slli_epi16::<4>(high));
                second[c] = both(_mm512_srli_epi16::<4>(low), high);
            }
            panel.put_columns(8 * i + 4 * half + j, &first);
            panel.put_columns(8 * i + 4 * half + 2 + j, &second);
        }
    }
}

/// Adds the products of two super-blocks, one block in each lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn step(
    a: &[u8; BYTES],
    b: &[u8; BYTES],
    x: &[[u8; 64]; 8],
    x_offsets: &[[i32; 16]; 8],
    x_scales: &[f32; 16],
    sums: __m512,
) -> __m512 {
    let one = |block: &[u8; BYTES], x: &[[u8; 64]], x_offsets: &[[i32; 16]]| {
        let elements = elements(block);
        let scales = _mm512_broadcast_i32x4(scales(block));
        // Four products of one sixteen are at most 32 * 127 * 4: they fit 16 bits. In the k-th 128 bits come those
        // of sixteen k of the first vector and of the second, times their scales: sixteens 8 * j + k and + 4.
        let half = |j: usize, pick: __m512i| {
            let dots = |i: usize| _mm512_dpbusd_epi32(load_numbers(&x_offsets[i]), elements[i], load(&x[i]));
            let scales = _mm512_srai_epi16::<8>(_mm512_shuffle_epi8(scales, pick));
            _mm512_madd_epi16(_mm512_packs_epi32(dots(2 * j), dots(2 * j + 1)), scales)
        };
        // Scale k, and scale k + 4, four times each into the high bytes of words.
        let word = |scale: i32| scale << 24 | 0x80 << 16 | scale << 8 | 0x80;
        let pick = |k: i32| [word(k), word(k), word(k + 4), word(k + 4)];
        let [p, q, r, s] = [pick(0), pick(1), pick(2), pick(3)];
        let first = _mm512_setr_epi32(
            p[0], p[1], p[2], p[3], q[0], q[1], q[2], q[3], r[0], r[1], r[2], r[3], s[0], s[1], s[2], s[3],
        );
        let second = _mm512_add_epi8(first, _mm512_set1_epi16(0x0800));
        let (first, second) = (_mm512_castsi512_ps(half(0, first)), _mm512_castsi512_ps(half(1, second)));
        let even = _mm512_castps_si512(_mm512_shuffle_ps::<0b10_00_10_00>(first, second));
        let odd = _mm512_castps_si512(_mm512_shuffle_ps::<0b11_01_11_01>(first, second));
        _mm512_add_epi32(even, odd)
    };
    let (dots_a, dots_b) = (one(a, &x[..4], &x_offsets[..4]), one(b, &x[4..], &x_offsets[4..]));
    let even = _mm512_shuffle_i32x4::<0b10_00_10_00>(dots_a, dots_b);
    let odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(dots_a, dots_b);
    let dots = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)); // blocks 0 2 4 6 | 1 3 5 7 | of b
    let factors = _mm_cvtph_ps(_mm_cvtsi32_si128(d(a) | d(b) << 16));
    let lanes = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    let factors = _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(factors));
    _mm512_fmadd_ps(dots, _mm512_mul_ps(factors, load_floats(x_scales)), sums)
}
