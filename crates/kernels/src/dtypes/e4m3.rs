//! F8_E4M3: floats of 8 bits with a sign, 4 bits of exponent (bias 7) and 3 of fraction; no infinities, two bytes that are no numbers
//! (E4M3FN of "FP8 Formats for Deep Learning", arXiv 2209.05433). Their scales lie apart, one for each rectangle of weights.
//!
//! A byte is widened in a register, which is exact, and multiplied by its scale there; BF16 and F16 scales round nothing. The rest
//! is F32's product, in the same order of sums (`floats.rs`). A row with a byte that is no number has outputs that are none.

use super::codes::{Codes, code_kernels};
use super::floats;
use super::scaled::{CallScales, Rectangles};
use crate::Registered;
use crate::arch::generic::simd::Simd;

pub(super) const KERNELS: &[Registered] = code_kernels!(F8_E4M3, "f8_e4m3", E4m3);

pub(crate) struct E4m3;

impl Codes for E4m3 {
    const EACH: usize = 1;
    const NAN: bool = true;
    type Scales<'a> = Rectangles<'a>;
    type Factor<S: Simd> = S::Floats;

    fn scales(scales: CallScales<'_>) -> Rectangles<'_> {
        let CallScales::Rectangles(rectangles) = scales else { unreachable!("scales of rectangles") };
        rectangles
    }

    fn dequantize(row: &[u8], out: &mut [f32]) {
        floats::dequantize(row, out, |[byte]| wide(byte));
    }

    #[inline(always)]
    fn has_nan<const N: usize>(rows: [&[u8]; N]) -> bool {
        let (len, mut most) = (rows[0].len(), 0);
        assert!(rows.iter().all(|row| row.len() == len), "rows of one length");
        // Loops, as the closure of a `fold` is not compiled for the instruction sets.
        for i in 0..len {
            for row in rows {
                most = most.max(row[i] | 0x80);
            }
        }
        most == 0xff
    }

    #[inline(always)]
    fn one<S: Simd>(simd: S) -> S::Floats {
        // Loaded weights are divided by it.
        simd.all(256.0)
    }

    #[inline(always)]
    fn scaled<S: Simd>(simd: S, one: S::Floats, scale: f32) -> S::Floats {
        simd.mul(one, simd.all(scale))
    }

    #[inline(always)]
    unsafe fn load<S: Simd, const WHOLE: bool>(simd: S, at: *const u8, left: usize, by: S::Floats) -> S::Floats {
        // SAFETY: the caller guarantees it.
        simd.mul(unsafe { simd.load_e4m3::<WHOLE>(at, left) }, by)
    }
}

/// The value of a byte.
fn wide(byte: u8) -> f32 {
    let (sign, magnitude) = (u32::from(byte & 0x80) << 24, u32::from(byte & 0x7f));
    if magnitude == 0x7f {
        return f32::NAN;
    }
    // As in F16: the fraction is in place, the bias is corrected by a multiplication, which is exact and normalizes subnormal numbers.
    f32::from_bits(sign | magnitude << 20) * f32::from_bits((127 + 127 - 7) << 23)
}
