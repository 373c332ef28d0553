//! Q4_1: blocks of 32 nibbles with a scale and a base in f16, `w = d * q + m`; 20 bytes: d, m, then 16 bytes with element
//! `i` in the low and element `i + 16` in the high half of byte `i`.

use super::blocks::{Unpacked, block_kernels, eight_blocks, nibbles};
use crate::element::f16_at;

const BYTES: usize = 20;

block_kernels!(Q4_1, "q4_1", Q41 { bits: 4, mins: true }, 8 * BYTES);

fn unpack(stored: &[u8; BYTES], _: usize) -> Unpacked {
    Unpacked::with_min(f16_at(stored, 0), -f16_at(stored, 2), nibbles(&stored[4..]).map(|q| q as i8))
}

eight_blocks!(Q41, wide::scales_and_bases_of, |block| wide::nibbles(block));
