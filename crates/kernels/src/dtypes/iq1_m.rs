//! IQ1_M: 256 elements from a codebook of eights of -1, 0 and 1, with a scale each 16,
//! `w = d * (2 * s + 1) * (element + delta)` with a delta of 1/8 or -1/8 each 8; 56 bytes: the low eight bits of 32
//! indices, 4 bits an index with its high three bits and the sign of its delta, and four words with four s of three bits
//! each, whose high four bits together are d in f16.
//!
//! Computed as `d / 8 * (2 * s + 1) * (8 * element + 8 * delta)`, in integers.

use super::blocks::{Unpacked, compiled_block_kernels};
use super::grids::{self, Halves, bytes, shifted};
use crate::element::f16_to_f32;

const BYTES: usize = 56;

compiled_block_kernels!(IQ1_M, "iq1_m");

#[inline(always)]
fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let word = |i: usize| u16::from_le_bytes([stored[48 + 2 * i], stored[49 + 2 * i]]);
    let d = (0..4).fold(0, |d, i| d | (word(i) >> 12) << (4 * i));
    let s = |half: usize| i32::from(word(b / 2) >> (3 * (2 * (b % 2) + half)) & 7);
    let entry = |i: usize| {
        let more = stored[32 + 2 * b + i / 2] >> (4 * (i % 2));
        shifted(grids::IQ1[usize::from(stored[4 * b + i]) | usize::from(more & 7) << 8], more & 8 != 0)
    };
    let scale = f16_to_f32(d.to_le_bytes()) * 0.125;
    Unpacked::halves(scale, [2 * s(0) + 1, 2 * s(1) + 1], bytes(std::array::from_fn(entry)))
}
