//! Products by NEON, of block dtypes with `sdot` or `smmla` where the processor has them.
//!
//! With one token, blocks of two rows are taken four at a time: the products are added up for each block, exactly, four blocks a
//! register, and then added to the lanes, four blocks at a time.

pub(crate) mod attention;
pub(crate) mod bf16;
pub(crate) mod i8;
pub(crate) mod q4_k;
pub(crate) mod simd;
pub(crate) mod wide;
pub(crate) mod wide_panel;

use crate::Call;
use crate::arch::generic::prefetch::streams;
use crate::arch::generic::simd::Simd;
use crate::arch::generic::wide::{
    Bytes16, EightBlocks, Factors, ONE_TOKEN, all, scales_and_mins_of_halves, scales_of_four,
};
use crate::arch::generic::wide_panel::matmul_by;
use crate::arch::generic::{codes, floats};
use crate::dtypes::blocks::Format;
use crate::dtypes::codes::Codes;
use crate::element::Element;
use crate::input::{Lines, Q8};
use crate::memory;
use crate::scratch::{Scratch, arranged, arranged_bytes, arranged_sums, room, with_scratch};
use simd::{DOTPROD, FLOAT_BITS, I8MM, Neon, load_about, sum_eight_lanes, to_floats};
use std::arch::aarch64::*;
use std::arch::asm;

/// Rows side by side, for which activations are loaded once.
const ROWS: usize = 2;

/// The products of a level: functions that are compiled for it, and so are the closures in them.
macro_rules! level {
    ($name:ident, $features:literal, $level:expr) => {
        pub(crate) mod $name {
            use super::*;

            /// The matrix product of a block dtype.
            #[target_feature(enable = $features)]
            pub(crate) fn matmul<F: EightBlocks<EIGHT> + Default, const EIGHT: usize>(call: &mut Call<'_>) {
                multiply(call, &F::default());
            }

            /// The matrix product of a block dtype as `eights` unpacks it.
            #[inline]
            #[target_feature(enable = $features)]
            pub(crate) fn multiply<F: EightBlocks<EIGHT>, const EIGHT: usize>(call: &mut Call<'_>, eights: &F) {
                let few = match F::PARTS {
                    2 => one_token::<F, EIGHT, 2>(call, eights),
                    _ => one_token::<F, EIGHT, 1>(call, eights),
                };
                if !few {
                    panels(call, eights);
                }
            }

            /// The product with several tokens.
            #[inline]
            #[target_feature(enable = $features)]
            fn panels<F: EightBlocks<EIGHT>, const EIGHT: usize>(call: &mut Call<'_>, eights: &F) {
                // SAFETY: the function is compiled for the instruction sets.
                let simd = unsafe { Neon::<{ $level }>::new() };
                // SAFETY: the reason above holds here too.
                let done = with_scratch(|scratch| unsafe { matmul_by(simd, scratch, call, eights) });
                call.note(done);
            }

            /// The product with one token, like [`Call::few_tokens`].
            #[inline]
            #[target_feature(enable = $features)]
            fn one_token<F: EightBlocks<EIGHT>, const EIGHT: usize, const P: usize>(
                call: &mut Call<'_>,
                eights: &F,
            ) -> bool {
                // SAFETY: the function is compiled for the instruction sets.
                let simd = unsafe { Neon::<{ $level }>::new() };
                // SAFETY: the reason above holds here too.
                call.few_tokens::<P>(|scratch, weight, x, y| unsafe {
                    rows_times_token(simd, scratch, weight, &x[0], y, &[], eights)?;
                    if P == 2 {
                        let mut lines = std::mem::take(&mut scratch.rows);
                        let first = room(&mut lines, size_of_val(y))?;
                        first.copy_from_slice(bytemuck::cast_slice(y));
                        rows_times_token(simd, scratch, weight, &x[1], y, bytemuck::cast_slice(first), eights)?;
                        scratch.rows = lines;
                    }
                    Ok(())
                })
            }
        }
    };
}
level!(plain, "neon", 0);
level!(dotprod, "neon,dotprod", DOTPROD);
level!(i8mm, "neon,dotprod,i8mm", I8MM);

/// The product of weights that are widened in a register.
#[target_feature(enable = "neon")]
pub(crate) fn widened<E: Element>(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    floats::widened::<Neon, E>(unsafe { Neon::new() }, call);
}

