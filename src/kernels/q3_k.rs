//! Q3_K: 256 elements of 3 bits with a 6-bit scale each 16, `w = d * (sc - 32) * (q - 4)`; 110 bytes.
//!
//! 32 bytes with the high bits: bit `b` of byte `i` belongs to element `i` of block `b` of 32. 64 bytes of pairs of bits
//! as in Q2_K. 12 bytes of scales: the low four bits of scale `s` are in byte `s % 8`, low for `s < 8`, and its high two
//! in byte `8 + s % 4` at bit `2 * (s / 4)`. d in f16.
//!
//! The products of 16 elements are added exactly in integers, multiplied by their scales and added in pairs, still
//! exactly. Block `b` of 32 then adds `sum * (d * scale of x)` to lane `b` modulo 16 by a fused multiply-add, in order;
//! the lanes are added by `sum_lanes`.

use super::blocks::{Format, Unpacked, block_kernels};
use super::element::f16_at;
use super::q2_k::pair_of_bits;

const BYTES: usize = 110;

block_kernels!(Q3_K, "q3_k", Q3K);

struct Q3K;

impl Format for Q3K {
    const BITS: u32 = 3;
    const OFFSET: i32 = 4;
    const HALVES: bool = true;
}

/// The scale of elements `16 * s ..`, from -32 to 31.
fn scale(stored: &[u8; BYTES], s: usize) -> i32 {
    let low = stored[96 + s % 8] >> (4 * (s / 8)) & 15;
    let high = stored[104 + s % 4] >> (2 * (s / 4)) & 3;
    i32::from(low | high << 4) - 32
}

/// Elements from -4 to 3.
fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let element = |i: usize| (pair_of_bits(&stored[32..], b, i) | (stored[i] >> b & 1) << 2) as i8 - 4;
    let scales = [scale(stored, 2 * b), scale(stored, 2 * b + 1)];
    Unpacked::halves(f16_at(stored, 108), scales, std::array::from_fn(element))
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use super::{BYTES, Q3K};
    use crate::kernels::avx2::{Factors, load};
    use crate::kernels::blocks::simd_products;
    use crate::kernels::element::f16_at;
    use crate::kernels::q2_k::simd::two_bits;
    use std::arch::x86_64::*;

    simd_products!(Q3K, BYTES);

    /// The elements with their offset of 4: from 0 to 7.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn elements(block: &[u8; BYTES]) -> [__m256i; 8] {
        let zero = _mm256_setzero_si256();
        let mut all = block[32..].first_chunk().map_or([zero; 8], |bytes| two_bits(bytes));
        let bits = block.first_chunk().map_or(zero, |bytes| load(bytes));
        // The bits of each block brought to bit 2.
        let bits = [
            _mm256_slli_epi16::<2>(bits),
            _mm256_slli_epi16::<1>(bits),
            bits,
            _mm256_srli_epi16::<1>(bits),
            _mm256_srli_epi16::<2>(bits),
            _mm256_srli_epi16::<3>(bits),
            _mm256_srli_epi16::<4>(bits),
            _mm256_srli_epi16::<5>(bits),
        ];
        for (all, bits) in all.iter_mut().zip(bits) {
            *all = _mm256_or_si256(*all, _mm256_and_si256(bits, _mm256_set1_epi8(4)));
        }
        all
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn factors(block: &[u8; BYTES]) -> Factors {
        let low = block[96..].first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        let high = block[104..].first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes));
        let low = _mm_and_si128(_mm_set_epi64x(low >> 4, low), _mm_set1_epi8(15));
        // Scales 4 * k .. have their high bits in double word k.
        let high = _mm_and_si128(_mm_srlv_epi32(_mm_set1_epi32(high), _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
        let scales = _mm_or_si128(low, _mm_slli_epi16::<4>(high));
        let halves = _mm_sub_epi8(scales, _mm_set1_epi8(32));
        Factors { halves, ..Factors::scaled(_mm256_set1_ps(f16_at(block, 108))) }
    }
}
