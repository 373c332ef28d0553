//! Q4_0: blocks of 32 nibbles with an f16 scale, `w = d * (q - 8)`; 18 bytes: d, then 16 bytes with element `i` in the
//! low and element `i + 16` in the high half of byte `i`.

use super::blocks::{Unpacked, block_kernels, eight_blocks, nibbles};
use crate::element::f16_at;

pub(crate) const BYTES: usize = 18;

block_kernels!(Q4_0, "q4_0", Q40 { bits: 4, offset: 8 }, 8 * BYTES, avx512: q4_0, avx2: q4_0);

fn unpack(stored: &[u8; BYTES], _: usize) -> Unpacked {
    Unpacked::scaled(f16_at(stored, 0), nibbles(&stored[2..]).map(|q| q as i8 - 8))
}

eight_blocks!(Q40, wide::scales_of, |block| wide::nibbles(block));
