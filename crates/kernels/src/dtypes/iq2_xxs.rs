//! IQ2_XXS: eight blocks of 32 from a codebook of eights, `w = d * (s + 0.5) / 4 * element`; 66 bytes: d in f16, and 8
//! bytes a block: four indices, then a 32-bit word with four times seven signs and s in the high four bits.

use super::grids::{self, even, grid_kernels, signed};
use crate::element::f16_at;

const BYTES: usize = 66;

grid_kernels!(IQ2_XXS, "iq2_xxs", Iq2Xxs { apart: true });

#[inline(always)]
fn block(stored: &[u8; BYTES], b: usize) -> (f32, [u64; 4]) {
    let q = &stored[2 + 8 * b..][..8];
    let word = u32::from_le_bytes([q[4], q[5], q[6], q[7]]);
    let scale = f16_at(stored, 0) * (0.5 + (word >> 28) as f32) * 0.25;
    (scale, std::array::from_fn(|i| signed(grids::IQ2_XXS[usize::from(q[i])], even(word >> (7 * i)))))
}
