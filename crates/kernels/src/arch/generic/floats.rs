//! Products of float dtypes by AVX2 or NEON: for each output one vector of 8 sums along the row, several rows and tokens at once.

use super::prefetch::{NEAR, prefetch_near, streams};
use super::simd::Simd;
use crate::Call;
use crate::element::Element;
use crate::scratch::{Scratch, room, swap_scratch};
use std::ops::Range;

/// Elements of a row that are multiplied in all rows before the next ones are, so that a tile's activations stay in the
/// first-level cache; a multiple of 8.
const CHUNK: usize = 1024;

/// With at most so many tokens rows are multiplied whole: memory takes most of the time, and is faster so.
const WHOLE: usize = 16;

/// The product of weights that are widened in a register.
#[inline(always)]
pub(crate) fn widened<S: Simd, E: Element>(simd: S, call: &mut Call<'_>) {
    let input = call.input;
    let tokens = input.tokens();
    let mut token = 0;
    while token < tokens {
        token += match tokens - token {
            1 => rows::<S, 4, 1, E>(simd, call, token),
            2 => rows::<S, 4, 2, E>(simd, call, token),
            3 | 6 => rows::<S, 3, 3, E>(simd, call, token),
            _ => rows::<S, 3, 4, E>(simd, call, token),
        };
    }
}

/// All rows times `T` tokens from `token` on; returns `T`.
#[inline(always)]
fn rows<S: Simd, const R: usize, const T: usize, E: Element>(simd: S, call: &mut Call<'_>, token: usize) -> usize {
    let input = call.input;
    let (rows, inputs) = (call.rows(), input.inputs());
    assert_eq!(call.weight.len(), rows * inputs * size_of::<E>());
    let chunk = if input.tokens() > WHOLE { CHUNK } else { inputs };
    let mut x: [&[f32]; T] = [&[]; T];
    for (t, x) in x.iter_mut().enumerate() {
        *x = input.floats(token + t);
    }
    let len = if chunk < inputs { rows.div_ceil(R) * R * T * 8 } else { R * T * 8 };
    // Memory is taken from the thread and put back: a closure that computed there would be compiled without the instruction sets.
    let mut scratch = Scratch::default();
    swap_scratch(&mut scratch);
    match room(&mut scratch.floats, len) {
        Ok(kept) => {
            let kept = kept.as_chunks_mut::<8>().0;
            for from in (0..inputs).step_by(chunk) {
                let part = from..inputs.min(from + chunk);
                for (i, rows) in streams::<R>(rows).enumerate() {
                    let at = if chunk < inputs { i * R * T } else { 0 };
                    let kept = &mut kept[at..][..R * T];
                    tile::<S, R, T, E>(simd, call, token, &x, rows, part.clone(), kept);
                }
            }
        }
        Err(refused) => call.note(Err(refused)),
    }
    swap_scratch(&mut scratch);
    T
}

/// Elements `part` of `R` rows times `T` tokens from `token` on; `kept` holds the sums between the parts of rows.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // rows and tokens are indices of several arrays
fn tile<S: Simd, const R: usize, const T: usize, E: Element>(
    simd: S,
    call: &mut Call<'_>,
    token: usize,
    x: &[&[f32]; T],
    rows: [usize; R],
    part: Range<usize>,
    kept: &mut [[f32; 8]],
) {
    let inputs = x[0].len();
    let row_bytes = inputs * size_of::<E>();
    assert!(part.end <= inputs && x.iter().all(|x| x.len() == inputs));
    // A loop, as a call of `map` is not inlined here.
    let mut w: [*const E; R] = [std::ptr::null(); R];
    for r in 0..R {
        w[r] = call.weight[rows[r] * row_bytes..][..row_bytes].as_ptr().cast();
    }
    let mut sums = [[simd.all(0.0); T]; R];
    if part.start > 0 {
        for (sum, kept) in sums.as_flattened_mut().iter_mut().zip(&*kept) {
            // SAFETY: the array has 8 floats.
            *sum = unsafe { simd.load::<true>(kept.as_ptr(), 8) };
        }
    }
    let mut step = part.start / 8;
    if cfg!(target_arch = "aarch64") && T == 1 {
        // A whole cache line at once: between two branches the compiler does not widen both halves of a register.
        let steps = const { 8 / size_of::<E>() };
        while step + steps <= part.end / 8 {
            for r in 0..R {
                prefetch_near(w[r].cast::<u8>().wrapping_add(step * 8 * size_of::<E>() + NEAR), 64);
            }
            for step in step..step + steps {
                // SAFETY: every row and token has `inputs / 8` steps.
                unsafe { add(simd, &w, x, step, false, &mut sums) };
            }
            step += steps;
        }
    }
    for step in step..part.end / 8 {
        let asks = T == 1 && (step * 8 * size_of::<E>()).is_multiple_of(64);
        // SAFETY: every row and token has `inputs / 8` steps.
        unsafe { add(simd, &w, x, step, asks, &mut sums) };
    }
    if part.end < inputs {
        for (sum, kept) in sums.as_flattened().iter().zip(kept) {
            // SAFETY: the array has room for 8 floats.
            unsafe { simd.store_all(kept.as_mut_ptr(), *sum) };
        }
        return;
    }
    let (steps, rest) = (inputs / 8, inputs % 8);
    if rest > 0 {
        for r in 0..R {
            // SAFETY: `rest` elements of the row are left.
            let w = unsafe { E::load::<_, false>(simd, w[r].add(steps * 8), rest) };
            for t in 0..T {
                // SAFETY: `rest` elements of the row are left.
                let x = unsafe { simd.load::<false>(x[t].as_ptr().add(steps * 8), rest) };
                sums[r][t] = simd.mul_add(w, x, sums[r][t]);
            }
        }
    }
    for t in 0..T {
        for r in 0..R {
            call.part(token + t, rows[r], 1)[0] = simd.sum(sums[r][t]);
        }
    }
}

/// Adds the products of step `step`, and prefetches what comes later if `asks` says so.
///
/// # Safety
/// Every row and token has that step.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // rows and tokens are indices of several arrays
unsafe fn add<S: Simd, const R: usize, const T: usize, E: Element>(
    simd: S,
    w: &[*const E; R],
    x: &[&[f32]; T],
    step: usize,
    asks: bool,
    sums: &mut [[S::Floats; T]; R],
) {
    let mut w_eight = [simd.all(0.0); R];
    // SAFETY: the caller guarantees it.
    unsafe {
        for r in 0..R {
            let at = w[r].add(step * 8);
            if asks {
                prefetch_near(at.cast::<u8>().wrapping_add(NEAR), 64);
            }
            w_eight[r] = E::load::<_, true>(simd, at, 8);
        }
        // Rows are held and tokens are loaded one by one: twelve sums and three rows leave a register for one.
        for t in 0..T {
            let x = simd.load::<true>(x[t].as_ptr().add(step * 8), 8);
            for r in 0..R {
                sums[r][t] = simd.mul_add(w_eight[r], x, sums[r][t]);
            }
        }
    }
}
