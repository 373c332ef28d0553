//! Q5_K by AVX-512 VNNI.

use super::blocks::{Panel, Step, columns};
use super::q4_k::{many_tokens, nibbles, one_token};
use crate::Call;
use crate::arch::x86_64::avx2::load_16;
use crate::dtypes::q5_k::{BYTES, Q5K};
use std::arch::x86_64::*;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    if !one_token::<5, BYTES, { 2 * BYTES }>(call, |block| halves(block)) {
        many_tokens::<Q5K, BYTES>(call, |blocks, i, panel| put(blocks, i, panel));
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn put(blocks: Step<'_, BYTES>, i: usize, panel: &mut Panel<'_>) {
    // The bits and the nibbles of blocks 0 and 1; of blocks 2 to 5; of blocks 4 to 7.
    let (first, middle, last) = (columns(blocks, 16), columns(blocks, 80), columns(blocks, 112));
    let ([bits, a], [b, c], [_, d]) = (halves_of(&first), halves_of(&middle), halves_of(&last));
    let (low, bit) = (_mm512_set1_epi8(15), _mm512_set1_epi8(16));
    let zero = _mm512_setzero_si512();
    for (pair, nibbles) in [a, b, c, d].into_iter().enumerate() {
        let (mut even, mut odd) = ([zero; 8], [zero; 8]);
        // Rotations that bring the bits of each block to bit 4.
        let to = |block: usize| _mm512_set1_epi32((36 - block as i32) % 32);
        for (c, (&nibbles, &bits)) in nibbles.iter().zip(bits).enumerate() {
            // (bits & bit) | nibbles, as the bits of the table 0xea: a & b | c.
            let with = |block: usize, nibbles: __m512i| {
                let nibbles = _mm512_and_si512(nibbles, low);
                _mm512_ternarylogic_epi32::<0xea>(_mm512_rolv_epi32(bits, to(block)), bit, nibbles)
            };
            even[c] = with(2 * pair, nibbles);
            odd[c] = with(2 * pair + 1, _mm512_srli_epi16::<4>(nibbles));
        }
        panel.put_columns(8 * i + 2 * pair, &even);
        panel.put_columns(8 * i + 2 * pair + 1, &odd);
    }
}

fn halves_of(columns: &[__m512i; 16]) -> [&[__m512i; 8]; 2] {
    let [first, second] = columns.as_chunks::<8>().0 else { unreachable!("two times eight") };
    [first, second]
}

/// The elements of a super-block in the order of `nibbles`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn halves(block: &[u8; BYTES]) -> [__m512i; 4] {
    let zero = _mm512_setzero_si512();
    let [even, even_later, odd, odd_later] = block.last_chunk().map_or([zero; 4], |bytes| nibbles(bytes));
    let bits = |bytes: &[u8]| _mm512_broadcast_i32x4(bytes.first_chunk().map_or(_mm_setzero_si128(), |b| load_16(b)));
    let (first, later) = (bits(&block[16..32]), bits(&block[32..48]));
    // Rotations that bring the bits of blocks 0, 2, 4, 6 and of 1, 3, 5, 7 to bit 4.
    let to_even = _mm512_setr_epi32(4, 4, 4, 4, 2, 2, 2, 2, 0, 0, 0, 0, 30, 30, 30, 30);
    let to_odd = _mm512_setr_epi32(3, 3, 3, 3, 1, 1, 1, 1, 31, 31, 31, 31, 29, 29, 29, 29);
    let bit = _mm512_set1_epi8(16);
    // (bits & bit) | nibbles, as the bits of the table 0xea: a & b | c.
    let both = |bits: __m512i, rotation: __m512i, nibbles: __m512i| {
        _mm512_ternarylogic_epi32::<0xea>(_mm512_rolv_epi32(bits, rotation), bit, nibbles)
    };
    [
        both(first, to_even, even),
        both(later, to_even, even_later),
        both(first, to_odd, odd),
        both(later, to_odd, odd_later),
    ]
}
