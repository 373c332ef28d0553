//! IQ4_NL: blocks of 32 codes of 4 bits with an f16 scale, `w = d * VALUES[code]`; 18 bytes: d, then 16 bytes with the
//! code of element `i` in the low and that of element `i + 16` in the high half of byte `i`.
//!
//! The order of sums is Q4_0's.

use super::blocks::block_kernels;
use super::q4_0::{blocks_portable, widen_blocks};
use super::{Input, Output};

const BYTES: usize = 18;

block_kernels!(IQ4_NL, "iq4_nl");

/// What a code stands for, in IQ4_XS too (ggml-common.h, `kvalues_iq4nl`).
pub(super) const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

fn elements(block: &[u8; BYTES]) -> [i8; 32] {
    std::array::from_fn(|i| VALUES[usize::from(block[2 + i % 16] >> (4 * (i / 16)) & 15)])
}

fn widen(row: &[u8], out: &mut [f32]) {
    widen_blocks(row, out, elements);
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    blocks_portable(weight, input, output, elements);
}

#[cfg(target_arch = "x86_64")]
pub(super) mod simd {
    use super::{BYTES, VALUES};
    use crate::kernels::avx2::{Factors, Format, load_16, scales_of};
    use crate::kernels::blocks::simd_products;
    use crate::kernels::q4_0::avx2::nibbles;
    use std::arch::x86_64::*;

    struct Iq4Nl;

    impl Format for Iq4Nl {
        const BITS: u32 = 8;
        const OFFSET: i32 = 0;
        const MINS: bool = false;
        const HALVES: bool = false;
    }

    simd_products!(Iq4Nl, 8 * BYTES);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn elements(eight: &[u8; 8 * BYTES]) -> [__m256i; 8] {
        let values = _mm256_broadcastsi128_si256(load_16(&VALUES.map(|value| value as u8)));
        let mut all = [_mm256_setzero_si256(); 8];
        for (all, block) in all.iter_mut().zip(eight.as_chunks::<BYTES>().0) {
            *all = _mm256_shuffle_epi8(values, nibbles(block));
        }
        all
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn factors(eight: &[u8; 8 * BYTES]) -> Factors {
        scales_of(eight.as_chunks::<BYTES>().0)
    }
}
