//! Products of block dtypes by NEON, with `sdot` or `smmla` where the processor has them.
//!
//! With one token blocks come eight at a time: the products are added up for each block, exactly, four blocks a register, and
//! then go to the lanes of even and of odd eights in turns.

#![allow(unsafe_code)]

use super::blocks::Format;
use super::input::Q8;
use super::prefetch::{NEAR, NEAR_4_BITS, prefetch_near};
use super::scratch::{Scratch, arranged, arranged_bytes, arranged_sums, with_scratch};
use super::simd::{DOTPROD, I8MM, Neon, Simd, sum_eight_lanes};
use super::wide::{Bytes, Eights, Factors, Sixteen, load_floats, scales_and_mins_of_halves};
use super::wide_panel::matmul_by;
use super::{Input, Output};
use crate::memory;
use std::arch::aarch64::*;

/// The products of a level: functions that are compiled for it, and so are the closures in them.
macro_rules! level {
    ($name:ident, $features:literal, $level:expr) => {
        pub(super) mod $name {
            use super::*;

            /// The product with several tokens; otherwise as [`one_token`].
            #[inline]
            #[target_feature(enable = $features)]
            pub(in crate::kernels) fn panels<F: Format, const EIGHT: usize>(
                weight: &[u8],
                input: &Input,
                output: &mut Output<'_>,
                eights: &impl Eights<EIGHT>,
            ) {
                // SAFETY: the function is compiled for the instruction sets.
                let simd = unsafe { Neon::<{ $level }>::new() };
                let done = with_scratch(|scratch| {
                    // SAFETY: as above.
                    unsafe { matmul_by::<Neon<{ $level }>, F, EIGHT>(simd, scratch, weight, input, output, eights) }
                });
                output.note(done);
            }

            /// The product with one token.
            #[inline]
            #[target_feature(enable = $features)]
            pub(in crate::kernels) fn one_token<F: Format, const EIGHT: usize>(
                weight: &[u8],
                input: &Input,
                token: usize,
                output: &mut Output<'_>,
                eights: &impl Eights<EIGHT>,
            ) {
                // SAFETY: the function is compiled for the instruction sets.
                let simd = unsafe { Neon::<{ $level }>::new() };
                let x = input.q8(token);
                let y = output.part(token, 0, output.rows());
                let done = with_scratch(|scratch| {
                    // SAFETY: as above.
                    unsafe { rows_times_token::<{ $level }, F, EIGHT>(simd, scratch, weight, &x, y, eights) }
                });
                output.note(done);
            }
        }
    };
}
level!(plain, "neon", 0);
level!(dotprod, "neon,dotprod", DOTPROD);
level!(i8mm, "neon,dotprod,i8mm", I8MM);

/// The rows of `weight` times one token.
///
/// # Safety
/// The processor has the instructions of the level.
#[inline(always)]
unsafe fn rows_times_token<const LEVEL: u8, F: Format, const EIGHT: usize>(
    simd: Neon<LEVEL>,
    Scratch { bytes, floats, more_floats, ints, .. }: &mut Scratch,
    weight: &[u8],
    x: &Q8<'_>,
    y: &mut [f32],
    eights: &impl Eights<EIGHT>,
) -> memory::Result<()> {
    // Activations up to a whole number of steps.
    let blocks = x.scales.len().next_multiple_of(8);
    let x_bytes = arranged_bytes::<32>(bytes, x, blocks, |i| i)?;
    let x_scales = arranged::<f32, 8>(floats, x.scales, blocks, |b| b)?;
    let x_sums = arranged::<f32, 8>(more_floats, x.sums, blocks, |b| b)?;
    let x_ints = arranged_sums::<F, 8>(ints, x, blocks)?;
    let row_bytes = weight.len() / y.len();
    let (steps, rest) = (row_bytes / EIGHT, row_bytes % EIGHT);
    let near = if EIGHT > 160 { NEAR } else { NEAR_4_BITS };
    let mut padded = [0; EIGHT];
    let all = steps + usize::from(rest > 0);
    assert!(x_bytes.len() >= all && x_scales.len() >= all && x_sums.len() >= all && x_ints.len() >= all);
    for (r, (y, row)) in y.iter_mut().zip(weight.chunks_exact(row_bytes)).enumerate() {
        if rest > 0 {
            padded[..rest].copy_from_slice(&row[row_bytes - rest..]);
        }
        // Those to be added to, and the others: eights go to them in turns.
        let (mut sums, mut others) = (simd.all(0.0), simd.all(0.0));
        for i in 0..all {
            // SAFETY: the row has `steps` steps.
            let eight = if i < steps { unsafe { &*row.as_ptr().add(i * EIGHT).cast() } } else { &padded };
            prefetch_near(eight.as_ptr().wrapping_add(near), EIGHT);
            // SAFETY: the caller's.
            let added = unsafe {
                let (elements, factors) = (eights.elements(eight), eights.factors(eight, [r, i]));
                let terms = (&x_bytes[i], load_floats(&x_scales[i]), load_floats(&x_sums[i]), &x_ints[i]);
                add_eight::<LEVEL, F>(simd, sums, elements, factors, terms)
            };
            (sums, others) = (others, added);
        }
        // SAFETY: the value is the proof.
        *y = unsafe { sum_eight_lanes(simd.add(sums, others)) };
    }
    Ok(())
}

