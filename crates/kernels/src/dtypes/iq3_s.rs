//! IQ3_S: eight blocks of 32 from a codebook of fours, `w = d * (2 * s + 1) * element`; 110 bytes: d in f16, the low eight
//! bits of eight indices a block, a byte a block with their high bits, four bytes of signs a block, and s of block `b` in
//! 4 bits, low for even `b`.

use super::grids::{self, grid_kernels, signed};
use crate::element::f16_at;

const BYTES: usize = 110;

grid_kernels!(IQ3_S, "iq3_s", Iq3S { bits: 8 });

#[inline(always)]
fn block(stored: &[u8; BYTES], b: usize) -> (f32, [u64; 4]) {
    let (q, high, signs) = (&stored[2 + 8 * b..][..8], stored[66 + b], &stored[74 + 4 * b..][..4]);
    let s = stored[106 + b / 2] >> (4 * (b % 2)) & 15;
    let scale = f16_at(stored, 0) * f32::from(2 * s + 1);
    let four = |i: usize| u64::from(grids::IQ3_S[usize::from(q[i]) | usize::from(high >> i & 1) << 8]);
    (scale, std::array::from_fn(|i| signed(four(2 * i) | four(2 * i + 1) << 32, signs[i])))
}
