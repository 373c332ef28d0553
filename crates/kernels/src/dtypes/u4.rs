//! U4: integers of 4 bits, unsigned, of which 8 stand for 0, with a scale for each group of inputs in a tensor of its own:
//! compressed-tensors' packed weights of 4 bits. Byte `i` of a row has element `2 * i` in its low half and `2 * i + 1` in its
//! high half.

use super::scaled::scaled_kernels;
use crate::order::BLOCK;

/// Bytes of a block without its scale.
const BYTES: usize = BLOCK / 2;

scaled_kernels!(
    U4, "u4", Q16 or Q8;
    groups: Groups { bits: 4, offset: 8, evens_first: true }, |block| pairs_of_nibbles::<PLACE>(block), avx512: u4;
    affine: Affine { bits: 4, offset: 8, mins: true, evens_first: true }, |block| pairs_of_nibbles::<PLACE>(block), avx512: u4;
);

/// The halves of bytes, the low one first.
pub(super) fn nibbles(bytes: &[u8; BYTES]) -> [u8; BLOCK] {
    std::array::from_fn(|i| bytes[i / 2] >> (4 * (i % 2)) & 15)
}

fn unpack(block: &[u8; BYTES]) -> [i8; BLOCK] {
    nibbles(block).map(|q| q as i8 - 8)
}

fn value(element: i8) -> f32 {
    f32::from(element)
}
