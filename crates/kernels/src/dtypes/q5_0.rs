//! Q5_0: blocks of 32 elements of 5 bits with an f16 scale, `w = d * (q - 16)`; 22 bytes: d, a double word with the high
//! bit of element `i` as bit `i`, then 16 bytes of nibbles as in Q4_0.

use super::blocks::{Unpacked, block_kernels, eight_blocks, nibbles};
use crate::element::f16_at;

pub(crate) const BYTES: usize = 22;

block_kernels!(Q5_0, "q5_0", Q50 { bits: 5, offset: 16 }, 8 * BYTES, avx512: q5_0);

/// The high bits of a block.
pub(crate) fn high_bits(block: &[u8; BYTES]) -> u32 {
    u32::from_le_bytes([block[2], block[3], block[4], block[5]])
}

/// Nibbles with the bits of `high` above them, from 0 to 31.
pub(super) fn with_high(nibbles: [u8; 32], high: u32) -> [i8; 32] {
    std::array::from_fn(|i| (nibbles[i] | ((high >> i & 1) as u8) << 4) as i8)
}

fn unpack(stored: &[u8; BYTES], _: usize) -> Unpacked {
    let quants = with_high(nibbles(&stored[6..]), high_bits(stored));
    Unpacked::scaled(f16_at(stored, 0), quants.map(|q| q - 16))
}

eight_blocks!(Q50, wide::scales_of, |block| wide::five_bits(block, high_bits(block)));
