//! Quantization to blocks of signed bytes by AVX-512.

use super::{load_floats, store_floats, store_numbers, sum_quarters_of_four, transpose};
use crate::input::quantize::{Blocks, TOGETHER};
use crate::ops::exp::ROUND;
use crate::order::BLOCK;
use std::arch::x86_64::*;

/// Like `crate::input::quantize::quantize`, with the same bits.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn quantize(x: &[[f32; BLOCK]; TOGETHER], to: &mut Blocks) {
    let halves = |b: usize| {
        let [first, second] = x[b].as_chunks::<16>().0 else { unreachable!("a block is 32 elements") };
        [load_floats(first), load_floats(second)]
    };
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    let bits = |v: __m512| _mm512_and_si512(_mm512_castps_si512(v), magnitude);
    let mut rows = [_mm512_setzero_si512(); TOGETHER];
    for (b, row) in rows.iter_mut().enumerate() {
        let [first, second] = halves(b);
        *row = _mm512_max_epu32(bits(first), bits(second));
    }
    // From here on each lane is a block.
    let mut columns = transpose(&rows);
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            columns[i] = _mm512_max_epu32(columns[i], columns[i + half]);
        }
    }
    let scales = _mm512_div_ps(_mm512_castsi512_ps(columns[0]), _mm512_set1_ps(127.0));
    let divides = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(scales, _mm512_setzero_ps());
    let mut divisors = [0.0; TOGETHER];
    store_floats(&mut divisors, _mm512_mask_mov_ps(_mm512_set1_ps(1.0), divides, scales));

    let round = _mm512_set1_ps(ROUND);
    let quantized = |v: __m512, divisor: __m512| {
        let shifted = _mm512_castps_si512(_mm512_add_ps(_mm512_div_ps(v, divisor), round));
        let q = _mm512_sub_epi32(shifted, _mm512_castps_si512(round));
        _mm512_max_epi32(_mm512_min_epi32(q, _mm512_set1_epi32(127)), _mm512_set1_epi32(-127))
    };
    // The order of four elements each, after they were packed into bytes in each 128 bits.
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    // Each 128 bits have the sums of four bytes each of a half, for two blocks.
    let mut fours = [_mm512_setzero_si512(); TOGETHER / 2];
    for (i, bytes) in to.bytes.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let words = |b: usize| {
            let (divisor, [first, second]) = (_mm512_set1_ps(divisors[b]), halves(b));
            _mm512_packs_epi32(quantized(first, divisor), quantized(second, divisor))
        };
        let packed = _mm512_packs_epi16(words(2 * i), words(2 * i + 1));
        let packed = _mm512_permutexvar_epi32(order, packed);
        let ones = _mm512_set1_epi8(1);
        // Pairs of bytes as words, then pairs of words.
        fours[i] = _mm512_madd_epi16(_mm512_maddubs_epi16(ones, packed), _mm512_set1_epi16(1));
        store_numbers(bytes, packed);
    }
    let sums = fours.as_chunks::<4>().0.iter().map(|v| sum_quarters_of_four(*v));
    let [mut low, mut high] = [_mm512_setzero_si512(); 2];
    [&mut low, &mut high].into_iter().zip(sums).for_each(|(to, sums)| *to = sums);
    // Blocks 0 to 7 are in `low`: the first and second halves of even blocks, then those of odd blocks.
    let first = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
    let second = _mm512_add_epi32(first, _mm512_set1_epi32(4));
    let first = _mm512_permutex2var_epi32(low, first, high);
    let second = _mm512_permutex2var_epi32(low, second, high);
    let both = _mm512_add_epi32(first, second);
    let offset = |sum: __m512i| _mm512_slli_epi32::<7>(_mm512_sub_epi32(_mm512_setzero_si512(), sum));
    store_numbers(&mut to.half_offsets[0], offset(first));
    store_numbers(&mut to.half_offsets[1], offset(second));
    store_numbers(&mut to.offsets, offset(both));
    store_floats(&mut to.scales, scales);
    store_floats(&mut to.sums, _mm512_mul_ps(scales, _mm512_cvtepi32_ps(both)));
}
