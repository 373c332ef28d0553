//! Q5_1: blocks of 32 elements of 5 bits with a scale and a base in f16, `w = d * q + m`; 24 bytes: d, m, a double word
//! with the high bit of element `i` as bit `i`, then 16 bytes of nibbles as in Q4_1.
//!
//! The order of sums is Q4_1's.

use super::blocks::block_kernels;
use super::q4_1::{portable_based, widen_based};
use super::{Input, Output};

const BYTES: usize = 24;

block_kernels!(Q5_1, "q5_1");

/// The high bits of a block.
fn high_bits(block: &[u8; BYTES]) -> u32 {
    u32::from_le_bytes([block[4], block[5], block[6], block[7]])
}

/// The elements of a block, from 0 to 31.
fn elements(block: &[u8; BYTES]) -> [u8; 32] {
    let bits = high_bits(block);
    std::array::from_fn(|i| {
        let low = block[8 + i % 16] >> (4 * (i / 16)) & 15;
        low | ((bits >> i & 1) as u8) << 4
    })
}

fn widen(row: &[u8], out: &mut [f32]) {
    widen_based(row, out, elements);
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    portable_based(weight, input, output, elements);
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use super::{BYTES, high_bits};
    use crate::kernels::avx2::{Factors, Format, scales_and_bases_of};
    use crate::kernels::blocks::simd_products;
    use crate::kernels::q5_0::avx2::five_bits;
    use std::arch::x86_64::*;

    struct Q51;

    impl Format for Q51 {
        const BITS: u32 = 5;
        const OFFSET: i32 = 0;
        const MINS: bool = true;
        const HALVES: bool = false;
    }

    simd_products!(Q51, 8 * BYTES);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn elements(eight: &[u8; 8 * BYTES]) -> [__m256i; 8] {
        let mut all = [_mm256_setzero_si256(); 8];
        for (all, block) in all.iter_mut().zip(eight.as_chunks::<BYTES>().0) {
            *all = five_bits(block, high_bits(block));
        }
        all
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn factors(eight: &[u8; 8 * BYTES]) -> Factors {
        scales_and_bases_of(eight.as_chunks::<BYTES>().0)
    }
}
