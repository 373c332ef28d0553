//! TQ2_0: 256 elements of 2 bits with one f16 scale, `w = d * (q - 1)`; 66 bytes: 64 bytes of pairs of bits as in Q2_K,
//! d.
//!
//! The products of a block of 32 are added exactly, in integers. Block `b` then adds `sum * (d * scale of x)` to lane
//! `b` modulo 16 by a fused multiply-add, in order; the lanes are added by `sum_lanes`.

use super::blocks::{block_kernels, portable_scaled, widen_scaled};
use super::f16::f16_to_f32;
use super::{Input, Output};

const BYTES: usize = 66;

block_kernels!(TQ2_0, "tq2_0");

/// The scale and the elements of block `b` of eight, from -1 to 1; the code 3, which no quantiser writes, is 2.
fn block(bytes: &[u8; BYTES], b: usize) -> (f32, [i8; 32]) {
    let element = |i: usize| (bytes[b / 4 * 32 + i] >> (2 * (b % 4)) & 3) as i8 - 1;
    (f16_to_f32([bytes[64], bytes[65]]), std::array::from_fn(element))
}

fn widen(row: &[u8], out: &mut [f32]) {
    widen_scaled(row, out, block);
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    portable_scaled(weight, input, output, block);
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use super::BYTES;
    use crate::kernels::avx2::{Factors, Format};
    use crate::kernels::blocks::simd_products;
    use crate::kernels::f16::f16_to_f32;
    use crate::kernels::q2_k::simd::two_bits;
    use std::arch::x86_64::*;

    struct Tq20;

    impl Format for Tq20 {
        const BITS: u32 = 2;
        const OFFSET: i32 = 1;
        const MINS: bool = false;
        const HALVES: bool = false;
    }

    simd_products!(Tq20, BYTES);

    /// The elements with their offset of 1: from 0 to 3.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn elements(block: &[u8; BYTES]) -> [__m256i; 8] {
        block.first_chunk().map_or([_mm256_setzero_si256(); 8], |bytes| two_bits(bytes))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn factors(block: &[u8; BYTES]) -> Factors {
        let d = f16_to_f32([block[64], block[65]]);
        Factors { scales: _mm256_set1_ps(d), mins: _mm256_setzero_ps(), halves: _mm_setzero_si128() }
    }
}