/// Eight blocks of activations: bytes, scales, sums and what [`arranged_sums`] gives.
type Eight<'a> = (&'a [[u8; 32]; 8], float32x4x2_t, float32x4x2_t, &'a [i32; 8]);

/// `sums` and eight blocks.
///
/// # Safety
/// The processor has the instructions of the level.
#[inline(always)]
unsafe fn add_eight<const LEVEL: u8, F: Format>(
    simd: Neon<LEVEL>,
    sums: float32x4x2_t,
    q: [Bytes; 8],
    factors: Factors,
    (x, x_scales, x_sums, x_ints): Eight<'_>,
) -> float32x4x2_t {
    // SAFETY: the caller's.
    unsafe {
        let [halves, half_mins] = scales_and_mins_of_halves(F::MINS, factors.halves);
        let ints = [vld1q_s32(x_ints.as_ptr()), vld1q_s32(x_ints.as_ptr().add(4))];
        let mut dots = dots::<LEVEL, F>(simd, q, x, halves);
        if F::HALVES && F::OFFSET > 0 {
            let less = by_half(halves, ints);
            for i in 0..2 {
                dots[i] = vaddq_s32(dots[i], vshlq_s32(less[i], vdupq_n_s32(7 - F::SHIFT)));
            }
        } else if F::OFFSET > 0 {
            dots = [vaddq_s32(dots[0], ints[0]), vaddq_s32(dots[1], ints[1])];
        }
        let scales = simd.mul(factors.scales, x_scales);
        let sums = simd.mul_add(to_floats(dots), scales, sums);
        if F::MINS && F::HALVES {
            let mins = simd.mul(factors.mins, x_scales);
            return simd.mul_add(to_floats(by_half(half_mins, ints)), mins, sums);
        }
        if F::MINS { simd.negated_mul_add(factors.mins, x_sums, sums) } else { sums }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn to_floats(ints: [int32x4_t; 2]) -> float32x4x2_t {
    float32x4x2_t(vcvtq_f32_s32(ints[0]), vcvtq_f32_s32(ints[1]))
}

/// The products of what half blocks have and the sums of their activations, which are two words a block.
#[inline]
#[target_feature(enable = "neon")]
fn by_half(halves: Sixteen, sums: [int32x4_t; 2]) -> [int32x4_t; 2] {
    let halves = vreinterpretq_s8_u8(halves);
    let four = |halves: int16x8_t, sums: int32x4_t| {
        let sums = vreinterpretq_s16_s32(sums);
        vpaddq_s32(vmull_s16(vget_low_s16(halves), vget_low_s16(sums)), vmull_high_s16(halves, sums))
    };
    [four(vmovl_s8(vget_low_s8(halves)), sums[0]), four(vmovl_high_s8(halves), sums[1])]
}

/// The products of eight blocks, added up for each, with the scales of half blocks where there are any.
///
/// # Safety
/// The processor has the instructions of the level.
#[inline(always)]
unsafe fn dots<const LEVEL: u8, F: Format>(
    simd: Neon<LEVEL>,
    q: [Bytes; 8],
    x: &[[u8; 32]; 8],
    halves: Sixteen,
) -> [int32x4_t; 2] {
    // SAFETY: the caller's.
    unsafe {
        let zero = vdupq_n_s32(0);
        // Of two blocks each: added up in four lanes, or in two for each half.
        let (mut pairs, mut halves_of_pairs) = ([zero; 4], [zero; 4]);
        let signed = vreinterpretq_s8_u8(halves);
        let words = [vmovl_s8(vget_low_s8(signed)), vmovl_high_s8(signed)];
        for pair in 0..4 {
            let (mut one, mut of_halves) = ([zero; 2], [zero; 2]);
            for b in 0..2 {
                let (q, x) = (q[2 * pair + b], x[2 * pair + b].as_ptr());
                let (first, second) = (vld1q_u8(x), vld1q_u8(x.add(16)));
                if F::HALVES {
                    of_halves[b] = vpaddq_s32(simd.dot(zero, q.0, first), simd.dot(zero, q.1, second));
                } else {
                    one[b] = simd.dot(simd.dot(zero, q.0, first), q.1, second);
                }
            }
            if F::HALVES {
                let four = words[pair / 2];
                let scales = vmovl_s16(if pair % 2 == 0 { vget_low_s16(four) } else { vget_high_s16(four) });
                halves_of_pairs[pair] = vmulq_s32(vpaddq_s32(of_halves[0], of_halves[1]), scales);
            } else {
                pairs[pair] = vpaddq_s32(one[0], one[1]);
            }
        }
        let [a, b, c, d] = if F::HALVES { halves_of_pairs } else { pairs };
        [vpaddq_s32(a, b), vpaddq_s32(c, d)]
    }
}
