//! IQ2_XS: 256 elements from a codebook of eights, with a scale each 16, `w = d * (s + 0.5) / 4 * element`; 74 bytes: d in
//! f16, 32 words with an index in the low nine bits and seven signs above, and a byte for each 32 elements with both s,
//! the first in the low half.

use super::f16::f16_to_f32;
use super::grids::{self, even, half_kernels, signed};

const BYTES: usize = 74;

half_kernels!(IQ2_XS, "iq2_xs");

#[inline(always)]
fn block(stored: &[u8; BYTES], b: usize) -> (f32, [i32; 2], [u64; 4]) {
    let word = |i: usize| u16::from_le_bytes([stored[2 + 8 * b + 2 * i], stored[3 + 8 * b + 2 * i]]);
    let s = i32::from(stored[66 + b]);
    let entry = |i: usize| signed(grids::IQ2_XS[usize::from(word(i) & 511)], even(u32::from(word(i) >> 9)));
    let factor = f16_to_f32([stored[0], stored[1]]) * 0.125;
    (factor, [2 * (s & 15) + 1, 2 * (s >> 4) + 1], std::array::from_fn(entry))
}
