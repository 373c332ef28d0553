//! Products with many tokens for block dtypes from vectors of 32 bytes: panels of 8 rows, by AVX2 and by NEON.

#![allow(clippy::needless_range_loop)] // rows and tokens are indices of several arrays

use super::panel::{self, Multiply, Panel};
use super::wide::{
    Bytes, EightBlocks, Factors, Floats, PANEL, all, as_bytes, as_floats, floats_of_bytes, scales_and_mins_of_halves,
    scales_of_halves, transpose,
};
use crate::Call;
use crate::dtypes::blocks::Format;
use crate::memory;
use crate::scratch::Scratch;
use std::mem::MaybeUninit;

/// Rows in a panel.
pub(crate) const ROWS: usize = 8;

type Rows<'a> = panel::Rows<'a, ROWS>;

/// The parts that differ between processors.
pub(crate) trait Columns: Multiply<Bits = Bytes, Floats = Floats> {
    /// The elements of a block of 8 rows in the order in which they are multiplied, without their offset unless
    /// [`products`](Multiply::products) subtract it.
    fn columns<F: Format>(self, rows: [Bytes; ROWS]) -> [Bytes; 8];
}

/// The matrix product.
///
/// # Safety
/// The processor has what the products of `S` and `wide` are compiled for.
#[inline(always)]
pub(crate) unsafe fn matmul_by<S: Columns, F: EightBlocks<EIGHT>, const EIGHT: usize>(
    simd: S,
    scratch: &mut Scratch,
    call: &mut Call<'_>,
    eights: &F,
) -> memory::Result<()> {
    let unpack = |rows: &Rows<'_>, panel: &mut Panel<'_, S>| {
        // SAFETY: the caller guarantees it.
        unsafe { unpack(simd, rows, panel, eights) };
    };
    // SAFETY: the caller guarantees it.
    unsafe { panel::matmul::<S, F, ROWS>(simd, scratch, call, unpack) }
}

/// Fills a panel with 8 rows.
///
/// # Safety
/// The conditions of [`matmul_by`].
#[inline(always)]
unsafe fn unpack<S: Columns, F: EightBlocks<EIGHT>, const EIGHT: usize>(
    simd: S,
    rows: &Rows<'_>,
    panel: &mut Panel<'_, S>,
    eights: &F,
) {
    // SAFETY: the caller guarantees it.
    unsafe {
        let zero = all(0);
        for i in panel.steps(8) {
            let mut unpacked = [const { MaybeUninit::<([Bytes; 8], Factors)>::uninit() }; ROWS];
            let mut padding = None;
            let step = rows.step(i, &mut padding);
            for r in 0..ROWS {
                let eight = step.row(r);
                let place = [rows.first() + r, i];
                unpacked[r].write((eights.elements::<PANEL>(eight), eights.factors::<PANEL>(eight, place)));
            }
            // All rows are initialized.
            let unpacked = &*unpacked.as_ptr().cast::<[([Bytes; 8], Factors); ROWS]>();
            let (mut scales, mut mins) = ([zero; ROWS], [zero; ROWS]);
            let (mut halves, mut half_mins) = ([[zero; ROWS]; 2], [[zero; ROWS]; 2]);
            for r in 0..ROWS {
                let factors = &unpacked[r].1;
                (scales[r], mins[r]) = (as_bytes(factors.scales), as_bytes(factors.mins));
                if F::FLOATS {
                    let of_halves = scales_of_halves(factors.halves);
                    (halves[0][r], halves[1][r]) = (as_bytes(of_halves[0]), as_bytes(of_halves[1]));
                } else if F::HALVES {
                    let [scales, mins] = scales_and_mins_of_halves(F::MINS, factors.halves);
                    for (to, bytes) in [(&mut halves, scales), (&mut half_mins, mins)] {
                        let [first, second] = floats_of_bytes(bytes);
                        (to[0][r], to[1][r]) = (as_bytes(first), as_bytes(second));
                    }
                }
            }
            (scales, mins) = (transpose(scales), transpose(mins));
            if F::HALVES {
                for h in 0..2 {
                    (halves[h], half_mins[h]) = (transpose(halves[h]), transpose(half_mins[h]));
                }
            }
            for b in 0..8 {
                let mut quants = [zero; ROWS];
                for r in 0..ROWS {
                    quants[r] = unpacked[r].0[b];
                }
                panel.put_columns(8 * i + b, &simd.columns::<F>(quants));
                let mut of_halves = [[simd.all(0.0); 2]; 2];
                for h in 0..2 {
                    let (vector, number) = if F::FLOATS { (h, b) } else { (b / 4, b % 4 * 2 + h) };
                    of_halves[0][h] = as_floats(halves[vector][number]);
                    of_halves[1][h] = as_floats(half_mins[b / 4][b % 4 * 2 + h]);
                }
                let factors = [as_floats(scales[b]), as_floats(mins[b])];
                panel.put_factors::<F>(8 * i + b, factors, of_halves[0], of_halves[1]);
            }
        }
    }
}
