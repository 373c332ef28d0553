//! MXFP4: blocks of 32 floats of 4 bits (E2M1) with a power of 2 as their scale (E8M0); 17 bytes: the exponent, then 16
//! bytes with element `i` in the low and element `i + 16` in the high half of byte `i`.
//!
//! Elements are taken twice, so that they are integers, and the scale half: `2^(exponent - 128)`. The order of sums is
//! Q4_0's.

use super::blocks::{Format, Unpacked, block_kernels, nibbles};

const BYTES: usize = 17;

block_kernels!(MXFP4, "mxfp4", Mxfp4);

pub(super) struct Mxfp4;

impl Format for Mxfp4 {
    const BITS: u32 = 5;
    const OFFSET: i32 = 16;
}

/// Twice what a code stands for (OCP Microscaling Formats 1.0, E2M1).
pub(super) const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half the scale; the two least are subnormal. 255, NaN by the standard, is 2^127 as in ggml.
pub(super) fn scale(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0..=1 => 0x0020_0000 << exponent,
        _ => u32::from(exponent - 1) << 23,
    })
}

fn unpack(stored: &[u8; BYTES], _: usize) -> Unpacked {
    Unpacked::scaled(scale(stored[0]), nibbles(&stored[1..]).map(|code| VALUES[usize::from(code)]))
}

#[cfg(target_arch = "x86_64")]
pub(super) mod simd {
    use super::{BYTES, Mxfp4, VALUES};
    use crate::kernels::avx2::{Factors, load_16};
    use crate::kernels::blocks::{eight_blocks, simd_products};
    use crate::kernels::q4_0::avx2::nibbles;
    use std::arch::x86_64::*;

    simd_products!(Mxfp4, 8 * BYTES);
    eight_blocks!(exponents_of);

    /// The elements with their offset of 16: from 4 to 28.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn block_elements(block: &[u8; BYTES]) -> __m256i {
        let values = _mm256_broadcastsi128_si256(load_16(&VALUES.map(|value| (value + 16) as u8)));
        _mm256_shuffle_epi8(values, nibbles(block))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn exponents_of(blocks: &[[u8; BYTES]]) -> Factors {
        let mut exponents = [0; 8];
        exponents.iter_mut().zip(blocks).for_each(|(exponent, block)| *exponent = block[0]);
        scales(exponents)
    }

    /// `scale` of eight exponents.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in crate::kernels) fn scales(exponents: [u8; 8]) -> Factors {
        let exponents = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(exponents)));
        let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(exponents, _mm256_set1_epi32(1)));
        let least = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), exponents);
        let is_least = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), exponents);
        Factors::scaled(_mm256_castsi256_ps(_mm256_blendv_epi8(normal, least, is_least)))
    }
}
