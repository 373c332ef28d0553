//! IQ1_S: eight blocks of 32 from a codebook of eights of -1, 0 and 1, `w = d * (2 * s + 1) * (element + delta)` with a
//! delta of 1/8 or -1/8; 50 bytes: d in f16, the low eight bits of four indices a block, and a 16-bit word a block with
//! four times three high bits, s in three bits, and the sign of delta.
//!
//! Computed as `d * (2 * s + 1) / 8 * (8 * element + 8 * delta)`, in integers.

use super::grids::{self, grid_kernels, shifted};
use crate::element::f16_at;

const BYTES: usize = 50;

grid_kernels!(IQ1_S, "iq1_s", Iq1S { apart: true });

#[inline(always)]
fn block(stored: &[u8; BYTES], b: usize) -> (f32, [u64; 4]) {
    let q = &stored[2 + 4 * b..][..4];
    let word = u16::from_le_bytes([stored[34 + 2 * b], stored[35 + 2 * b]]);
    let scale = f16_at(stored, 0) * f32::from(2 * (word >> 12 & 7) + 1) * 0.125;
    let entry = |i: usize| grids::IQ1[usize::from(q[i]) | usize::from(word >> (3 * i) & 7) << 8];
    (scale, std::array::from_fn(|i| shifted(entry(i), word >> 15 == 1)))
}
