//! Q5_K: 256 elements as eight blocks of 32 elements of 5 bits, `w = d * sc * q - dmin * m`; 176 bytes.
//!
//! The first 16 bytes are Q4_K's: d, dmin, and the 6-bit sc and m of the eight blocks. Then 32 bytes with the high bits:
//! bit `b` of byte `i` belongs to element `i` of block `b`. Then 128 bytes of nibbles as in Q4_K.

use super::blocks::{Unpacked, block_kernels, eights};
use super::q4_k::{nibble, scale_and_min};

pub(crate) const BYTES: usize = 176;

block_kernels!(Q5_K, "q5_k", Q5K { bits: 5, mins: true }, BYTES, avx512: q5_k);

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let (scale, min) = scale_and_min(stored, b);
    let element = |i: usize| nibble(&stored[48..], b, i) | (stored[16 + i] >> b & 1) << 4;
    Unpacked::with_min(scale, min, std::array::from_fn(|i| element(i) as i8))
}

eights! {
    Q5K, BYTES;

    fn elements(block: &[u8; BYTES]) -> [Bytes; 8] {
        let mut elements = block.last_chunk().map_or([all(0); 8], |bytes| nibbles_of_pairs(bytes));
        let bits = block[16..].first_chunk().map_or(all(0), |bytes| load(bytes));
        // The bits of each block are brought to bit 4.
        let bits = [
            left::<4>(bits),
            left::<3>(bits),
            left::<2>(bits),
            left::<1>(bits),
            bits,
            right::<1>(bits),
            right::<2>(bits),
            right::<3>(bits),
        ];
        for (element, bits) in elements.iter_mut().zip(bits) {
            *element = or(*element, and(bits, all(16)));
        }
        elements
    }

    fn factors(block: &[u8; BYTES]) -> Factors {
        k_factors(block)
    }
}
