//! Q4_K by AVX2.

use super::{load, load_16, load_floats, rows_times_token, store_numbers, sum_four_words, wide_panel};
use crate::Call;
use crate::arch::generic::wide::Factors;
use crate::dtypes::q4_k::{BYTES, Q4K};
use crate::scratch::{Scratch, arranged_bytes};
use std::arch::x86_64::*;

/// The matrix product. With one token a vector has 16 elements of block `b` and of `b + 4`, so that products are added
/// without shuffles; the scales of four rows are combined at once.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    let few = call.few_tokens(|Scratch { bytes, .. }, weight, [x], y| {
        let order = |i: usize| i / 16 * 16 + 2 * (i % 16 / 4 + 4 * (i % 2)) + i / 2 % 2;
        let x_bytes = arranged_bytes::<32, 1>(bytes, &[x], false, x.scales.len(), order)?;
        let (x_scales, x_sums) = (x.scales.as_chunks::<8>().0, x.sums.as_chunks::<8>().0);
        rows_times_token(weight, y, |blocks: [&[u8; BYTES]; 4], _, i, sums| {
            let (factors, bytes) = heads(blocks);
            let mut dots = [_mm256_setzero_si256(); 4];
            for (dots, block) in dots.iter_mut().zip(blocks) {
                *dots = products(block, &x_bytes[i]);
            }
            let (x_scales, x_sums) = (load_floats(&x_scales[i]), load_floats(&x_sums[i]));
            for r in 0..4 {
                let wide = |bytes: __m128i| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
                let bytes = load_16(&bytes.as_chunks::<16>().0[r]);
                let scales = _mm256_mul_ps(_mm256_set1_ps(factors[2 * r]), wide(bytes));
                let mins = _mm256_mul_ps(_mm256_set1_ps(factors[2 * r + 1]), wide(_mm_srli_si128::<8>(bytes)));
                let added = _mm256_mul_ps(scales, x_scales);
                let [sums] = &mut sums[r];
                *sums = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r]), added, *sums);
                *sums = _mm256_fnmadd_ps(mins, x_sums, *sums);
            }
        });
        Ok(())
    });
    if !few {
        wide_panel::many_tokens(call, &Q4K);
    }
}

/// The products of a super-block, added up for each block.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn products(block: &[u8; BYTES], x: &[[u8; 32]; 8]) -> __m256i {
    let zero = _mm_setzero_si128();
    let low = _mm256_set1_epi8(15);
    let mut sums = [_mm256_setzero_si256(); 4];
    for (j, sums) in sums.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let both = |at: usize| {
            let half = |at: usize| block[at..].first_chunk().map_or(zero, |bytes| load_16(bytes));
            _mm256_set_m128i(half(at + 64), half(at))
        };
        let (first, second) = (both(16 + 32 * j), both(32 + 32 * j));
        let words = |first: __m256i, second: __m256i, x: &[[u8; 32]]| {
            let first = _mm256_maddubs_epi16(_mm256_and_si256(first, low), load(&x[0]));
            _mm256_add_epi16(first, _mm256_maddubs_epi16(_mm256_and_si256(second, low), load(&x[1])))
        };
        sums[0] = words(first, second, &x[4 * j..]);
        sums[1] = words(_mm256_srli_epi16::<4>(first), _mm256_srli_epi16::<4>(second), &x[4 * j + 2..]);
    }
    sum_four_words(sums)
}

/// d and dmin of four super-blocks, alternating, and for each the eight sc and the eight m.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn heads(blocks: [&[u8; BYTES]; 4]) -> ([f32; 8], [u8; 64]) {
    let heads = blocks.map(|block| block.first_chunk::<16>().map_or(_mm_setzero_si128(), |bytes| load_16(bytes)));
    let two = |i: usize| _mm_unpacklo_epi32(heads[i], heads[i + 1]);
    let (mut factors, mut bytes) = ([0.0; 8], [0; 64]);
    store_numbers(&mut factors, _mm256_castps_si256(_mm256_cvtph_ps(_mm_unpacklo_epi64(two(0), two(2)))));
    for (bytes, heads) in bytes.as_chunks_mut::<32>().0.iter_mut().zip(heads.as_chunks::<2>().0) {
        store_numbers(bytes, sixes(_mm256_set_m128i(heads[1], heads[0])));
    }
    (factors, bytes)
}

/// The eight sc and the eight m of the heads of two super-blocks.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn sixes(heads: __m256i) -> __m256i {
    // d and dmin, then the twelve bytes as three double words x, y, z. The low four sc are in x and the low four m
    // in y, by their low 6 bits; the high four have their low 4 bits in the low and high nibbles of z, and their
    // high 2 bits at the top of x and y.
    let twice = |a, b, c, d| _mm256_setr_epi32(a, b, c, d, a, b, c, d);
    let low = _mm256_srlv_epi32(_mm256_shuffle_epi32::<0b11_10_11_01>(heads), twice(0, 0, 0, 4)); // x z y z
    let low = _mm256_and_si256(low, twice(0x3f3f_3f3f, 0x0f0f_0f0f, 0x3f3f_3f3f, 0x0f0f_0f0f));
    let high = _mm256_srli_epi32::<2>(_mm256_shuffle_epi32::<0b10_10_01_01>(heads)); // x x y y
    _mm256_or_si256(low, _mm256_and_si256(high, twice(0, 0x3030_3030, 0, 0x3030_3030)))
}

/// `d * sc` and `dmin * m` of the eight blocks of a super-block of Q4_K or Q5_K.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn k_factors<const BYTES: usize>(block: &[u8; BYTES]) -> Factors {
    let head = block.first_chunk::<16>().map_or(_mm_setzero_si128(), |bytes| load_16(bytes));
    let bytes = _mm256_castsi256_si128(sixes(_mm256_castsi128_si256(head)));
    let wide = |bytes: __m128i| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    let d = _mm_cvtph_ps(head);
    Factors {
        scales: _mm256_mul_ps(_mm256_broadcastss_ps(d), wide(bytes)),
        mins: _mm256_mul_ps(_mm256_broadcastss_ps(_mm_movehdup_ps(d)), wide(_mm_srli_si128::<8>(bytes))),
        halves: _mm_setzero_si128(),
    }
}
