//! Q4_1: blocks of 32 nibbles with a scale and a base in f16, `w = d * q + m`; 20 bytes: d, m, then 16 bytes with element
//! `i` in the low and element `i + 16` in the high half of byte `i`.
//!
//! The products of a block are added exactly, in integers. Block `b` then adds `sum * (d * scale of x)` and `m * (scale
//! of x * sum of x)` to lane `b` modulo 16 by fused multiply-adds, in order; the lanes are added by `sum_lanes`.

use super::blocks::block_kernels;
use super::f16::f16_to_f32;
use super::{Input, LANES, Output, sum_lanes};

const BYTES: usize = 20;

block_kernels!(Q4_1, "q4_1");

/// The elements of a block, from 0 to 15.
fn elements(block: &[u8; BYTES]) -> [u8; 32] {
    std::array::from_fn(|i| block[4 + i % 16] >> (4 * (i / 16)) & 15)
}

fn widen(row: &[u8], out: &mut [f32]) {
    widen_based(row, out, elements);
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    portable_based(weight, input, output, elements);
}

/// The scale and the base of a block that begins with them.
fn scale_and_base(block: &[u8]) -> (f32, f32) {
    (f16_to_f32([block[0], block[1]]), f16_to_f32([block[2], block[3]]))
}

/// Rows of blocks of 32 that begin with their scale and base, widened.
pub(super) fn widen_based<const BYTES: usize>(
    row: &[u8],
    out: &mut [f32],
    elements: impl Fn(&[u8; BYTES]) -> [u8; 32],
) {
    for (block, out) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let (d, m) = scale_and_base(block);
        for (out, q) in out.iter_mut().zip(elements(block)) {
            *out = d * f32::from(q) + m;
        }
    }
}

/// Rows of blocks of 32 that begin with their scale and base, times all tokens.
pub(super) fn portable_based<const BYTES: usize>(
    weight: &[u8],
    input: &Input,
    output: &mut Output<'_>,
    elements: impl Fn(&[u8; BYTES]) -> [u8; 32],
) {
    for (row, bytes) in weight.chunks_exact(weight.len() / output.rows()).enumerate() {
        for token in 0..input.tokens() {
            let x = input.q8(token);
            let mut lanes = [0.0; LANES];
            for (b, block) in bytes.as_chunks::<BYTES>().0.iter().enumerate() {
                let (d, m) = scale_and_base(block);
                let products = elements(block).into_iter().zip(&x.bytes[32 * b..]);
                let sum: i32 = products.map(|(q, &x)| i32::from(q) * i32::from(x)).sum();
                let lane = &mut lanes[b % LANES];
                *lane = (sum as f32).mul_add(d * x.scales[b], *lane);
                *lane = m.mul_add(x.sums[b], *lane);
            }
            output.part(token, row, 1)[0] = sum_lanes(lanes);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use super::BYTES;
    use crate::kernels::avx2::{Factors, Format, scales_and_bases_of};
    use crate::kernels::blocks::simd_products;
    use crate::kernels::q4_0::avx2::nibbles;
    use std::arch::x86_64::*;

    struct Q41;

    impl Format for Q41 {
        const BITS: u32 = 4;
        const OFFSET: i32 = 0;
        const MINS: bool = true;
        const HALVES: bool = false;
    }

    simd_products!(Q41, 8 * BYTES);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn elements(eight: &[u8; 8 * BYTES]) -> [__m256i; 8] {
        let mut all = [_mm256_setzero_si256(); 8];
        for (all, block) in all.iter_mut().zip(eight.as_chunks::<BYTES>().0) {
            *all = nibbles(block);
        }
        all
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn factors(eight: &[u8; 8 * BYTES]) -> Factors {
        scales_and_bases_of(eight.as_chunks::<BYTES>().0)
    }
}
