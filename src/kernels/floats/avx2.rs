//! Products of float dtypes by AVX2: for each output one vector of sums along the row, several rows and tokens at once.

#![allow(unsafe_code)]

use crate::kernels::avx2::{load_floats, store_floats, sum_eight_lanes};
use crate::kernels::element::Element;
use crate::kernels::scratch::{room, with_scratch};
use crate::kernels::simd::{Avx2, Simd};
use crate::kernels::x86::{NEAR, prefetch_near, streams};
use crate::kernels::{Input, Output};
use std::arch::x86_64::*;
use std::ops::Range;

/// Elements of rows that are multiplied in all rows before the next are, so that a tile's activations stay in the
/// first-level cache; a multiple of 8.
const CHUNK: usize = 1024;

/// Up to so many tokens rows are multiplied whole: most of the time is that of the memory, which serves them faster so.
const WHOLE: usize = 16;

/// The product of weights that are widened in a register.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernels) fn widened<E: Element>(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    let tokens = input.tokens();
    let mut token = 0;
    while token < tokens {
        token += match tokens - token {
            1 => rows::<4, 1, E>(weight, input, token, output),
            2 => rows::<4, 2, E>(weight, input, token, output),
            3 | 6 => rows::<3, 3, E>(weight, input, token, output),
            _ => rows::<3, 4, E>(weight, input, token, output),
        };
    }
}

/// All rows times `T` tokens from `token` on; gives `T` back.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn rows<const R: usize, const T: usize, E: Element>(
    weight: &[u8],
    input: &Input,
    token: usize,
    output: &mut Output<'_>,
) -> usize {
    let (rows, inputs) = (output.rows(), input.inputs());
    let row_bytes = weight.len() / rows;
    assert_eq!(row_bytes, inputs * size_of::<E>());
    let chunk = if input.tokens() > WHOLE { CHUNK } else { inputs };
    let mut x: [&[f32]; T] = [&[]; T];
    for (t, x) in x.iter_mut().enumerate() {
        *x = input.floats(token + t);
    }
    let done = with_scratch(|scratch| {
        let kept = if chunk < inputs { rows.div_ceil(R) * R * T * 8 } else { R * T * 8 };
        let kept = room(&mut scratch.floats, kept)?.as_chunks_mut::<8>().0;
        for from in (0..inputs).step_by(chunk) {
            let part = from..inputs.min(from + chunk);
            for (i, rows) in streams::<R>(rows).enumerate() {
                let at = if chunk < inputs { i * R * T } else { 0 };
                let kept = &mut kept[at..][..R * T];
                tile::<R, T, E>(weight, row_bytes, &x, rows, token, part.clone(), kept, output);
            }
        }
        Ok(())
    });
    output.note(done);
    T
}

/// Elements `part` of `R` rows times `T` tokens from `token` on; between the parts of rows `kept` has the sums.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
#[allow(clippy::needless_range_loop)] // rows and tokens are indices of several arrays
#[allow(clippy::too_many_arguments)] // what varies in the two loops around it
fn tile<const R: usize, const T: usize, E: Element>(
    weight: &[u8],
    row_bytes: usize,
    x: &[&[f32]; T],
    rows: [usize; R],
    token: usize,
    part: Range<usize>,
    kept: &mut [[f32; 8]],
    output: &mut Output<'_>,
) {
    let inputs = x[0].len();
    assert!(part.end <= inputs && x.iter().all(|x| x.len() == inputs) && row_bytes == inputs * size_of::<E>());
    // SAFETY: the function is compiled for the instruction sets.
    let simd = unsafe { Avx2::new() };
    // Written out, for a call of `map` is not put here.
    let mut w: [*const E; R] = [std::ptr::null(); R];
    for r in 0..R {
        w[r] = weight[rows[r] * row_bytes..][..row_bytes].as_ptr().cast();
    }
    let mut sums = [[_mm256_setzero_ps(); T]; R];
    if part.start > 0 {
        sums.as_flattened_mut().iter_mut().zip(&*kept).for_each(|(sum, kept)| *sum = load_floats(kept));
    }
    for step in part.start / 8..part.end / 8 {
        let mut w_eight = [_mm256_setzero_ps(); R];
        for r in 0..R {
            // SAFETY: every row has `inputs / 8` steps of weight.
            let at = unsafe { w[r].add(step * 8) };
            if T == 1 && (step * 8 * size_of::<E>()).is_multiple_of(64) {
                prefetch_near(at.cast::<u8>().wrapping_add(NEAR), 64);
            }
            // SAFETY: as above.
            w_eight[r] = unsafe { E::load::<_, true>(simd, at, 8) };
        }
        // Rows are held and tokens come one by one: twelve sums and three rows leave a register for one.
        for t in 0..T {
            // SAFETY: every row has `inputs / 8` steps of activations.
            let x = unsafe { _mm256_loadu_ps(x[t].as_ptr().add(step * 8)) };
            for r in 0..R {
                sums[r][t] = _mm256_fmadd_ps(w_eight[r], x, sums[r][t]);
            }
        }
    }
    if part.end < inputs {
        sums.as_flattened().iter().zip(kept).for_each(|(sum, kept)| store_floats(kept, *sum));
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
                sums[r][t] = _mm256_fmadd_ps(w, x, sums[r][t]);
            }
        }
    }
    for t in 0..T {
        for r in 0..R {
            output.part(token + t, rows[r], 1)[0] = sum_eight_lanes(sums[r][t]);
        }
    }
}
