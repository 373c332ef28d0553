//! Q4_0 by AVX2.

use super::{load, load_16, load_floats, load_numbers, rows_times_token, sum_four_words, wide_panel};
use crate::Call;
use crate::arch::generic::wide::scales_of;
use crate::dtypes::q4_0::{BYTES, Q40};
use crate::scratch::{Scratch, arranged, arranged_bytes, arranged_sums};
use std::arch::x86_64::*;

const EIGHT: usize = 8 * BYTES;

/// The matrix product. With one token a vector has 16 elements of block `b` and of `b + 4`, so that products are added
/// without shuffles.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    let few = call.few_tokens(|Scratch { bytes, floats, ints, .. }, weight, [x], y| {
        // The activations, padded to a whole number of steps.
        let blocks = x.scales.len().next_multiple_of(8);
        let order = |i: usize| i / 16 * 16 + 2 * (i % 16 / 4 + 4 * (i % 2)) + i / 2 % 2;
        let x_bytes = arranged_bytes::<32, 1>(bytes, &[x], false, blocks, order)?;
        let x_scales = arranged(floats, [x.scales], blocks, |b| b)?;
        let x_offsets = arranged_sums::<Q40, 8, 1>(ints, &[x], blocks)?;
        rows_times_token(weight, y, |eights: [&[u8; EIGHT]; 4], _, i, sums| {
            let (x_scales, x_offsets) = (load_floats(&x_scales[i]), load_numbers(&x_offsets[i]));
            for (eight, [sums]) in eights.into_iter().zip(sums) {
                let scales = _mm256_mul_ps(scales_of(eight.as_chunks::<BYTES>().0).scales, x_scales);
                let dots = _mm256_add_epi32(products(eight, &x_bytes[i]), x_offsets);
                *sums = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), scales, *sums);
            }
        });
        Ok(())
    });
    if !few {
        wide_panel::many_tokens(call, &Q40);
    }
}

/// The products of eight blocks, added up for each block.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn products(eight: &[u8; EIGHT], x: &[[u8; 32]; 8]) -> __m256i {
    let low = _mm256_set1_epi8(15);
    let half = |b: usize| {
        let bytes = eight[b * BYTES + 2..].first_chunk();
        bytes.map_or(_mm_setzero_si128(), |bytes| load_16(bytes))
    };
    let mut sums = [_mm256_setzero_si256(); 4];
    for b in 0..4 {
        let both = _mm256_set_m128i(half(b + 4), half(b));
        let first = _mm256_maddubs_epi16(_mm256_and_si256(both, low), load(&x[2 * b]));
        let both = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
        sums[b] = _mm256_add_epi16(first, _mm256_maddubs_epi16(both, load(&x[2 * b + 1])));
    }
    sum_four_words(sums)
}
