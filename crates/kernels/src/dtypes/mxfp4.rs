//! MXFP4: blocks of 32 floats of 4 bits (E2M1) with a power of 2 as their scale (E8M0); 17 bytes: the exponent, then 16
//! bytes with element `i` in the low and element `i + 16` in the high half of byte `i`.
//!
//! Elements are doubled, so that they are integers, and the scale is halved: `2^(exponent - 128)`.

use super::blocks::{Unpacked, block_kernels, eight_blocks, nibbles};

const BYTES: usize = 17;

block_kernels!(MXFP4, "mxfp4", Mxfp4 { bits: 5, offset: 16 }, 8 * BYTES);

/// Twice the value of each code (OCP Microscaling Formats 1.0, E2M1).
pub(super) const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half the scale; the two least are subnormal. 255, NaN by the standard, is 2^127 as in ggml.
pub(super) fn scale(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0..=1 => 0x0020_0000 << exponent,
        _ => u32::from(exponent - 1) << 23,
    })
}

fn unpack(stored: &[u8; BYTES], _: usize) -> Unpacked {
    Unpacked::scaled(scale(stored[0]), nibbles(&stored[1..]).map(|code| VALUES[usize::from(code)]))
}

eight_blocks!(Mxfp4, simd::scales_of, |block| wide::look_up(&simd::RAISED, wide::nibbles(block)));

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod simd {
    use super::{BYTES, VALUES};
    use crate::arch::generic::wide::{Factors, for_vectors, halved_powers};

    /// The elements of codes with their offset of 16: from 4 to 28.
    pub(crate) const RAISED: [u8; 16] = raised(16);

    /// The elements of codes with an offset.
    pub(crate) const fn raised(offset: i32) -> [u8; 16] {
        let (mut raised, mut i) = ([0; 16], 0);
        while i < 16 {
            raised[i] = (VALUES[i] + offset as i8) as u8;
            i += 1;
        }
        raised
    }

    for_vectors! {
        /// The `scale` of each of eight exponents.
        pub(crate) fn scales(exponents: [u8; 8]) -> Factors {
            Factors::scaled(halved_powers(exponents))
        }

        pub(super) fn scales_of(blocks: &[[u8; BYTES]]) -> Factors {
            let mut exponents = [0; 8];
            exponents.iter_mut().zip(blocks).for_each(|(exponent, block)| *exponent = block[0]);
            scales(exponents)
        }
    }
}
