//! Q5_0 by AVX-512 VNNI.

use super::blocks::{Panel, ROWS, Step, many_tokens_of_blocks, put as put_rows};
use super::load_numbers;
use super::q4_0::{nibbles, one_token, places, scales_in_blocks};
use crate::Call;
use crate::arch::generic::wide::nibbles as nibbles_of;
use crate::dtypes::q5_0::{BYTES, Q50, high_bits};
use std::arch::x86_64::*;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    let elements = |first, second| elements(first, second);
    if !one_token::<Q50, { 16 * BYTES }, 1, _>(call, 1, elements, scales_in_blocks::<BYTES>()) {
        many_tokens_of_blocks::<Q50, BYTES, { 4 * BYTES }>(call, |fours, i, panel| put(fours, i, panel));
    }
}

/// Puts the elements of four blocks of 16 rows into a panel.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn put(fours: Step<'_, { 4 * BYTES }>, i: usize, panel: &mut Panel<'_>) {
    // An offset of 16 becomes one of 128: 112 more, and with the high bit 128, as the byte 0x80.
    let (without, with) = (_mm512_set1_epi8(112), _mm512_set1_epi8(-128));
    for half in 0..2 {
        let mut rows = [_mm512_setzero_si512(); ROWS];
        for (r, row) in rows.iter_mut().enumerate() {
            let four = fours.row(r);
            let [a, b] = [0, 1].map(|b| &four.as_chunks::<BYTES>().0[2 * half + b]);
            let bits = u64::from(high_bits(a)) | u64::from(high_bits(b)) << 32;
            let two = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(nibbles_of(a)), nibbles_of(b));
            *row = _mm512_add_epi8(two, _mm512_mask_blend_epi8(bits, without, with));
        }
        put_rows(panel, 2 * i + half, &rows);
    }
}

/// The elements of four blocks, in the order of `nibbles`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn elements(first: __m512i, second: __m512i) -> (__m512i, __m512i) {
    let (low, high) = nibbles::<BYTES>(first, second);
    // The low words of the bits of the four blocks, then the high ones: a mask for each half.
    let at = const {
        let (all, mut at, mut i) = (places(BYTES, 4 * BYTES, 2, 2), [0; 32], 0);
        while i < 8 {
            at[i] = all[i % 4 * 8 + i / 4];
            i += 1;
        }
        at
    };
    let bits = _mm512_castsi512_si128(_mm512_permutex2var_epi16(first, load_numbers(&at), second));
    let (mask, high_mask) = (_mm_cvtsi128_si64(bits) as u64, _mm_extract_epi64::<1>(bits) as u64);
    let bit = _mm512_set1_epi8(16);
    (_mm512_mask_add_epi8(low, mask, low, bit), _mm512_mask_add_epi8(high, high_mask, high, bit))
}
