//! Q2_K: 256 elements of 2 bits with a 4-bit scale and a 4-bit minimum each 16, `w = d * sc * q - dmin * m`; 84 bytes.
//!
//! 16 bytes with sc in the low and m in the high half, 64 bytes of pairs of bits, d and dmin in f16. Each half of 128
//! elements has 32 of the 64 bytes: element `32 * j + i` is at bit `2 * j` of byte `i`.

use super::blocks::{Unpacked, block_kernels, eights};
use crate::element::f16_at;

const BYTES: usize = 84;

block_kernels!(Q2_K, "q2_k", Q2K { bits: 2, mins: true, halves: true }, BYTES);

/// Element `i` of block `b` of the eight blocks whose pairs of bits are at the beginning of `bytes`.
pub(super) fn pair_of_bits(bytes: &[u8], b: usize, i: usize) -> u8 {
    bytes[b / 4 * 32 + i] >> (2 * (b % 4)) & 3
}

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let factors = [stored[2 * b], stored[2 * b + 1]].map(i32::from);
    Unpacked {
        quants: std::array::from_fn(|i| pair_of_bits(&stored[16..], b, i) as i8),
        scale: f16_at(stored, 80),
        scales: factors.map(|both| (both & 15) as f32),
        min: f16_at(stored, 82),
        mins: factors.map(|both| both >> 4),
    }
}

eights! {
    Q2K, BYTES;

    fn elements(block: &[u8; BYTES]) -> [Bytes; 8] {
        block[16..].first_chunk().map_or([all(0); 8], |bytes| two_bits(bytes))
    }

    fn factors(block: &[u8; BYTES]) -> Factors {
        Factors {
            scales: all_f16([block[80], block[81]]),
            mins: all_f16([block[82], block[83]]),
            halves: block.first_chunk().map_or(all_16(0), |bytes| load_16(bytes)),
        }
    }
}
