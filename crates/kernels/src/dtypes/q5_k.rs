//! Q5_K: 256 elements as eight blocks of 32 elements of 5 bits, `w = d * sc * q - dmin * m`; 176 bytes.
//!
//! The first 16 bytes are Q4_K's: d, dmin, and the 6-bit sc and m of the eight blocks. Then 32 bytes with the high bits:
//! bit `b` of byte `i` belongs to element `i` of block `b`. Then 128 bytes of nibbles as in Q4_K.
//!
//! The order of sums is Q4_K's.

#![allow(unsafe_code)]

use super::blocks::{Format, Unpacked, block_kernels};
use super::q4_k::{nibble, scale_and_min};

const BYTES: usize = 176;

block_kernels!(Q5_K, "q5_k", Q5K, simd::avx2, avx512_vnni::matmul);

struct Q5K;

impl Format for Q5K {
    const BITS: u32 = 5;
    const MINS: bool = true;
}

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let (scale, min) = scale_and_min(stored, b);
    let element = |i: usize| nibble(&stored[48..], b, i) | (stored[16 + i] >> b & 1) << 4;
    Unpacked::with_min(scale, min, std::array::from_fn(|i| element(i) as i8))
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod simd {
    use super::{BYTES, Q5K};
    use crate::arch::generic::wide::{Bytes, all, and, for_vectors, left, load, or, right};
    use crate::dtypes::blocks::wide_products;
    use crate::dtypes::q4_k::simd::{factors, nibbles};

    wide_products!(Q5K, BYTES);

    for_vectors! {
        fn elements(block: &[u8; BYTES]) -> [Bytes; 8] {
            let mut elements = block.last_chunk().map_or([all(0); 8], |bytes| nibbles(bytes));
            let bits = block[16..].first_chunk().map_or(all(0), |bytes| load(bytes));
            // The bits of each block brought to bit 4.
            let bits = [
                left::<4>(bits),
                left::<3>(bits),
                left::<2>(bits),
                left::<1>(bits),
                bits,
                right::<1>(bits),
                right::<2>(bits),
                right::<3>(bits),
            ];
            for (element, bits) in elements.iter_mut().zip(bits) {
                *element = or(*element, and(bits, all(16)));
            }
            elements
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512_vnni {
    use super::{BYTES, Q5K};
    use crate::arch::x86_64::avx2::load_16;
    use crate::arch::x86_64::avx512::blocks::{Panel, Step, columns};
    use crate::dtypes::q4_k::avx512_vnni::{many_tokens, nibbles, one_token};
    use crate::order::TOKENS_WITHOUT_PANELS;
    use crate::{Input, Output};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) fn matmul(weight: &[u8], input: &Input, output: &mut Output<'_>) {
        if input.tokens() <= TOKENS_WITHOUT_PANELS {
            for token in 0..input.tokens() {
                one_token::<5, BYTES, { 2 * BYTES }>(weight, input, token, output, |block| halves(block));
            }
        } else {
            many_tokens::<Q5K, BYTES>(weight, input, output, |blocks, i, panel| put(blocks, i, panel));
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn put(blocks: Step<'_, BYTES>, i: usize, panel: &mut Panel<'_>) {
        // The bits and the nibbles of blocks 0 and 1; of 2 to 5; of 4 to 7.
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
        let bits =
            |bytes: &[u8]| _mm512_broadcast_i32x4(bytes.first_chunk().map_or(_mm_setzero_si128(), |b| load_16(b)));
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
}
