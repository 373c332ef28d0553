//! NVFP4: 64 floats of 4 bits (E2M1) with a scale each 16, a float of 8 bits (E4M3) whose sign is left out; 36 bytes: four scales, then
//! 8 bytes for each 16 elements, of which byte `i` has element `i` in its low and element `i + 8` in its high half.
//!
//! Elements are doubled, so that they are integers. Scales are made of F16 with the same exponent, whose bias is 8 more, so that a
//! block's own scale is 2^8 / 2.

use super::blocks::{Unpacked, block_kernels, eights, nibbles};
use super::mxfp4::VALUES;
use crate::element::f16_to_f32;
use crate::order::BLOCK;

const BYTES: usize = 36;

block_kernels!(NVFP4, "nvfp4", Nvfp4 { bits: 5, offset: OFFSET, halves: true, floats: true }, 4 * BYTES);

/// That of elements: sums need none where products of signed bytes are added.
pub(super) const OFFSET: i32 = if cfg!(target_arch = "aarch64") { 0 } else { 16 };

/// The scale of each block, for those of its halves as they are widened.
pub(crate) const SCALE: f32 = 128.0;

/// A block of doubled elements with the scales of its halves; the byte of NaN is 0, as in ggml.
pub(super) fn unpacked(scales: [u8; 2], quants: [i8; BLOCK]) -> Unpacked {
    Unpacked { scales: scales.map(widened), ..Unpacked::scaled(SCALE, quants) }
}

/// The F16 with the same exponent, which stands for a scale 2^8 times as large.
fn widened(byte: u8) -> f32 {
    f16_to_f32((u16::from(if byte == 0x7f { 0 } else { byte & 0x7f }) << 7).to_le_bytes())
}

/// Half a scale.
pub(super) fn scale(byte: u8) -> f32 {
    SCALE * widened(byte)
}

fn unpack(stored: &[u8; BYTES], b: usize) -> Unpacked {
    let codes = nibbles(&stored[4 + 16 * b..]);
    // Element 8 of the first half comes after the low nibbles of both.
    let code = |i: usize| codes[i / 16 * 8 + i / 8 % 2 * 16 + i % 8];
    unpacked([stored[2 * b], stored[2 * b + 1]], std::array::from_fn(|i| VALUES[usize::from(code(i))]))
}

eights! {
    Nvfp4, 4 * BYTES;

    fn elements(stored: &[u8; 4 * BYTES]) -> [Bytes; 8] {
        let mut elements = [all(0); 8];
        let stored = stored.as_chunks::<BYTES>().0;
        for b in 0..8 {
            let nibbles = stored[b / 2][4 + b % 2 * 16..].first_chunk().map_or(all(0), |bytes| both_nibbles(load_16(bytes)));
            elements[b] = look_up(&simd::RAISED, in_quarters(nibbles));
        }
        elements
    }

    fn factors(stored: &[u8; 4 * BYTES]) -> Factors {
        let (mut scales, stored) = ([0; 16], stored.as_chunks::<BYTES>().0);
        for (to, [a, b, c, d, ..]) in scales.as_chunks_mut::<4>().0.iter_mut().zip(stored) {
            *to = [*a, *b, *c, *d];
        }
        simd::factors(&scales)
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) mod simd {
    use super::super::mxfp4::simd::raised;
    use crate::arch::generic::wide::{Factors, all_floats, for_vectors, load_16};

    /// The elements of codes with their offset.
    pub(crate) const RAISED: [u8; 16] = raised(super::OFFSET);

    for_vectors! {
        /// The factors of eight blocks by the scales of their halves.
        pub(crate) fn factors(scales: &[u8; 16]) -> Factors {
            Factors { halves: load_16(scales), ..Factors::scaled(all_floats(super::SCALE)) }
        }
    }
}
