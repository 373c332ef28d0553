//! Q5_1: blocks of 32 elements of 5 bits with a scale and a base in f16, `w = d * q + m`; 24 bytes: d, m, a double word
//! with the high bit of element `i` as bit `i`, then 16 bytes of nibbles as in Q4_1.

use super::blocks::{Unpacked, block_kernels, eight_blocks, nibbles};
use super::q5_0::with_high;
use crate::element::f16_at;

const BYTES: usize = 24;

block_kernels!(Q5_1, "q5_1", Q51 { bits: 5, mins: true }, 8 * BYTES);

/// The high bits of a block.
fn high_bits(block: &[u8; BYTES]) -> u32 {
    u32::from_le_bytes([block[4], block[5], block[6], block[7]])
}

fn unpack(stored: &[u8; BYTES], _: usize) -> Unpacked {
    let quants = with_high(nibbles(&stored[8..]), high_bits(stored));
    Unpacked::with_min(f16_at(stored, 0), -f16_at(stored, 2), quants)
}

eight_blocks!(Q51, wide::scales_and_bases_of, |block| wide::five_bits(block, high_bits(block)));
