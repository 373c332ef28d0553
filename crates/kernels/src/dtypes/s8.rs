//! S8: signed bytes with a scale for each group of inputs, a row or less, in a tensor of its own: bitsandbytes' LLM.int8. Unlike those
//! of I8 they are multiplied with activations of 16 bits.

use super::scaled::scaled_kernels;
use crate::order::BLOCK;

/// Bytes of a block without its scale.
const BYTES: usize = BLOCK;

scaled_kernels!(
    S8, "s8", Q16 or Q8;
    groups: Groups { bits: 8 }, |block| load(block), avx512: blocks;
);

fn unpack(block: &[u8; BYTES]) -> [i8; BLOCK] {
    block.map(|q| q as i8)
}

fn value(element: i8) -> f32 {
    f32::from(element)
}