/// The product of codes that are widened in a register.
#[target_feature(enable = "neon")]
pub(crate) fn codes<C: Codes>(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    codes::multiply::<_, C>(unsafe { Neon::<0>::new() }, call, |call| widened::<f32>(call));
}

/// A loop that is written out, as the compiler keeps a plain loop.
macro_rules! each {
    ($i:ident in $($number:literal)*, $body:block) => {
        $({
            const $i: usize = $number;
            $body
        })*
    };
}
pub(crate) use each;

/// The rows of `weight` times one row of activations, added to `before` where that has them.
///
/// # Safety
/// The processor has the instructions of the level.
#[inline(always)]
unsafe fn rows_times_token<const LEVEL: u8, F: EightBlocks<EIGHT>, const EIGHT: usize>(
    simd: Neon<LEVEL>,
    Scratch { bytes, floats, more_floats, ints, .. }: &mut Scratch,
    weight: &[u8],
    x: &Q8<'_>,
    y: &mut [f32],
    before: &[f32],
    eights: &F,
) -> memory::Result<()> {
    // The activations, padded to a whole number of steps.
    let (blocks, one) = (x.scales.len().next_multiple_of(16), std::array::from_ref(x));
    let x_bytes = arranged_bytes::<32, 1>(bytes, one, F::ELEMENTS.evens_first, blocks, |i| i)?;
    let x_scales = arranged::<f32, 8, 1>(floats, [x.scales], blocks, |b| b)?;
    // The sums with their sign turned: otherwise the compiler would turn the sign of the minima, for each block.
    let x_sums = room(more_floats, blocks)?;
    for (b, sum) in x_sums.iter_mut().enumerate() {
        *sum = x.sums.get(b).map_or(-0.0, |sum| -sum);
    }
    let x_sums = x_sums.as_chunks::<8>().0;
    let x_ints = if F::HALVES {
        arranged_sums::<F, 8, 1>(ints, one, blocks)?.as_flattened()
    } else {
        seeds::<F>(ints, x, blocks)?
    };
    let ints_of_eight = if F::HALVES { 8 } else { 32 };
    let row_bytes = weight.len() / y.len();
    let (whole, rest) = (row_bytes / (2 * EIGHT), row_bytes % (2 * EIGHT));
    assert!(x_bytes.len() == blocks / 8 && x_scales.len() == blocks / 8 && 2 * EIGHT * blocks >= 16 * row_bytes);
    assert!(x_sums.len() == blocks / 8 && x_ints.len() == blocks / 8 * ints_of_eight);
    // The ends of the rows, with zeros after them.
    let mut ends = [[[0; EIGHT]; 2]; ROWS];
    for rows in streams::<ROWS>(y.len()) {
        let (mut starts, mut padded) = ([weight.as_ptr(); ROWS], [weight.as_ptr(); ROWS]);
        for r in 0..ROWS {
            let row = &weight[rows[r] * row_bytes..][..row_bytes];
            if rest > 0 {
                ends[r].as_flattened_mut()[..rest].copy_from_slice(&row[row_bytes - rest..]);
            }
            (starts[r], padded[r]) = (row.as_ptr(), ends[r].as_ptr().cast());
        }
        // SAFETY: every aarch64 has NEON.
        let (mut sums, mut i) = ([[unsafe { vdupq_n_f32(0.0) }; 4]; ROWS], 0);
        for (mut at, end) in [(starts, 2 * whole), (padded, blocks / 8)] {
            while i < end {
                // SAFETY: the caller guarantees it; rows, or their ends with zeros after them, and activations have both eights.
                unsafe {
                    let mut factors = [Factors::scaled(simd.all(0.0)); ROWS];
                    let middle = x_bytes.as_ptr().add(i + 1).cast();
                    let ints = x_ints.as_ptr().add(i * ints_of_eight);
                    each!(QUARTER in 0 1 2 3, {
                        let e = i + QUARTER / 2;
                        let x = (middle, x_scales.get_unchecked(e), x_sums.get_unchecked(e), ints);
                        let place = (&mut at, rows, e);
                        add_four::<QUARTER, LEVEL, F, EIGHT>(simd, &mut sums, &mut factors, place, x, eights);
                    });
                }
                i += 2;
            }
        }
        for r in 0..ROWS {
            // SAFETY: the value proves the instruction sets.
            let sum = unsafe {
                sum_eight_lanes(simd.add(float32x4x2_t(sums[r][0], sums[r][1]), float32x4x2_t(sums[r][2], sums[r][3])))
            };
            y[rows[r]] = before.get(rows[r]).map_or(sum, |before| before + sum);
        }
    }
    Ok(())
}

