//! IQ3_XXS: eight blocks of 32 from a codebook of fours, `w = d * (s + 0.5) / 2 * element`; 98 bytes: d in f16, eight
//! indices a block, then for each block a 32-bit word with four times seven signs and s in the high four bits.

use super::grids::{self, even, grid_kernels, signed};
use crate::element::f16_at;

const BYTES: usize = 98;

grid_kernels!(IQ3_XXS, "iq3_xxs", Iq3Xxs { bits: 8 });

#[inline(always)]
fn block(stored: &[u8; BYTES], b: usize) -> (f32, [u64; 4]) {
    let (q, s) = (&stored[2 + 8 * b..][..8], &stored[66 + 4 * b..][..4]);
    let word = u32::from_le_bytes([s[0], s[1], s[2], s[3]]);
    let scale = f16_at(stored, 0) * (0.5 + (word >> 28) as f32) * 0.5;
    let four = |i: usize| u64::from(grids::IQ3_XXS[usize::from(q[i])]);
    (scale, std::array::from_fn(|i| signed(four(2 * i) | four(2 * i + 1) << 32, even(word >> (7 * i)))))
}
