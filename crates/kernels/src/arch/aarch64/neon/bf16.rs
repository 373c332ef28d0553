//! BF16 by Arm's matrix product: two rows of four elements with two columns of four, each of which adds two products and
//! then two more to its sum, by the rounding that the architecture defines.
//!
//! Element `i` belongs to lane `i / 4` modulo 4. Lanes are added 0 to 1 and 2 to 3, then these sums. With one token a register of
//! eight elements is used as two rows, and two of the four sums are kept, of each half with its own: lanes as with
//! several tokens, where registers have a half of each of two.

#![allow(clippy::needless_range_loop)] // rows and tokens are indices of several arrays

use crate::Call;
use crate::arch::generic::prefetch::{NEAR, prefetch_near, streams};
use std::arch::aarch64::*;
use std::arch::asm;

/// Rows at a time.
const ROWS: usize = 4;

/// Elements of a register.
const EIGHT: usize = 8;

#[target_feature(enable = "neon,bf16")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    let input = call.input;
    let tokens = input.tokens();
    for token in (0..tokens).step_by(4) {
        for rows in streams(call.rows()) {
            match tokens - token {
                1 => one_token(call, rows, token),
                2 => pairs::<1>(call, rows, token),
                _ => pairs::<2>(call, rows, token),
            }
        }
    }
}

/// Two rows of `a` times two columns of `b`.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn bfmmla(mut sums: float32x4_t, a: uint16x8_t, b: uint16x8_t) -> float32x4_t {
    // SAFETY: the instruction reads and writes only these registers.
    unsafe {
        asm!(
            "bfmmla {sums:v}.4s, {a:v}.8h, {b:v}.8h",
            sums = inout(vreg) sums, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// 16 bytes.
#[inline]
#[target_feature(enable = "neon")]
fn eight(bytes: &[u8; 16]) -> uint16x8_t {
    // SAFETY: the array is 16 bytes; the load needs no alignment.
    vreinterpretq_u16_u8(unsafe { vld1q_u8(bytes.as_ptr()) })
}

/// The sixteen elements `16 * i ..` of a row.
///
/// # Safety
/// The row has these elements.
#[inline(always)]
unsafe fn sixteen(row: &[u8], i: usize) -> &[[u8; 16]; 2] {
    // SAFETY: the caller guarantees it.
    unsafe { &*row.as_ptr().add(4 * EIGHT * i).cast() }
}

/// Adds sixteen products of each row to its sums.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn add(w: [&[[u8; 16]; 2]; ROWS], x: &[[u8; 16]; 2], sums: &mut [[float32x4_t; 2]; ROWS]) {
    let x = [eight(&x[0]), eight(&x[1])];
    for r in 0..ROWS {
        for parity in 0..2 {
            sums[r][parity] = bfmmla(sums[r][parity], eight(&w[r][parity]), x[parity]);
        }
    }
}

/// The elements after the last sixteen of a row, with zeros after them.
fn rest(row: &[u8]) -> [[u8; 16]; 2] {
    let mut padded = [[0; 16]; 2];
    let rest = row.as_chunks::<{ 4 * EIGHT }>().1;
    padded.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
    padded
}

/// The first halves of both, and the second halves.
#[inline]
#[target_feature(enable = "neon")]
fn halves(a: uint16x8_t, b: uint16x8_t) -> [uint16x8_t; 2] {
    let (a, b) = (vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b));
    [vreinterpretq_u16_u64(vzip1q_u64(a, b)), vreinterpretq_u16_u64(vzip2q_u64(a, b))]
}

