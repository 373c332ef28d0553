//! I8 by NEON: sums in four lanes, several rows and tokens at once.

#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // rows and tokens are indices of several arrays

use super::{sum_of, without_zero};
use crate::kernels::prefetch::{NEAR, prefetch_near, streams};
use crate::kernels::simd::{DOTPROD, Neon};
use crate::kernels::{Input, Output};
use std::arch::aarch64::*;

/// Weights of a step.
const STEP: usize = 16;

#[target_feature(enable = "neon")]
pub(super) fn neon(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    matmul(unsafe { Neon::<0>::new() }, weight, input, output);
}

#[target_feature(enable = "neon,dotprod")]
pub(super) fn dotprod(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    matmul(unsafe { Neon::<DOTPROD>::new() }, weight, input, output);
}

#[inline(always)]
fn matmul<const LEVEL: u8>(simd: Neon<LEVEL>, weight: &[u8], input: &Input, output: &mut Output<'_>) {
    for token in (0..input.tokens()).step_by(4) {
        for rows in streams(output.rows()) {
            match input.tokens() - token {
                1 => tile::<LEVEL, 1>(simd, weight, rows, input, token, output),
                2 => tile::<LEVEL, 2>(simd, weight, rows, input, token, output),
                3 => tile::<LEVEL, 3>(simd, weight, rows, input, token, output),
                _ => tile::<LEVEL, 4>(simd, weight, rows, input, token, output),
            }
        }
    }
}

/// Four rows times `T` tokens from `token` on.
#[inline(always)]
fn tile<const LEVEL: u8, const T: usize>(
    simd: Neon<LEVEL>,
    weight: &[u8],
    rows: [usize; 4],
    input: &Input,
    token: usize,
    output: &mut Output<'_>,
) {
    let inputs = input.inputs();
    let w = rows.map(|row| &weight[row * inputs..][..inputs]);
    let x: [_; T] = std::array::from_fn(|t| input.int8(token + t));
    let x_bytes: [&[[i8; STEP]]; T] = std::array::from_fn(|t| x[t].padded.as_flattened().as_chunks().0);
    let (steps, rest) = (inputs / STEP, inputs % STEP);
    let all = steps + usize::from(rest > 0);
    assert!(x_bytes.iter().all(|x| x.len() >= all));
    // Zeros behind the end: what activations have there is unspecified.
    let mut padded = [[0; STEP]; 4];
    padded.iter_mut().zip(w).for_each(|(to, w)| to[..rest].copy_from_slice(&w[inputs - rest..]));
    // SAFETY: the value is the proof.
    let mut sums = [[unsafe { vdupq_n_s32(0) }; T]; 4];
    for i in 0..all {
        // SAFETY: the value is the proof.
        let mut registers = [unsafe { vdupq_n_u8(0) }; 4];
        for r in 0..4 {
            let at = if i < steps { w[r][STEP * i..].as_ptr() } else { padded[r].as_ptr() };
            if T == 1 && i % (64 / STEP) == 0 {
                prefetch_near(at.wrapping_add(NEAR), 64);
            }
            // SAFETY: a step is there.
            registers[r] = unsafe { vld1q_u8(at) };
        }
        for t in 0..T {
            // SAFETY: so many steps are there.
            let x = unsafe { vld1q_u8(x_bytes[t].as_ptr().add(i).cast()) };
            for r in 0..4 {
                sums[r][t] = simd.dot(sums[r][t], registers[r], x);
            }
        }
    }
    for r in 0..4 {
        let sum = if x.iter().any(|x| x.zero != 0) { sum_of(w[r]) } else { 0 };
        for t in 0..T {
            // SAFETY: the value is the proof.
            let product = unsafe { vaddvq_s32(sums[r][t]) };
            output.part(token + t, rows[r], 1)[0] = without_zero(product, x[t].zero, sum) as f32 * x[t].scale;
        }
    }
}