/// The initial sums of each block, four a block. The first has what the offset of the block's weights adds too much, and what
/// makes it the bits of a float.
fn seeds<'a, F: Format>(lines: &'a mut Lines<i32>, x: &Q8<'_>, blocks: usize) -> memory::Result<&'a [i32]> {
    let seeds = room(lines, 4 * blocks)?;
    for (b, seed) in seeds.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let offset = if F::OFFSET > 0 { x.offsets.get(b).map_or(0, |offset| offset >> F::SHIFT) } else { 0 };
        *seed = [FLOAT_BITS + offset, 0, 0, 0];
    }
    Ok(seeds)
}

/// Activations: the middle of the bytes of sixteen blocks, scales of eight, sums of eight with their sign turned, and what
/// [`arranged_sums`] or [`seeds`] gives for the sixteen.
type Activations<'a> = (*const u8, &'a [f32; 8], &'a [f32; 8], *const i32);

/// Adds four blocks of the eights of rows that begin at `place.0` and are number `place.2` of rows `place.1`, the first four
/// where `QUARTER` is even, to sums number `QUARTER`; after the other four the next eights begin.
///
/// # Safety
/// The processor has the instructions of the level, and the blocks are there.
#[inline(always)]
unsafe fn add_four<const QUARTER: usize, const LEVEL: u8, F: EightBlocks<EIGHT>, const EIGHT: usize>(
    simd: Neon<LEVEL>,
    sums: &mut [[float32x4_t; 4]; ROWS],
    factors: &mut [Factors; ROWS],
    (at, rows, i): (&mut [*const u8; ROWS], [usize; ROWS], usize),
    (x, x_scales, x_sums, ints): Activations<'_>,
    eights: &F,
) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let second = QUARTER % 2 == 1;
        let from = if second { 4 } else { 0 };
        let sums_of_halves = ints.add(4 * QUARTER); // where half blocks have scales
        let zero = const { &[[0; 4]] }.as_ptr();
        let (mut q, mut halves, mut half_mins) = ([[all(0); 8]; ROWS], [vdupq_n_s16(0); ROWS], [vdupq_n_s16(0); ROWS]);
        each!(R in 0 1, {
            at[R] = after(at[R], sums[R][(QUARTER + 3) % 4]);
            let eight = &*at[R].cast();
            q[R] = eights.elements::<ONE_TOKEN>(eight);
            if !second {
                factors[R] = eights.factors::<ONE_TOKEN>(eight, [rows[R], i]);
            }
            if F::HALVES && !F::FLOATS {
                let both = scales_and_mins_of_halves(F::MINS, factors[R].halves);
                [halves[R], half_mins[R]] = [wide_half(both[0], second), wide_half(both[1], second)];
            }
        });
        // The sums of two blocks: added up in four lanes, with the scales of half blocks where there are any.
        let mut pairs = [[vdupq_n_s32(0); 2]; ROWS];
        each!(PAIR in 0 1, {
            let first = from + 2 * PAIR;
            // Elements of 8 bits take more loads than others: as few instructions as possible for them. Elements of 5 bits leave no
            // registers for early loads.
            let x = if F::BITS == 8 || F::BITS == 5 {
                let x = |number: usize| vld1q_u8(x.wrapping_add(128 * QUARTER + 16 * number).wrapping_sub(256));
                [[x(4 * PAIR), x(4 * PAIR + 1)], [x(4 * PAIR + 2), x(4 * PAIR + 3)]]
            } else {
                [
                    [load_about::<QUARTER, { 4 * PAIR }>(x), load_about::<QUARTER, { 4 * PAIR + 1 }>(x)],
                    [load_about::<QUARTER, { 4 * PAIR + 2 }>(x), load_about::<QUARTER, { 4 * PAIR + 3 }>(x)],
                ]
            };
            each!(R in 0 1, {
                let q = [q[R][first], q[R][first + 1]];
                pairs[R][PAIR] = if F::HALVES {
                    let zeros = vdupq_n_s32(0);
                    let a = vpaddq_s32(simd.dot_from::<0, 0>(zero, q[0].0, x[0][0]), simd.dot(zeros, q[0].1, x[0][1]));
                    let b = vpaddq_s32(simd.dot_from::<0, 0>(zero, q[1].0, x[1][0]), simd.dot(zeros, q[1].1, x[1][1]));
                    let scales = if PAIR == 0 { vmovl_s16(vget_low_s16(halves[R])) } else { vmovl_high_s16(halves[R]) };
                    if F::FLOATS { vpaddq_s32(a, b) } else { vmulq_s32(vpaddq_s32(a, b), scales) }
                } else {
                    let seeds = ints.cast();
                    let [a, b] = if F::BITS == 8 {
                        [simd.dot(vdupq_n_s32(0), q[0].0, x[0][0]), simd.dot(vdupq_n_s32(0), q[1].0, x[1][0])]
                    } else {
                        [
                            simd.dot_from::<QUARTER, { 2 * PAIR }>(seeds, q[0].0, x[0][0]),
                            simd.dot_from::<QUARTER, { 2 * PAIR + 1 }>(seeds, q[1].0, x[1][0]),
                        ]
                    };
                    let (a, b) = (simd.dot(a, q[0].1, x[0][1]), simd.dot(b, q[1].1, x[1][1]));
                    vpaddq_s32(a, b)
                };
            });
        });
        let x_scales = vld1q_f32(x_scales[from..].as_ptr());
        each!(R in 0 1, {
            let mut dots = vpaddq_s32(pairs[R][0], pairs[R][1]);
            if F::HALVES && F::OFFSET > 0 && !F::FLOATS {
                let less = by_half(halves[R], vld1q_s32(sums_of_halves));
                dots = vaddq_s32(dots, vshlq_s32(less, vdupq_n_s32(7 - F::SHIFT)));
            }
            let dots = if F::FLOATS {
                let halves = [vuzp1q_s32(pairs[R][0], pairs[R][1]), vuzp2q_s32(pairs[R][0], pairs[R][1])];
                let bytes = factors[R].halves;
                let [by_first, by_last] = scales_of_four(if second { vget_high_u8(bytes) } else { vget_low_u8(bytes) });
                const { assert!(F::OFFSET == 0 || !F::FLOATS) };
                vfmaq_f32(vmulq_f32(vcvtq_f32_s32(halves[0]), by_first), vcvtq_f32_s32(halves[1]), by_last)
            } else if F::HALVES || F::BITS == 8 {
                vcvtq_f32_s32(dots)
            } else {
                to_floats(dots)
            };
            let Factors { scales, mins, .. } = factors[R];
            let (scales, mins) = if second { (scales.1, mins.1) } else { (scales.0, mins.0) };
            let mut sum = vfmaq_f32(sums[R][QUARTER], dots, vmulq_f32(scales, x_scales));
            if F::MINS && F::HALVES {
                let less = by_half(half_mins[R], vld1q_s32(sums_of_halves));
                sum = vfmaq_f32(sum, vcvtq_f32_s32(less), vmulq_f32(mins, x_scales));
            } else if F::MINS {
                sum = vfmaq_f32(sum, mins, vld1q_f32(x_sums[from..].as_ptr()));
            }
            sums[R][QUARTER] = sum;
            if second {
                at[R] = at[R].add(EIGHT);
            }
        });
    }
}

/// Returns `at`, but not before `sums` for the compiler: otherwise it would load more at once than there are registers.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // nothing is read
fn after(mut at: *const u8, sums: float32x4_t) -> *const u8 {
    // SAFETY: no instruction.
    unsafe { asm!("/* {0} {1:v} */", inout(reg) at, in(vreg) sums, options(pure, nomem, nostack, preserves_flags)) };
    at
}

/// Widens the first or the second eight bytes.
#[inline]
#[target_feature(enable = "neon")]
fn wide_half(bytes: Bytes16, second: bool) -> int16x8_t {
    let bytes = vreinterpretq_s8_u8(bytes);
    if second { vmovl_high_s8(bytes) } else { vmovl_s8(vget_low_s8(bytes)) }
}

/// The products of the scales or minima of half blocks and the sums of their activations, which are two words a block.
#[inline]
#[target_feature(enable = "neon")]
fn by_half(halves: int16x8_t, sums: int32x4_t) -> int32x4_t {
    let sums = vreinterpretq_s16_s32(sums);
    vpaddq_s32(vmull_s16(vget_low_s16(halves), vget_low_s16(sums)), vmull_high_s16(halves, sums))
}
