//! I8 by NEON: sums in four lanes, four rows and up to four tokens at once; or, with `smmla`, in lanes of two rows and two tokens,
//! eight of each at once.

#![allow(clippy::needless_range_loop)] // rows and tokens are indices of several arrays

use super::simd::{DOTPROD, Neon, smmla};
use crate::Call;
use crate::arch::generic::prefetch::{NEAR, prefetch_near, streams};
use crate::dtypes::i8::{sum_of, without_zero};
use crate::input::{Int8Row, Lines};
use crate::memory;
use crate::scratch::{room, with_scratch};
use std::arch::aarch64::*;

/// Weights of a step, and bytes of a register.
const STEP: usize = 64;
const REGISTER: usize = 16;

/// Rows and tokens of a tile by `smmla`.
const ROWS: usize = 8;
const TOKENS: usize = 8;

#[target_feature(enable = "neon")]
pub(crate) fn neon(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    matmul(unsafe { Neon::<0>::new() }, call);
}

#[target_feature(enable = "neon,dotprod")]
pub(crate) fn dotprod(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    matmul(unsafe { Neon::<DOTPROD>::new() }, call);
}

#[target_feature(enable = "neon,dotprod,i8mm")]
pub(crate) fn i8mm(call: &mut Call<'_>) {
    let input = call.input;
    if input.tokens() == 1 {
        return dotprod(call);
    }
    let done = with_scratch(|scratch| {
        for token in (0..input.tokens()).step_by(TOKENS) {
            match input.tokens() - token {
                1 | 2 => pairs::<1>(&mut scratch.bytes, call, token)?,
                3 | 4 => pairs::<2>(&mut scratch.bytes, call, token)?,
                5 | 6 => pairs::<3>(&mut scratch.bytes, call, token)?,
                _ => pairs::<4>(&mut scratch.bytes, call, token)?,
            }
        }
        Ok(())
    });
    call.note(done);
}

#[inline(always)]
fn matmul<const LEVEL: u8>(simd: Neon<LEVEL>, call: &mut Call<'_>) {
    let input = call.input;
    for token in (0..input.tokens()).step_by(4) {
        for rows in streams(call.rows()) {
            match input.tokens() - token {
                1 => tile::<LEVEL, 1>(simd, call, rows, token),
                2 => tile::<LEVEL, 2>(simd, call, rows, token),
                3 => tile::<LEVEL, 3>(simd, call, rows, token),
                _ => tile::<LEVEL, 4>(simd, call, rows, token),
            }
        }
    }
}