/// Some rows times one token.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn one_token(call: &mut Call<'_>, rows: [usize; ROWS], token: usize) {
    let (weight, input) = (call.weight, call.input);
    let inputs = input.inputs();
    let w = rows.map(|row| &weight[2 * row * inputs..][..2 * inputs]);
    let x: &[u8] = bytemuck::cast_slice(&input.halves(token)[..inputs]);
    let mut sums = [[vdupq_n_f32(0.0); 2]; ROWS];
    // Each step takes an even and an odd group of eight elements.
    let steps = inputs / (2 * EIGHT);
    // First whole cache lines of each row, then the rest.
    for line in 0..steps / 2 {
        for w in w {
            prefetch_near(w.as_ptr().wrapping_add(64 * line + NEAR), 64);
        }
        for i in 2 * line..2 * line + 2 {
            // SAFETY: that many steps are there.
            unsafe { add(w.map(|w| sixteen(w, i)), sixteen(x, i), &mut sums) };
        }
    }
    if steps % 2 == 1 {
        // SAFETY: the reason above holds here too.
        unsafe { add(w.map(|w| sixteen(w, steps - 1)), sixteen(x, steps - 1), &mut sums) };
    }
    if inputs > 2 * EIGHT * steps {
        add(w.map(rest).each_ref(), &rest(x), &mut sums);
    }
    for r in 0..ROWS {
        let [even, odd] = sums[r].map(|sums| vgetq_lane_f32::<0>(sums) + vgetq_lane_f32::<3>(sums));
        call.part(token, rows[r], 1)[0] = even + odd;
    }
}

/// Some rows times `PAIRS` times two tokens; if there is one token less, the last is taken twice.
#[inline]
#[target_feature(enable = "neon,bf16")]
fn pairs<const PAIRS: usize>(call: &mut Call<'_>, rows: [usize; ROWS], token: usize) {
    let (weight, input) = (call.weight, call.input);
    let (inputs, last) = (input.inputs(), input.tokens() - 1);
    let w = rows.map(|row| &weight[2 * row * inputs..][..2 * inputs]);
    let mut x: [[&[u8]; 2]; PAIRS] = [[&[]; 2]; PAIRS];
    for (t, x) in x.as_flattened_mut().iter_mut().enumerate() {
        *x = bytemuck::cast_slice(&input.halves((token + t).min(last))[..inputs]);
    }
    let mut sums = [[[[vdupq_n_f32(0.0); 2]; 2]; PAIRS]; 2];
    let steps = inputs / (2 * EIGHT);
    let (w_rest, x_rest) = (w.map(rest), x.map(|two| two.map(rest)));
    for i in 0..inputs.div_ceil(2 * EIGHT) {
        let w: [_; ROWS] = std::array::from_fn(|r| match i < steps {
            // SAFETY: that many steps are there.
            true => unsafe { sixteen(w[r], i) },
            false => &w_rest[r],
        });
        for parity in 0..2 {
            let first = halves(eight(&w[0][parity]), eight(&w[1][parity]));
            let second = halves(eight(&w[2][parity]), eight(&w[3][parity]));
            for p in 0..PAIRS {
                let x: [_; 2] = std::array::from_fn(|t| match i < steps {
                    // SAFETY: the reason above holds here too.
                    true => unsafe { sixteen(x[p][t], i) },
                    false => &x_rest[p][t],
                });
                let x = halves(eight(&x[0][parity]), eight(&x[1][parity]));
                for half in 0..2 {
                    sums[0][p][parity][half] = bfmmla(sums[0][p][parity][half], first[half], x[half]);
                    sums[1][p][parity][half] = bfmmla(sums[1][p][parity][half], second[half], x[half]);
                }
            }
        }
    }
    for (two, sums) in sums.iter().enumerate() {
        for (p, [even, odd]) in sums.iter().enumerate() {
            let [even, odd] = [even, odd].map(|halves| vaddq_f32(halves[0], halves[1]));
            let mut both = [0.0; 4];
            // SAFETY: the array has room for four.
            unsafe { vst1q_f32(both.as_mut_ptr(), vaddq_f32(even, odd)) };
            for (i, &sum) in both.iter().enumerate() {
                let token = token + 2 * p + i % 2;
                if token <= last {
                    call.part(token, rows[2 * two + i / 2], 1)[0] = sum;
                }
            }
        }
    }
}
