//! IQ4_XS: 256 codes of 4 bits as eight blocks of 32 with a 6-bit scale each, `w = d * (sc - 32) * VALUES[code]` with
//! IQ4_NL's values; 136 bytes.
//!
//! d in f16; a word with the high two bits of scale `b` at bit `2 * b`; 4 bytes with the low four bits of scale `b` in
//! byte `b / 2`, low for even `b`; then 16 bytes of codes a block as in IQ4_NL.
//!
//! The products of a block are added exactly, in integers. Block `b` then adds `sum * (d * (sc - 32) * scale of x)` to
//! lane `b` modulo 16 by a fused multiply-add, in order; the lanes are added by `sum_lanes`.

use super::blocks::{Format, Unpacked, block_kernels, nibbles};
use super::element::f16_at;
use super::iq4_nl::VALUES;

const BYTES: usize = 136;

block_kernels!(IQ4_XS, "iq4_xs", Iq4Xs);

struct Iq4Xs;

impl Format for Iq4Xs {
    const BITS: u32 = 8;
}

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let high = u16::from_le_bytes([stored[2], stored[3]]) >> (2 * b) & 3;
    let low = stored[4 + b / 2] >> (4 * (b % 2)) & 15;
    let scale = f32::from(low) + 16.0 * f32::from(high) - 32.0;
    let codes = nibbles(&stored[8 + 16 * b..]);
    Unpacked::scaled(f16_at(stored, 0) * scale, codes.map(|code| VALUES[usize::from(code)]))
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use super::{BYTES, Iq4Xs, VALUES};
    use crate::kernels::avx2::{Factors, load_16};
    use crate::kernels::blocks::simd_products;
    use crate::kernels::element::f16_at;
    use crate::kernels::q4_0::avx2::nibbles;
    use std::arch::x86_64::*;

    simd_products!(Iq4Xs, BYTES);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn elements(block: &[u8; BYTES]) -> [__m256i; 8] {
        let values = _mm256_broadcastsi128_si256(load_16(&VALUES.map(|value| value as u8)));
        let mut all = [_mm256_setzero_si256(); 8];
        for (all, codes) in all.iter_mut().zip(block[8..].as_chunks::<16>().0) {
            *all = _mm256_shuffle_epi8(values, nibbles(codes));
        }
        all
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn factors(block: &[u8; BYTES]) -> Factors {
        let high = _mm256_set1_epi32(i32::from(u16::from_le_bytes([block[2], block[3]])));
        let low = _mm256_set1_epi32(i32::from_le_bytes([block[4], block[5], block[6], block[7]]));
        let high = _mm256_srlv_epi32(high, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
        let low = _mm256_srlv_epi32(low, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
        let high = _mm256_slli_epi32::<4>(_mm256_and_si256(high, _mm256_set1_epi32(3)));
        let low = _mm256_and_si256(low, _mm256_set1_epi32(15));
        let scales = _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
        let d = _mm256_set1_ps(f16_at(block, 0));
        Factors::scaled(_mm256_mul_ps(d, _mm256_cvtepi32_ps(scales)))
    }
}
