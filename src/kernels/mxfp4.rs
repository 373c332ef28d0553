//! MXFP4: blocks of 32 floats of 4 bits (E2M1) with a power of 2 as their scale (E8M0); 17 bytes: the exponent, then 16
//! bytes with element `i` in the low and element `i + 16` in the high half of byte `i`.
//!
//! Elements are taken twice, so that they are integers, and the scale half: `2^(exponent - 128)`. The order of sums is
//! Q4_0's.

use super::blocks::{block_kernels, portable_scaled, widen_scaled};
use super::{Input, Output};

const BYTES: usize = 17;

block_kernels!(MXFP4, "mxfp4");

/// Twice what a code stands for (OCP Microscaling Formats 1.0, E2M1).
const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half the scale; the two least are subnormal. 255, no number by the standard, is 2^127 as in ggml.
fn scale(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0..=1 => 0x0020_0000 << exponent,
        _ => u32::from(exponent - 1) << 23,
    })
}

fn block(bytes: &[u8; BYTES], _: usize) -> (f32, [i8; 32]) {
    let code = |i: usize| bytes[1 + i % 16] >> (4 * (i / 16)) & 15;
    (scale(bytes[0]), std::array::from_fn(|i| VALUES[usize::from(code(i))]))
}

fn widen(row: &[u8], out: &mut [f32]) {
    widen_scaled(row, out, block);
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    portable_scaled(weight, input, output, block);
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use super::{BYTES, VALUES, scale};
    use crate::kernels::avx2::{Factors, Format, load_16, load_floats};
    use crate::kernels::blocks::simd_products;
    use crate::kernels::q4_0::avx2::nibbles;
    use std::arch::x86_64::*;

    struct Mxfp4;

    impl Format for Mxfp4 {
        const BITS: u32 = 5;
        const OFFSET: i32 = 16;
        const MINS: bool = false;
        const HALVES: bool = false;
    }

    simd_products!(Mxfp4, 8 * BYTES);

    /// The elements with their offset of 16: from 4 to 28.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn elements(eight: &[u8; 8 * BYTES]) -> [__m256i; 8] {
        let values = _mm256_broadcastsi128_si256(load_16(&VALUES.map(|value| (value + 16) as u8)));
        let mut all = [_mm256_setzero_si256(); 8];
        for (all, block) in all.iter_mut().zip(eight.as_chunks::<BYTES>().0) {
            *all = _mm256_shuffle_epi8(values, nibbles(block));
        }
        all
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn factors(eight: &[u8; 8 * BYTES]) -> Factors {
        let mut scales = [0.0; 8];
        for (to, block) in scales.iter_mut().zip(eight.as_chunks::<BYTES>().0) {
            *to = scale(block[0]);
        }
        Factors { scales: load_floats(&scales), mins: _mm256_setzero_ps(), halves: _mm_setzero_si128() }
    }
}