/// The weights after the last step of a row, with zeros after them: the activations there are unspecified.
fn padded(row: &[u8]) -> [u8; STEP] {
    let mut padded = [0; STEP];
    let rest = row.as_chunks::<STEP>().1;
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

/// Four rows times `T` tokens from `token` on.
#[inline(always)]
fn tile<const LEVEL: u8, const T: usize>(simd: Neon<LEVEL>, call: &mut Call<'_>, rows: [usize; 4], token: usize) {
    let (weight, input) = (call.weight, call.input);
    let inputs = input.inputs();
    let w = rows.map(|row| &weight[row * inputs..][..inputs]);
    let x: [Int8Row<'_>; T] = std::array::from_fn(|t| input.int8(token + t));
    let steps = inputs / STEP;
    assert!(x.iter().all(|x| x.padded.len() >= inputs.div_ceil(STEP)));
    // SAFETY: the value proves the instruction sets.
    let mut sums = [[unsafe { vdupq_n_s32(0) }; T]; 4];
    for i in 0..steps {
        if T == 1 {
            for r in 0..4 {
                prefetch_near(w[r].as_ptr().wrapping_add(STEP * i + NEAR), STEP);
            }
        }
        for at in (STEP * i..STEP * (i + 1)).step_by(REGISTER) {
            // SAFETY: rows and tokens have so many steps.
            unsafe { add::<LEVEL, T>(simd, w.map(|w| w.as_ptr().add(at)), &x, at, &mut sums) };
        }
    }
    if inputs > STEP * steps {
        let padded = w.map(padded);
        for at in (0..STEP).step_by(REGISTER) {
            // SAFETY: a step is there, and tokens have one more than rows.
            unsafe {
                add::<LEVEL, T>(simd, padded.each_ref().map(|w| w.as_ptr().add(at)), &x, STEP * steps + at, &mut sums);
            }
        }
    }
    for r in 0..4 {
        let sum = if x.iter().any(|x| x.zero != 0) { sum_of(w[r]) } else { 0 };
        for t in 0..T {
            // SAFETY: the value proves the instruction sets.
            let product = unsafe { vaddvq_s32(sums[r][t]) };
            call.part(token + t, rows[r], 1)[0] = without_zero(product, x[t].zero, sum) as f32 * x[t].scale;
        }
    }
}

/// Adds the products of a register of each row and the bytes from `at` on of each token.
///
/// # Safety
/// The bytes of a register are there.
#[inline(always)]
unsafe fn add<const LEVEL: u8, const T: usize>(
    simd: Neon<LEVEL>,
    w: [*const u8; 4],
    x: &[Int8Row<'_>; T],
    at: usize,
    sums: &mut [[int32x4_t; T]; 4],
) {
    // SAFETY: the caller guarantees it; the value proves the instruction sets.
    unsafe {
        let mut registers = [vdupq_n_u8(0); 4];
        for r in 0..4 {
            registers[r] = vld1q_u8(w[r]);
        }
        for t in 0..T {
            let x = vld1q_u8(x[t].padded.as_ptr().cast::<u8>().add(at));
            for r in 0..4 {
                sums[r][t] = simd.dot(sums[r][t], registers[r], x);
            }
        }
    }
}

/// All rows times `2 * PAIRS` tokens from `token` on; if there are fewer, the last is taken again and dropped.
#[inline]
#[target_feature(enable = "neon,dotprod,i8mm")]
fn pairs<const PAIRS: usize>(scratch: &mut Lines<u8>, call: &mut Call<'_>, token: usize) -> memory::Result<()> {
    let (weight, input) = (call.weight, call.input);
    let (inputs, tokens) = (input.inputs(), (input.tokens() - token).min(2 * PAIRS));
    let steps = inputs.div_ceil(STEP);
    // In each 16 bytes of two tokens come the first eight of both, then the others: `[steps, 4, pairs, 2, 16]`.
    let packed = room(scratch, steps * STEP * 2 * PAIRS)?;
    for (p, two) in (0..PAIRS).map(|p| (p, [2 * p, 2 * p + 1].map(|t| input.int8(token + t.min(tokens - 1))))) {
        for i in 0..steps * STEP / REGISTER {
            let of = |row: &Int8Row<'_>| row.padded.as_flattened().as_chunks::<REGISTER>().0[i].map(|x| x as u8);
            let [a, b] = [of(&two[0]), of(&two[1])];
            let to = &mut packed[(i * PAIRS + p) * 2 * REGISTER..][..2 * REGISTER];
            for (to, from) in to.chunks_exact_mut(8).zip([&a[..8], &b[..8], &a[8..], &b[8..]]) {
                to.copy_from_slice(from);
            }
        }
    }
    for first in (0..call.rows()).step_by(ROWS) {
        let rows = ROWS.min(call.rows() - first);
        let w: [&[u8]; ROWS] = std::array::from_fn(|r| &weight[(first + r.min(rows - 1)) * inputs..][..inputs]);
        let mut sums = [[vdupq_n_s32(0); PAIRS]; ROWS / 2];
        for i in 0..inputs / STEP {
            for part in 4 * i..4 * (i + 1) {
                // SAFETY: rows and tokens have so many steps.
                unsafe {
                    let w = w.map(|w| w.as_ptr().add(REGISTER * part));
                    add_pairs::<PAIRS>(w, packed.as_ptr().add(part * PAIRS * 2 * REGISTER), &mut sums);
                }
            }
        }
        if !inputs.is_multiple_of(STEP) {
            let padded = w.map(padded);
            for part in 0..4 {
                // SAFETY: a step is there, and tokens have one more than rows.
                unsafe {
                    let x = packed.as_ptr().add((4 * (steps - 1) + part) * PAIRS * 2 * REGISTER);
                    add_pairs::<PAIRS>(padded.each_ref().map(|w| w.as_ptr().add(REGISTER * part)), x, &mut sums);
                }
            }
        }
        let has_zero = (0..tokens).any(|t| input.int8(token + t).zero != 0);
        let sums_of_rows = if has_zero { w.map(sum_of) } else { [0; ROWS] };
        for t in 0..tokens {
            let Int8Row { zero, scale, .. } = input.int8(token + t);
            for (r, y) in call.part(token + t, first, rows).iter_mut().enumerate() {
                let mut lanes = [0; 4];
                // SAFETY: the array has room for four.
                unsafe { vst1q_s32(lanes.as_mut_ptr(), sums[r / 2][t / 2]) };
                let product = lanes[2 * (r % 2) + t % 2];
                *y = without_zero(product, zero, sums_of_rows[r]) as f32 * scale;
            }
        }
    }
    Ok(())
}

/// Adds the products of a register of each row and of each token; tokens come in pairs.
///
/// # Safety
/// The bytes of a register are there.
#[inline]
#[target_feature(enable = "neon,i8mm")]
unsafe fn add_pairs<const PAIRS: usize>(w: [*const u8; ROWS], x: *const u8, sums: &mut [[int32x4_t; PAIRS]; ROWS / 2]) {
    let mut eights = [[vdupq_n_u8(0); 2]; ROWS / 2];
    for r in 0..ROWS / 2 {
        // SAFETY: the caller guarantees it.
        let (a, b) = unsafe { (vld1q_u8(w[2 * r]), vld1q_u8(w[2 * r + 1])) };
        let (a, b) = (vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b));
        eights[r] = [vreinterpretq_u8_u64(vzip1q_u64(a, b)), vreinterpretq_u8_u64(vzip2q_u64(a, b))];
    }
    for p in 0..PAIRS {
        for half in 0..2 {
            // SAFETY: the caller guarantees it.
            let x = unsafe { vld1q_u8(x.add((2 * p + half) * REGISTER)) };
            for r in 0..ROWS / 2 {
                sums[r][p] = smmla(sums[r][p], eights[r][half], x);
            }
        }
    }
}
