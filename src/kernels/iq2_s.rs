//! IQ2_S: 256 elements from a codebook of eights, with a scale each 16, `w = d * (s + 0.5) / 4 * element`; 82 bytes: d in
//! f16, the low eight bits of 32 indices, 32 bytes of signs, a byte for each four indices with their high two bits, and a
//! byte for each 32 elements with both s, the first in the low half.

use super::f16::f16_to_f32;
use super::grids::{self, half_kernels, signed};

const BYTES: usize = 82;

half_kernels!(IQ2_S, "iq2_s");

#[inline(always)]
fn block(stored: &[u8; BYTES], b: usize) -> (f32, [i32; 2], [u64; 4]) {
    let (q, signs, high) = (&stored[2 + 4 * b..][..4], &stored[34 + 4 * b..][..4], stored[66 + b]);
    let s = i32::from(stored[74 + b]);
    let index = |i: usize| usize::from(q[i]) | usize::from(high >> (2 * i) & 3) << 8;
    let factor = f16_to_f32([stored[0], stored[1]]) * 0.125;
    let words = std::array::from_fn(|i| signed(grids::IQ2_S[index(i)], signs[i]));
    (factor, [2 * (s & 15) + 1, 2 * (s >> 4) + 1], words)
}
