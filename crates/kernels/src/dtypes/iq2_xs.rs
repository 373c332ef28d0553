//! IQ2_XS: 256 elements from a codebook of eights, with a scale each 16, `w = d * (s + 0.5) / 4 * element`; 74 bytes: d in
//! f16, 32 words with an index in the low nine bits and seven signs above, and a byte for each 32 elements with both s,
//! the first in the low half.

use super::blocks::{Unpacked, compiled_block_kernels};
use super::grids::{self, Halves, bytes, even, signed};
use crate::element::f16_at;

const BYTES: usize = 74;

compiled_block_kernels!(IQ2_XS, "iq2_xs");

#[inline(always)]
fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let word = |i: usize| u16::from_le_bytes([stored[2 + 8 * b + 2 * i], stored[3 + 8 * b + 2 * i]]);
    let s = i32::from(stored[66 + b]);
    let entry = |i: usize| signed(grids::IQ2_XS[usize::from(word(i) & 511)], even(u32::from(word(i) >> 9)));
    let factor = f16_at(stored, 0) * 0.125;
    Unpacked::halves(factor, [2 * (s & 15) + 1, 2 * (s >> 4) + 1], bytes(std::array::from_fn(entry)))
}
