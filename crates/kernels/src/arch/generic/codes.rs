//! Products of [`Codes`] by vectors of floats: with few tokens weights are widened for each of them, with more once into memory that
//! stays in the cache, where the product of F32 reads them.

use super::prefetch::{NEAR, prefetch, prefetch_near, streams};
use super::simd::Simd;
use crate::dtypes::codes::Codes;
use crate::dtypes::scaled::{CallScales, Parts};
use crate::input::Lines;
use crate::memory;
use crate::scratch::{room, with_scratch};
use crate::{Call, LANES};
use std::ops::Range;

/// Widened weights of a panel and their products, for each lane of a vector: they stay in the second-level cache, which is larger
/// where vectors are. A panel has a few rows at least.
const PANEL: usize = 8 << 10;

/// Weights of a step: a cache line has one or two.
const STEP: usize = 64;

/// Rows of a tile with few tokens, and of the smallest panel.
const ROWS: usize = 4;

/// The matrix product; `of_floats` is that of F32 by the same instruction set.
#[inline(always)]
pub(crate) fn multiply<S: Simd, C: Codes>(simd: S, call: &mut Call<'_>, of_floats: impl Fn(&mut Call<'_>)) {
    // Taken from the thread and put back, as the product of F32 has scratch memory too, and a closure would not be inlined.
    let taken = with_scratch(|scratch| Ok(std::mem::take(&mut scratch.more_floats)));
    let mut lines = match taken {
        Ok(lines) => lines,
        Err(error) => return call.note(Err(error)),
    };
    let part = C::scales(call.scales).part();
    // A vector of a row is of one part: where one begins within, rows are widened for one token too.
    let whole = part.is_multiple_of(LANES) || part >= call.input.inputs();
    let done = match call.input.tokens() {
        1 if whole => few::<S, C, 1>(simd, call, &mut lines),
        2 if whole => few::<S, C, 2>(simd, call, &mut lines),
        _ => panels::<S, C>(simd, call, &mut lines, of_floats),
    };
    call.note(done);
    call.note(with_scratch(|scratch| {
        scratch.more_floats = lines;
        Ok(())
    }));
}

/// All rows times `T` tokens.
#[inline(always)]
fn few<S: Simd, C: Codes, const T: usize>(simd: S, call: &mut Call<'_>, lines: &mut Lines<f32>) -> memory::Result<()> {
    let (weight, input, scales) = (call.weight, call.input, C::scales(call.scales));
    let (inputs, across) = (input.inputs(), scales.across());
    let row_bytes = inputs / C::EACH;
    let mut x: [&[f32]; T] = [&[]; T];
    for (t, x) in x.iter_mut().enumerate() {
        *x = input.floats(t);
    }
    // The scales of each stream's row, which are the same for all rows of a rectangle.
    let of_rows = room(lines, ROWS * across)?;
    let mut filled = [usize::MAX; ROWS];
    // Steps are looked through while they are in the first-level cache, rows of others afterwards.
    let in_steps = C::NAN && inputs.is_multiple_of(STEP) && scales.part().min(inputs).is_multiple_of(STEP);
    for rows in streams::<ROWS>(call.rows()) {
        let mut w: [&[u8]; ROWS] = [&[]; ROWS];
        for (r, row) in rows.into_iter().enumerate() {
            w[r] = &weight[row * row_bytes..][..row_bytes];
            let below = scales.below(row);
            if filled[r] != below {
                filled[r] = below;
                scales.of_row(row, &mut of_rows[r * across..][..across]);
            }
        }
        let (sums, greatest) = tile::<S, C, T>(simd, w, x, of_rows, scales.part());
        for (r, sums) in sums.iter().enumerate() {
            for (t, sum) in sums.iter().enumerate() {
                call.part(t, rows[r], 1)[0] = *sum;
            }
        }
        let has_nan = if in_steps { greatest.contains(&0xff) } else { C::has_nan(w) };
        if has_nan {
            rows.into_iter().for_each(|row| mark::<C>(call, row..row + 1));
        }
    }
    Ok(())
}

