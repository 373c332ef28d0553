//! Q2_K: 256 elements of 2 bits with a 4-bit scale and a 4-bit minimum each 16, `w = d * sc * q - dmin * m`; 84 bytes.
//!
//! 16 bytes with sc in the low and m in the high half, 64 bytes of pairs of bits, d and dmin in f16. Each half of 128
//! elements has 32 of the 64 bytes: element `32 * j + i` is at bit `2 * j` of byte `i`.
//!
//! The products of 16 elements are added exactly in integers, multiplied by their scales and added in pairs, and so are
//! the sums of activations with the minima, still exactly. Block `b` of 32 then adds `sum * (d * scale of x)` and
//! `-sum of minima * (dmin * scale of x)` to lane `b` modulo 16 by fused multiply-adds, in order; the lanes are added by
//! `sum_lanes`.

use super::blocks::block_kernels;
use super::f16::f16_to_f32;
use super::{Input, LANES, Output, sum_lanes};

const BYTES: usize = 84;

block_kernels!(Q2_K, "q2_k");

fn d_and_dmin(block: &[u8; BYTES]) -> (f32, f32) {
    (f16_to_f32([block[80], block[81]]), f16_to_f32([block[82], block[83]]))
}

/// The scale and the minimum of elements `16 * s ..`.
fn scale_and_min(block: &[u8; BYTES], s: usize) -> (i32, i32) {
    (i32::from(block[s] & 15), i32::from(block[s] >> 4))
}

/// Element `i` of 256.
fn element(block: &[u8; BYTES], i: usize) -> i32 {
    i32::from(block[16 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3)
}

fn widen(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<256>().0) {
        let (d, dmin) = d_and_dmin(block);
        for (i, out) in out.iter_mut().enumerate() {
            let (sc, m) = scale_and_min(block, i / 16);
            *out = d * (sc * element(block, i)) as f32 - dmin * m as f32;
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
                let (d, dmin) = d_and_dmin(block);
                let (mut sum, mut mins) = (0, 0);
                for (i, &x) in x.bytes[32 * b..][..32].iter().enumerate() {
                    let i = 32 * (b % 8) + i;
                    let (sc, m) = scale_and_min(block, i / 16);
                    sum += sc * element(block, i) * i32::from(x);
                    mins += m * i32::from(x);
                }
                let lane = &mut lanes[b % LANES];
                *lane = (sum as f32).mul_add(d * x.scales[b], *lane);
                *lane = (-mins as f32).mul_add(dmin * x.scales[b], *lane);
            }
            output.part(token, row, 1)[0] = sum_lanes(lanes);
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod simd {
    use super::BYTES;
    use crate::kernels::avx2::{Factors, Format, load, load_16};
    use crate::kernels::blocks::simd_products;
    use std::arch::x86_64::*;

    struct Q2K;

    impl Format for Q2K {
        const BITS: u32 = 2;
        const OFFSET: i32 = 0;
        const MINS: bool = true;
        const HALVES: bool = true;
    }

    simd_products!(Q2K, BYTES);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn elements(block: &[u8; BYTES]) -> [__m256i; 8] {
        block[16..].first_chunk().map_or([_mm256_setzero_si256(); 8], |bytes| two_bits(bytes))
    }

    /// The pairs of bits of eight blocks.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in crate::kernels) fn two_bits(bytes: &[u8; 64]) -> [__m256i; 8] {
        let mut all = [_mm256_setzero_si256(); 8];
        for (four, bytes) in all.as_chunks_mut::<4>().0.iter_mut().zip(bytes.as_chunks::<32>().0) {
            let bytes = load(bytes);
            let shifted =
                [bytes, _mm256_srli_epi16::<2>(bytes), _mm256_srli_epi16::<4>(bytes), _mm256_srli_epi16::<6>(bytes)];
            *four = shifted.map(|bits| _mm256_and_si256(bits, _mm256_set1_epi8(3)));
        }
        all
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn factors(block: &[u8; BYTES]) -> Factors {
        let both = i32::from_le_bytes([block[80], block[81], block[82], block[83]]);
        let d = _mm_cvtph_ps(_mm_cvtsi32_si128(both));
        Factors {
            scales: _mm256_broadcastss_ps(d),
            mins: _mm256_broadcastss_ps(_mm_movehdup_ps(d)),
            halves: block.first_chunk().map_or(_mm_setzero_si128(), |bytes| load_16(bytes)),
        }
    }
}
