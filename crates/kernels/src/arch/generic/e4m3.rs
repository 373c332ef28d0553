//! Products of F8_E4M3 by vectors of floats: with few tokens weights are widened for each of them, with more once into memory that
//! stays in the cache, where the product of F32 reads them.

use super::prefetch::{NEAR, prefetch, prefetch_near, streams};
use super::simd::Simd;
use crate::dtypes::e4m3::has_nan;
use crate::dtypes::scaled::{CallScales, Rectangles};
use crate::input::Lines;
use crate::memory;
use crate::scratch::{room, with_scratch};
use crate::{Call, LANES};
use std::ops::Range;

/// What loaded weights are to be multiplied by.
const FACTOR: f32 = 256.0;

/// Widened weights of a panel and their products, for each lane of a vector: they stay in the second-level cache, which is larger
/// where vectors are. A panel has a few rows at least.
const PANEL: usize = 8 << 10;

/// Weights of a cache line.
const LINE: usize = 64;

/// Rows of a tile with few tokens, and of the smallest panel.
const ROWS: usize = 4;

/// The matrix product; `of_floats` is that of F32 by the same instruction set.
#[inline(always)]
pub(crate) fn multiply<S: Simd>(simd: S, call: &mut Call<'_>, of_floats: impl Fn(&mut Call<'_>)) {
    // Taken from the thread and put back, as the product of F32 has scratch memory too, and a closure would not be inlined.
    let taken = with_scratch(|scratch| Ok(std::mem::take(&mut scratch.more_floats)));
    let mut lines = match taken {
        Ok(lines) => lines,
        Err(error) => return call.note(Err(error)),
    };
    let done = match call.input.tokens() {
        1 => few::<S, 1>(simd, call, &mut lines),
        2 => few::<S, 2>(simd, call, &mut lines),
        _ => panels(simd, call, &mut lines, of_floats),
    };
    call.note(done);
    call.note(with_scratch(|scratch| {
        scratch.more_floats = lines;
        Ok(())
    }));
}

/// All rows times `T` tokens.
#[inline(always)]
fn few<S: Simd, const T: usize>(simd: S, call: &mut Call<'_>, lines: &mut Lines<f32>) -> memory::Result<()> {
    let (weight, input, scales) = (call.weight, call.input, call.scales.rectangles());
    let (inputs, across) = (input.inputs(), scales.across());
    let mut x: [&[f32]; T] = [&[]; T];
    for (t, x) in x.iter_mut().enumerate() {
        *x = input.floats(t);
    }
    // The factors of each stream's row, which are the same for all rows of a rectangle.
    let factors = room(lines, ROWS * across)?;
    let mut filled = [usize::MAX; ROWS];
    for rows in streams::<ROWS>(call.rows()) {
        let mut w: [&[u8]; ROWS] = [&[]; ROWS];
        for (r, row) in rows.into_iter().enumerate() {
            w[r] = &weight[row * inputs..][..inputs];
            let below = scales.below(row);
            if filled[r] != below {
                filled[r] = below;
                for (part, factor) in factors[r * across..][..across].iter_mut().enumerate() {
                    *factor = scales.at(row, part) * FACTOR;
                }
            }
        }
        let sums = tile::<S, T>(simd, w, x, factors, scales.inputs());
        for (r, sums) in sums.iter().enumerate() {
            for (t, sum) in sums.iter().enumerate() {
                call.part(t, rows[r], 1)[0] = *sum;
            }
        }
        if has_nan(w) {
            rows.into_iter().for_each(|row| mark(call, row..row + 1));
        }
    }
    Ok(())
}

/// For each row and token the sum of products. Each row has a factor for each `part` of its inputs.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // rows and tokens are indices of several arrays
fn tile<S: Simd, const T: usize>(
    simd: S,
    w: [&[u8]; ROWS],
    x: [&[f32]; T],
    of_rows: &[f32],
    part: usize,
) -> [[f32; T]; ROWS] {
    let (inputs, across) = (x[0].len(), of_rows.len() / ROWS);
    assert!(w.iter().all(|w| w.len() == inputs) && x.iter().all(|x| x.len() == inputs));
    let mut sums = [[simd.all(0.0); T]; ROWS];
    let mut factors = [simd.all(0.0); ROWS];
    for (index, start) in (0..inputs).step_by(part).enumerate() {
        for r in 0..ROWS {
            factors[r] = simd.all(of_rows[r * across + index]);
        }
        let end = inputs.min(start + part);
        // Whole cache lines first: a step that asks whether it begins one takes longer.
        let lines = start + (end - start) / LINE * LINE;
        for line in (start..lines).step_by(LINE) {
            for w in w {
                let at = w.as_ptr().wrapping_add(line);
                if S::LANES == LANES {
                    prefetch(at.wrapping_add(4 * NEAR), LINE);
                } else {
                    prefetch_near(at.wrapping_add(NEAR), LINE);
                }
            }
            for step in 0..LINE / S::LANES {
                // SAFETY: a line is there, of each row and token.
                unsafe { add::<S, T, true>(simd, &w, &x, &factors, line + step * S::LANES, S::LANES, &mut sums) };
            }
        }
        for step in 0..(end - lines) / S::LANES {
            // SAFETY: a vector is there, of each row and token.
            unsafe { add::<S, T, true>(simd, &w, &x, &factors, lines + step * S::LANES, S::LANES, &mut sums) };
        }
    }
    let (at, rest) = (inputs / S::LANES * S::LANES, inputs % S::LANES);
    if rest > 0 {
        // SAFETY: the rest is there, of each row and token.
        unsafe { add::<S, T, false>(simd, &w, &x, &factors, at, rest, &mut sums) };
    }
    let mut totals = [[0.0; T]; ROWS];
    for (totals, sums) in totals.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
        *totals = simd.sum(*sums);
    }
    totals
}