/// For each row and token the sum of products, and the greatest bytes of whole steps with their first bits set, where these tell codes
/// that are no numbers. Each row has a scale for each `part` of its inputs.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // rows and tokens are indices of several arrays
fn tile<S: Simd, C: Codes, const T: usize>(
    simd: S,
    w: [&[u8]; ROWS],
    x: [&[f32]; T],
    of_rows: &[f32],
    part: usize,
) -> ([[f32; T]; ROWS], [u8; STEP]) {
    let mut greatest = [0; STEP];
    let (inputs, across) = (x[0].len(), of_rows.len() / ROWS);
    assert!(w.iter().all(|w| w.len() * C::EACH == inputs) && x.iter().all(|x| x.len() == inputs));
    let mut sums = [[simd.all(0.0); T]; ROWS];
    let one = C::one(simd);
    let mut factors = [one; ROWS];
    for (index, start) in (0..inputs).step_by(part).enumerate() {
        for r in 0..ROWS {
            factors[r] = C::scaled(simd, one, of_rows[r * across + index]);
        }
        let end = inputs.min(start + part);
        // Whole steps first: one that asks whether it begins a cache line takes longer.
        let steps = start + (end - start) / STEP * STEP;
        for step in (start..steps).step_by(STEP) {
            for w in w {
                let at = w.as_ptr().wrapping_add(step / C::EACH);
                if S::LANES == LANES {
                    prefetch(at.wrapping_add(4 * NEAR), STEP / C::EACH);
                } else {
                    prefetch_near(at.wrapping_add(NEAR), STEP / C::EACH);
                }
            }
            if C::NAN {
                for w in w {
                    let Some(bytes) = w[step..].first_chunk::<STEP>() else { unreachable!("a step is there") };
                    for i in 0..STEP {
                        greatest[i] = greatest[i].max(bytes[i] | 0x80);
                    }
                }
            }
            for vector in 0..STEP / S::LANES {
                // SAFETY: a step is there, of each row and token.
                unsafe { add::<S, C, T, true>(simd, &w, &x, &factors, step + vector * S::LANES, S::LANES, &mut sums) };
            }
        }
        for vector in 0..(end - steps) / S::LANES {
            // SAFETY: a vector is there, of each row and token.
            unsafe { add::<S, C, T, true>(simd, &w, &x, &factors, steps + vector * S::LANES, S::LANES, &mut sums) };
        }
    }
    let (at, rest) = (inputs / S::LANES * S::LANES, inputs % S::LANES);
    if rest > 0 {
        // SAFETY: the rest is there, of each row and token.
        unsafe { add::<S, C, T, false>(simd, &w, &x, &factors, at, rest, &mut sums) };
    }
    let mut totals = [[0.0; T]; ROWS];
    for (totals, sums) in totals.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
        *totals = simd.sum(C::in_order(simd, *sums));
    }
    (totals, greatest)
}

/// Adds the products of the vector at `at` of each row and token, or of `left` elements before the end.
///
/// # Safety
/// A vector is there if `WHOLE`, else `left` elements, but no more than a vector has.
#[inline(always)]
#[allow(clippy::needless_range_loop, clippy::too_many_arguments)] // rows and tokens are indices of several arrays
unsafe fn add<S: Simd, C: Codes, const T: usize, const WHOLE: bool>(
    simd: S,
    w: &[&[u8]; ROWS],
    x: &[&[f32]; T],
    factors: &[C::Factor<S>; ROWS],
    at: usize,
    left: usize,
    sums: &mut [[S::Floats; T]; ROWS],
) {
    let mut loaded = [simd.all(0.0); T];
    for t in 0..T {
        // SAFETY: the caller guarantees it.
        loaded[t] = C::as_loaded(simd, unsafe { simd.load::<WHOLE>(x[t].as_ptr().add(at), left) });
    }
    for r in 0..ROWS {
        // SAFETY: the caller guarantees it; the array has a vector.
        unsafe {
            let mut w = C::load::<S, WHOLE>(simd, w[r].as_ptr().add(at / C::EACH), left, factors[r]);
            if !WHOLE {
                // Zeros after the end, whatever the factor is.
                let mut wide = [0.0; LANES];
                simd.store(wide.as_mut_ptr(), left, C::in_order(simd, w));
                w = C::as_loaded(simd, simd.load::<false>(wide.as_ptr(), left));
            }
            for t in 0..T {
                sums[r][t] = simd.mul_add(w, loaded[t], sums[r][t]);
            }
        }
    }
}

