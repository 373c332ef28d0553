//! F4: floats of 4 bits (E2M1) whose scales lie in a tensor of their own: powers of 2 (E8M0) for blocks of 32, as MXFP4 is published in
//! safetensors, or floats (E4M3) for blocks of 16, as NVFP4 is. Byte `i` of a row has element `2 * i` in its low half and `2 * i + 1` in
//! its high half.
//!
//! The numbers are those of GGUF's MXFP4 and NVFP4; activations keep 16 bits.

use super::mxfp4::{self, VALUES};
use super::nvfp4;
use super::scaled::scaled_kernels;
use super::u4;
use crate::order::BLOCK;

/// Bytes of a block without its scale.
const BYTES: usize = BLOCK / 2;

scaled_kernels!(
    F4, "f4", Q16 or Q16;
    powers: Powers { bits: 5, offset: 16, evens_first: true },
        |block| look_up(&mxfp4::simd::RAISED, pairs_of_nibbles::<PLACE>(block)), avx512: f4;
    halves: Halves { bits: 5, offset: nvfp4::OFFSET, halves: true, floats: true },
        |block| look_up(&nvfp4::simd::RAISED, nibbles_in_turns(load_16(block))), avx512: f4;
);

/// Twice what the codes stand for.
fn unpack(block: &[u8; BYTES]) -> [i8; BLOCK] {
    u4::nibbles(block).map(|code| VALUES[usize::from(code)])
}

fn value(twice: i8) -> f32 {
    f32::from(twice) / 2.0
}
