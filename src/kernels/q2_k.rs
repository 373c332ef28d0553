//! Q2_K: 256 elements of 2 bits with a 4-bit scale and a 4-bit minimum each 16, `w = d * sc * q - dmin * m`; 84 bytes.
//!
//! 16 bytes with sc in the low and m in the high half, 64 bytes of pairs of bits, d and dmin in f16. Each half of 128
//! elements has 32 of the 64 bytes: element `32 * j + i` is at bit `2 * j` of byte `i`.
//!
//! The products of 16 elements are added exactly in integers, multiplied by their scales and added in pairs, and so are
//! the sums of activations with the minima, still exactly. Block `b` of 32 then adds `sum * (d * scale of x)` and
//! `-sum of minima * (dmin * scale of x)` to lane `b` modulo 16 by fused multiply-adds, in order; the lanes are added by
//! `sum_lanes`.

use super::blocks::{Format, Unpacked, block_kernels};
use super::element::f16_at;

const BYTES: usize = 84;

block_kernels!(Q2_K, "q2_k", Q2K);

struct Q2K;

impl Format for Q2K {
    const BITS: u32 = 2;
    const MINS: bool = true;
    const HALVES: bool = true;
}

/// Element `i` of block `b` of the eight whose pairs of bits `bytes` begin with.
pub(super) fn pair_of_bits(bytes: &[u8], b: usize, i: usize) -> u8 {
    bytes[b / 4 * 32 + i] >> (2 * (b % 4)) & 3
}

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let factors = [stored[2 * b], stored[2 * b + 1]].map(i32::from);
    Unpacked {
        quants: std::array::from_fn(|i| pair_of_bits(&stored[16..], b, i) as i8),
        scale: f16_at(stored, 80),
        scales: factors.map(|both| both & 15),
        min: f16_at(stored, 82),
        mins: factors.map(|both| both >> 4),
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod simd {
    use super::{BYTES, Q2K};
    use crate::kernels::avx2::{Factors, load, load_16};
    use crate::kernels::blocks::simd_products;
    use std::arch::x86_64::*;

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
