//! IQ2_S: 256 elements from a codebook of eights, with a scale each 16, `w = d * (s + 0.5) / 4 * element`; 82 bytes: d in
//! f16, the low eight bits of 32 indices, 32 bytes of signs, a byte for each four indices with their high two bits, and a
//! byte for each 32 elements with both s, the first in the low half.

use super::blocks::{Unpacked, compiled_block_kernels};
use super::grids::{self, Halves, bytes, signed};
use crate::element::f16_at;

const BYTES: usize = 82;

compiled_block_kernels!(IQ2_S, "iq2_s");

#[inline(always)]
fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let (q, signs, high) = (&stored[2 + 4 * b..][..4], &stored[34 + 4 * b..][..4], stored[66 + b]);
    let s = i32::from(stored[74 + b]);
    let index = |i: usize| usize::from(q[i]) | usize::from(high >> (2 * i) & 3) << 8;
    let factor = f16_at(stored, 0) * 0.125;
    let words = std::array::from_fn(|i| signed(grids::IQ2_S[index(i)], signs[i]));
    Unpacked::halves(factor, [2 * (s & 15) + 1, 2 * (s >> 4) + 1], bytes(words))
}
