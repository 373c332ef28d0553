//! TQ2_0: 256 elements of 2 bits with one f16 scale, `w = d * (q - 1)`; 66 bytes: 64 bytes of pairs of bits as in Q2_K,
//! d.

use super::blocks::{Unpacked, block_kernels, eights};
use super::q2_k::pair_of_bits;
use crate::element::f16_at;

const BYTES: usize = 66;

block_kernels!(TQ2_0, "tq2_0", Tq20 { bits: 2, offset: 1 }, BYTES);

/// Elements from -1 to 1; the code 3, which no quantizer writes, is 2.
fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    Unpacked::scaled(f16_at(stored, 64), std::array::from_fn(|i| pair_of_bits(stored, b, i) as i8 - 1))
}

eights! {
    Tq20, BYTES;

    /// The elements with their offset of 1: from 0 to 3.
    fn elements(block: &[u8; BYTES]) -> [Bytes; 8] {
        block.first_chunk().map_or([all(0); 8], |bytes| two_bits(bytes))
    }

    fn factors(block: &[u8; BYTES]) -> Factors {
        Factors::scaled(all_f16([block[64], block[65]]))
    }
}
