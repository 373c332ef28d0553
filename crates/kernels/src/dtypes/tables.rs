//! NF4 and FP4: codes of 4 bits that stand for the floats of a table (bitsandbytes 0.50 `functional.py`, `get_4bit_type`). Byte `i` of a
//! row has code `2 * i` in its high half and `2 * i + 1` in its low half. Their scales lie apart, one for each run of weights.
//!
//! A code is looked up in registers, and its float multiplied by its scale there.

use super::codes::{Codes, code_kernels};
use super::scaled::{CallScales, Runs};
use crate::Registered;
use crate::arch::generic::simd::Simd;

pub(super) const NF4: &[Registered] = code_kernels!(NF4, "nf4", Nf4);
pub(super) const FP4: &[Registered] = code_kernels!(FP4, "fp4", Fp4);

/// Quantiles of a normal distribution (QLoRA, arXiv 2305.14314).
pub(crate) struct Nf4;

/// A sign, 2 bits of exponent and one of fraction, divided by the largest.
pub(crate) struct Fp4;

trait Table {
    const VALUES: [f32; 16];
}

impl Table for Nf4 {
    #[rustfmt::skip]
    const VALUES: [f32; 16] = [
        -1.0, -0.696_192_8, -0.525_073_05, -0.394_917_5, -0.284_441_38, -0.184_773_43, -0.091_050_036, 0.0,
        0.079_580_3, 0.160_930_2, 0.246_112_3, 0.337_915_24, 0.440_709_83, 0.562_617, 0.722_956_84, 1.0,
    ];
}

impl Table for Fp4 {
    #[rustfmt::skip]
    const VALUES: [f32; 16] = [
        0.0, 0.0625 / 12.0, 8.0 / 12.0, 1.0, 4.0 / 12.0, 0.5, 2.0 / 12.0, 0.25,
        0.0, -0.0625 / 12.0, -8.0 / 12.0, -1.0, -4.0 / 12.0, -0.5, -2.0 / 12.0, -0.25,
    ];
}

impl<T: Table> Codes for T {
    const EACH: usize = 2;
    type Scales<'a> = Runs<'a>;
    type Factor<S: Simd> = S::Table;

    fn scales(scales: CallScales<'_>) -> Runs<'_> {
        let CallScales::Runs(runs) = scales else { unreachable!("scales of runs") };
        runs
    }

    fn dequantize(row: &[u8], out: &mut [f32]) {
        for (out, byte) in out.as_chunks_mut().0.iter_mut().zip(row) {
            *out = [byte >> 4, byte & 15].map(|code| T::VALUES[usize::from(code)]);
        }
    }

    fn has_nan<const N: usize>(_: [&[u8]; N]) -> bool {
        false
    }

    #[inline(always)]
    fn one<S: Simd>(simd: S) -> S::Table {
        simd.table(const { &T::VALUES })
    }

    #[inline(always)]
    fn scaled<S: Simd>(simd: S, one: S::Table, scale: f32) -> S::Table {
        simd.scaled(one, scale)
    }

    #[inline(always)]
    fn as_loaded<S: Simd>(simd: S, v: S::Floats) -> S::Floats {
        simd.as_looked_up(v)
    }

    #[inline(always)]
    fn in_order<S: Simd>(simd: S, v: S::Floats) -> S::Floats {
        simd.in_order(v)
    }

    #[inline(always)]
    unsafe fn load<S: Simd, const WHOLE: bool>(simd: S, at: *const u8, left: usize, by: S::Table) -> S::Floats {
        // SAFETY: the caller guarantees it.
        unsafe { simd.look_up::<WHOLE>(by, at, left) }
    }
}
