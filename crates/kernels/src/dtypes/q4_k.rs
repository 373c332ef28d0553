//! Q4_K: 256 elements as eight blocks of 32 nibbles, `w = d * sc * q - dmin * m`; 144 bytes.
//!
//! Two f16, d and dmin; 12 bytes with the 6-bit sc and m of the eight blocks; 128 bytes of nibbles: 32 bytes hold one
//! block in their low and the next in their high halves.

use super::blocks::{Unpacked, block_kernels, eights};
use crate::element::f16_at;

pub(crate) const BYTES: usize = 144;

block_kernels!(Q4_K, "q4_k", Q4K { bits: 4, mins: true }, BYTES, avx512: q4_k, avx2: q4_k);

/// `d * sc` and `dmin * m` of block `b` of eight.
pub(super) fn scale_and_min(stored: &[u8], b: usize) -> (f32, f32) {
    let s = &stored[4..16];
    let (sc, m) = if b < 4 {
        (s[b] & 63, s[b + 4] & 63)
    } else {
        ((s[b + 4] & 15) | (s[b - 4] >> 6 << 4), (s[b + 4] >> 4) | (s[b] >> 6 << 4))
    };
    (f16_at(stored, 0) * f32::from(sc), f16_at(stored, 2) * f32::from(m))
}

/// Element `i` of block `b` of the eight blocks whose nibbles are at the beginning of `bytes`.
pub(super) fn nibble(bytes: &[u8], b: usize, i: usize) -> u8 {
    bytes[32 * (b / 2) + i] >> (4 * (b % 2)) & 15
}

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let (scale, min) = scale_and_min(stored, b);
    Unpacked::with_min(scale, min, std::array::from_fn(|i| nibble(&stored[16..], b, i) as i8))
}

eights! {
    Q4K, BYTES;

    fn elements(block: &[u8; BYTES]) -> [Bytes; 8] {
        block.last_chunk().map_or([all(0); 8], |bytes| nibbles_of_pairs(bytes))
    }

    fn factors(block: &[u8; BYTES]) -> Factors {
        k_factors(block)
    }
}
