//! U8: unsigned bytes, of which 128 stands for 0, with a scale for each group of inputs in a tensor of its own:
//! compressed-tensors' packed weights of 8 bits.

use super::scaled::scaled_kernels;
use crate::order::BLOCK;

/// Bytes of a block without its scale.
const BYTES: usize = BLOCK;

scaled_kernels!(
    U8, "u8", Q16 or Q8;
    groups: Groups { bits: 8 }, |block| with_signs_turned(load(block)), avx512: blocks;
    affine: Affine { bits: 8, mins: true }, |block| with_signs_turned(load(block)), avx512: blocks;
);

fn unpack(block: &[u8; BYTES]) -> [i8; BLOCK] {
    block.map(|q| (q ^ 0x80) as i8)
}

fn value(element: i8) -> f32 {
    f32::from(element)
}
