//! Q8_0: blocks of 32 signed bytes with an f16 scale, `w = d * q`; 34 bytes: d, q.

use super::blocks::{Unpacked, block_kernels, eight_blocks};
use crate::element::f16_at;

pub(crate) const BYTES: usize = 34;

block_kernels!(Q8_0, "q8_0", Q80 { bits: 8 }, 8 * BYTES, avx512: q8_0);

fn unpack(stored: &[u8; BYTES], _: usize) -> Unpacked {
    Unpacked::scaled(f16_at(stored, 0), std::array::from_fn(|i| stored[2 + i] as i8))
}

eight_blocks!(Q80, wide::scales_of, |block| block.last_chunk().map_or(wide::all(0), |bytes| wide::load(bytes)));
