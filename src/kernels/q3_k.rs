//! Q3_K: 256 elements of 3 bits with a 6-bit scale each 16, `w = d * (sc - 32) * (q - 4)`; 110 bytes.
//!
//! 32 bytes with the high bits: bit `b` of byte `i` belongs to element `i` of block `b` of 32. 64 bytes of pairs of bits
//! as in Q2_K. 12 bytes of scales: the low four bits of scale `s` are in byte `s % 8`, low for `s < 8`, and its high two
//! in byte `8 + s % 4` at bit `2 * (s / 4)`. d in f16.
//!
//! The products of 16 elements are added exactly in integers, multiplied by their scales and added in pairs, still
//! exactly. Block `b` of 32 then adds `sum * (d * scale of x)` to lane `b` modulo 16 by a fused multiply-add, in order;
//! the lanes are added by `sum_lanes`.

use super::blocks::block_kernels;
use super::f16::f16_to_f32;
use super::{Input, LANES, Output, sum_lanes};

const BYTES: usize = 110;

block_kernels!(Q3_K, "q3_k");

fn d(block: &[u8; BYTES]) -> f32 {
    f16_to_f32([block[108], block[109]])
}

/// The scale of elements `16 * s ..`, from -32 to 31.
fn scale(block: &[u8; BYTES], s: usize) -> i32 {
    let low = block[96 + s % 8] >> (4 * (s / 8)) & 15;
    let high = block[104 + s % 4] >> (2 * (s / 4)) & 3;
    i32::from(low | high << 4) - 32
}

/// Element `i` of 256, from -4 to 3.
fn element(block: &[u8; BYTES], i: usize) -> i32 {
    let low = block[32 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
    let high = block[i % 32] >> (i / 32) & 1;
    i32::from(low | high << 2) - 4
}

fn widen(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<256>().0) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = d(block) * (scale(block, i / 16) * element(block, i)) as f32;
        }
    }
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    for (row, bytes) in weight.chunks_exact(weight.len() / output.rows()).enumerate() {
        for token in 0..input.tokens() {
            let x = input.q8(token);
            let mut lanes = [0.0; LANES];
            for b in 0..input.inputs() / 32 {
                let block = &bytes.as_chunks::<BYTES>().0[b / 8];
                let products = x.bytes[32 * b..][..32].iter().enumerate().map(|(i, &x)| {
                    let i = 32 * (b % 8) + i;
                    scale(block, i / 16) * element(block, i) * i32::from(x)
                });
                let sum: i32 = products.sum();
                let lane = &mut lanes[b % LANES];
                *lane = (sum as f32).mul_add(d(block) * x.scales[b], *lane);
            }
            output.part(token, row, 1)[0] = sum_lanes(lanes);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use super::{BYTES, d};
    use crate::kernels::avx2::{Factors, Format, load};
    use crate::kernels::blocks::simd_products;
    use crate::kernels::q2_k::simd::two_bits;
    use std::arch::x86_64::*;

    struct Q3K;

    impl Format for Q3K {
        const BITS: u32 = 3;
        const OFFSET: i32 = 4;
        const MINS: bool = false;
        const HALVES: bool = true;
    }

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
        Factors {
            scales: _mm256_set1_ps(d(block)),
            mins: _mm256_setzero_ps(),
            halves: _mm_sub_epi8(scales, _mm_set1_epi8(32)),
        }
    }
}