/// Adds the products of the vector at `at` of each row and token, or of `left` elements before the end.
///
/// # Safety
/// A vector is there if `WHOLE`, else `left` elements, but no more than a vector has.
#[inline(always)]
#[allow(clippy::needless_range_loop, clippy::too_many_arguments)] // rows and tokens are indices of several arrays
unsafe fn add<S: Simd, const T: usize, const WHOLE: bool>(
    simd: S,
    w: &[&[u8]; ROWS],
    x: &[&[f32]; T],
    factors: &[S::Floats; ROWS],
    at: usize,
    left: usize,
    sums: &mut [[S::Floats; T]; ROWS],
) {
    for r in 0..ROWS {
        // SAFETY: the caller guarantees it; the array has a vector.
        unsafe {
            let mut w = simd.mul(simd.load_e4m3::<WHOLE>(w[r].as_ptr().add(at), left), factors[r]);
            if !WHOLE {
                // Zeros after the end, whatever the factor is.
                let mut wide = [0.0; LANES];
                simd.store(wide.as_mut_ptr(), left, w);
                w = simd.load::<false>(wide.as_ptr(), left);
            }
            for t in 0..T {
                let x = simd.load::<WHOLE>(x[t].as_ptr().add(at), left);
                sums[r][t] = simd.mul_add(w, x, sums[r][t]);
            }
        }
    }
}

/// Rows times all tokens, a panel of widened rows after the other.
#[inline(always)]
fn panels<S: Simd>(
    simd: S,
    call: &mut Call<'_>,
    lines: &mut Lines<f32>,
    of_floats: impl Fn(&mut Call<'_>),
) -> memory::Result<()> {
    let (weight, scales) = (call.weight, call.scales.rectangles());
    let (rows, inputs, tokens) = (call.rows(), call.input.inputs(), call.input.tokens());
    let height = (PANEL * S::LANES / (inputs + tokens) / ROWS * ROWS).max(ROWS).min(rows);
    let (panel, y) = room(lines, height * (inputs + tokens))?.split_at_mut(height * inputs);
    for from in (0..rows).step_by(height) {
        let of_panel = from..rows.min(from + height);
        let panel = &mut panel[..of_panel.len() * inputs];
        let y = &mut y[..of_panel.len() * tokens];
        for (row, out) in of_panel.clone().zip(panel.chunks_exact_mut(inputs)) {
            widen(simd, &weight[row * inputs..][..inputs], &scales, row, out);
        }
        let mut product = Call::new(bytemuck::cast_slice(panel), CallScales::InBlocks, call.input, of_panel.len(), y);
        of_floats(&mut product);
        product.into_result()?;
        for (token, y) in y.chunks_exact(of_panel.len()).enumerate() {
            call.part(token, from, y.len()).copy_from_slice(y);
        }
        mark(call, of_panel);
    }
    Ok(())
}

/// The weights of `row`, number `index` of a call.
#[inline(always)]
fn widen<S: Simd>(simd: S, row: &[u8], scales: &Rectangles<'_>, index: usize, out: &mut [f32]) {
    let parts = row.chunks(scales.inputs()).zip(out.chunks_mut(scales.inputs()));
    for (part, (bytes, out)) in parts.enumerate() {
        let factor = simd.all(scales.at(index, part) * FACTOR);
        for (bytes, out) in bytes.chunks(S::LANES).zip(out.chunks_mut(S::LANES)) {
            // SAFETY: so many bytes and floats are there.
            unsafe {
                if bytes.len() == S::LANES {
                    let loaded = simd.load_e4m3::<true>(bytes.as_ptr(), S::LANES);
                    simd.store_all(out.as_mut_ptr(), simd.mul(loaded, factor));
                } else {
                    let loaded = simd.load_e4m3::<false>(bytes.as_ptr(), bytes.len());
                    simd.store(out.as_mut_ptr(), bytes.len(), simd.mul(loaded, factor));
                }
            }
        }
    }
}

/// Makes the outputs of those of `rows` that have a byte which is no number none either.
#[inline(always)]
fn mark(call: &mut Call<'_>, rows: Range<usize>) {
    let (weight, inputs, tokens) = (call.weight, call.input.inputs(), call.input.tokens());
    for row in rows.filter(|row| has_nan([&weight[row * inputs..][..inputs]])) {
        for token in 0..tokens {
            call.part(token, row, 1)[0] = f32::NAN;
        }
    }
}