/// Rows times all tokens, a panel of widened rows after the other.
#[inline(always)]
fn panels<S: Simd, C: Codes>(
    simd: S,
    call: &mut Call<'_>,
    lines: &mut Lines<f32>,
    of_floats: impl Fn(&mut Call<'_>),
) -> memory::Result<()> {
    let (weight, scales) = (call.weight, C::scales(call.scales));
    let (rows, inputs, tokens) = (call.rows(), call.input.inputs(), call.input.tokens());
    let row_bytes = inputs / C::EACH;
    let height = (PANEL * S::LANES / (inputs + tokens) / ROWS * ROWS).max(ROWS).min(rows);
    let (panel, y) = room(lines, height * (inputs + tokens))?.split_at_mut(height * inputs);
    for from in (0..rows).step_by(height) {
        let of_panel = from..rows.min(from + height);
        let panel = &mut panel[..of_panel.len() * inputs];
        let y = &mut y[..of_panel.len() * tokens];
        for (row, out) in of_panel.clone().zip(panel.chunks_exact_mut(inputs)) {
            widen::<S, C>(simd, &weight[row * row_bytes..][..row_bytes], &scales, row, out);
        }
        let mut product = Call::new(bytemuck::cast_slice(panel), CallScales::InBlocks, call.input, of_panel.len(), y);
        of_floats(&mut product);
        product.into_result()?;
        for (token, y) in y.chunks_exact(of_panel.len()).enumerate() {
            call.part(token, from, y.len()).copy_from_slice(y);
        }
        mark::<C>(call, of_panel);
    }
    Ok(())
}

/// The weights of `row`, number `index` of a call.
#[inline(always)]
fn widen<S: Simd, C: Codes>(simd: S, row: &[u8], scales: &C::Scales<'_>, index: usize, out: &mut [f32]) {
    let parts = row.chunks(scales.part().div_ceil(C::EACH)).zip(out.chunks_mut(scales.part()));
    let one = C::one(simd);
    for (part, (bytes, out)) in parts.enumerate() {
        let factor = C::scaled(simd, one, scales.at(index, part));
        for (bytes, out) in bytes.chunks(S::LANES / C::EACH).zip(out.chunks_mut(S::LANES)) {
            // SAFETY: so many codes and floats are there.
            unsafe {
                if out.len() == S::LANES {
                    let loaded = C::load::<S, true>(simd, bytes.as_ptr(), S::LANES, factor);
                    simd.store_all(out.as_mut_ptr(), C::in_order(simd, loaded));
                } else {
                    let loaded = C::load::<S, false>(simd, bytes.as_ptr(), out.len(), factor);
                    simd.store(out.as_mut_ptr(), out.len(), C::in_order(simd, loaded));
                }
            }
        }
    }
}

/// Makes the outputs of those of `rows` that have a code which is no number none either.
#[inline(always)]
fn mark<C: Codes>(call: &mut Call<'_>, rows: Range<usize>) {
    let (weight, tokens) = (call.weight, call.input.tokens());
    let row_bytes = call.input.inputs() / C::EACH;
    for row in rows.filter(|row| C::has_nan([&weight[row * row_bytes..][..row_bytes]])) {
        for token in 0..tokens {
            call.part(token, row, 1)[0] = f32::NAN;
        }
    }
}
