//! I8 in vectors of 64 bytes: AVX-512 VNNI.

use super::{load, load_numbers, store_numbers, store_some, sum_ints_of_four, transpose};
use crate::Call;
use crate::arch::generic::prefetch::{prefetch, streams};
use crate::arch::x86_64::prefetch::{AHEAD, AHEAD_OF_SOME};
use crate::dtypes::i8::without_zero;
use crate::input::Int8Row;
use crate::order::GROUP;
use crate::scratch::{room, with_scratch};
use std::arch::x86_64::*;

/// Rows of a panel.
const ROWS: usize = 16;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    let input = call.input;
    match input.tokens() {
        0 => (),
        1 => few_tokens::<4, 1>(call),
        2 => few_tokens::<4, 2>(call),
        3 => few_tokens::<4, 3>(call),
        4 => few_tokens::<4, 4>(call),
        5 => few_tokens::<4, 5>(call),
        6 => few_tokens::<4, 6>(call),
        // With 3 rows by 8 tokens the registers are full.
        7 => few_tokens::<3, 7>(call),
        8 => few_tokens::<3, 8>(call),
        _ => many_tokens(call),
    }
}

/// The bytes from `64 * i` on with an offset of 128, as the unsigned factor of `vpdpbusd`; 0 past the end of the row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn flipped(row: &[u8], i: usize) -> __m512i {
    let flip = _mm512_set1_epi8(-128);
    let rest = &row[64 * i..];
    match rest.first_chunk() {
        Some(bytes) => _mm512_xor_si512(load(bytes), flip),
        None => {
            let mask = (1u64 << rest.len()) - 1;
            // SAFETY: what the mask leaves out is not read.
            let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, rest.as_ptr().cast()) };
            _mm512_maskz_mov_epi8(mask, _mm512_xor_si512(bytes, flip))
        }
    }
}

/// The sum of a row's weights.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn sum_of(row: &[u8]) -> i32 {
    let (ones, mut sums) = (_mm512_set1_epi8(1), _mm512_setzero_si512());
    for i in 0..row.len().div_ceil(64) {
        sums = _mm512_dpbusd_epi32(sums, flipped(row, i), ones);
    }
    _mm512_reduce_add_epi32(sums) - 128 * row.len() as i32
}

/// `R` rows at a time, at most 4, in their stored order, times the `T` tokens of the input.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn few_tokens<const R: usize, const T: usize>(call: &mut Call<'_>) {
    let (weight, input) = (call.weight, call.input);
    const { assert!(R <= 4) };
    let inputs = input.inputs();
    let x: [Int8Row<'_>; T] = std::array::from_fn(|t| input.int8(t));
    let steps = inputs.div_ceil(64);
    assert!(x.iter().all(|x| x.padded.len() == steps));
    let offsets = x.map(|x| 128i32.wrapping_mul(x.sum));
    let asymmetric = x.iter().any(|x| x.zero != 0);
    let ahead = if T == 1 { AHEAD } else { AHEAD_OF_SOME };
    for indices in streams::<R>(call.rows()) {
        let rows = indices.map(|row| &weight[row * inputs..][..inputs]);
        let mut products = [[_mm512_setzero_si512(); R]; T];
        for i in 0..steps {
            let w: [__m512i; R] = std::array::from_fn(|r| {
                prefetch(rows[r].as_ptr().wrapping_add(64 * i + ahead), 64);
                flipped(rows[r], i)
            });
            for t in 0..T {
                // SAFETY: all have `steps` steps, as asserted.
                let x = load_numbers(unsafe { x[t].padded.get_unchecked(i) });
                for r in 0..R {
                    products[t][r] = _mm512_dpbusd_epi32(products[t][r], w[r], x);
                }
            }
        }
        let sums = if asymmetric { rows.map(|row| sum_of(row)) } else { [0; R] };
        for t in 0..T {
            let mut of_rows = [_mm512_setzero_si512(); 4];
            of_rows[..R].copy_from_slice(&products[t]);
            let of_rows = sum_ints_of_four(of_rows);
            for (r, &row) in indices.iter().enumerate() {
                let product = without_zero(of_rows[r].wrapping_sub(offsets[t]), x[t].zero, sums[r]);
                call.part(t, row, 1)[0] = product as f32 * x[t].scale;
            }
        }
    }
}

/// Rows are copied into panels of 16, in which one vector has four consecutive elements of each row; a `vpdpbusd`
/// with four activations of a token, repeated in all lanes, advances 16 outputs. Two panels share the activations.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn many_tokens(call: &mut Call<'_>) {
    let (weight, input) = (call.weight, call.input);
    let inputs = input.inputs();
    let each = inputs.div_ceil(64) * 16;
    let panels = call.rows().div_ceil(ROWS).next_multiple_of(2);
    let done = with_scratch(|scratch| {
        let bytes = room(&mut scratch.bytes, panels * each * 64)?.as_chunks_mut::<64>().0;
        let sums = room(&mut scratch.ints, panels * ROWS)?;
        let rows_of = |i: usize| weight.get(i * ROWS * inputs..).unwrap_or_default();
        for (i, (panel, sums)) in bytes.chunks_exact_mut(each).zip(sums.as_chunks_mut::<ROWS>().0).enumerate() {
            unpack(rows_of(i), inputs, panel, sums);
        }
        for token in (0..input.tokens()).step_by(GROUP) {
            let pairs = bytes.chunks_exact(2 * each).zip(sums.as_chunks::<{ 2 * ROWS }>().0);
            for (i, (pair, sums)) in pairs.enumerate() {
                let pair = Pair { bytes: pair, sums, first_row: i * 2 * ROWS };
                match input.tokens() - token {
                    1 => pair.multiply::<1>(call, token),
                    2 => pair.multiply::<2>(call, token),
                    3 => pair.multiply::<3>(call, token),
                    4 => pair.multiply::<4>(call, token),
                    5 => pair.multiply::<5>(call, token),
                    6 => pair.multiply::<6>(call, token),
                    7 => pair.multiply::<7>(call, token),
                    _ => pair.multiply::<GROUP>(call, token),
                }
            }
        }
        Ok(())
    });
    call.note(done);
}

/// Fills a panel with up to 16 rows, and their sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn unpack(rows: &[u8], inputs: usize, panel: &mut [[u8; 64]], sums: &mut [i32; ROWS]) {
    let ones = _mm512_set1_epi8(1);
    let mut total = _mm512_set1_epi32(-128 * inputs as i32);
    let next = rows.as_ptr().wrapping_add(ROWS * inputs);
    for (i, columns) in panel.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
        prefetch(next.wrapping_add(ROWS * 64 * i), ROWS * 64);
        let mut bytes = [_mm512_setzero_si512(); ROWS];
        for (bytes, row) in bytes.iter_mut().zip(rows.chunks_exact(inputs)) {
            *bytes = flipped(row, i);
        }
        for (column, bytes) in columns.iter_mut().zip(transpose(&bytes)) {
            total = _mm512_dpbusd_epi32(total, bytes, ones);
            store_numbers(column, bytes);
        }
    }
    store_numbers(sums, total);
}

/// Two panels, one after the other.
struct Pair<'a> {
    bytes: &'a [[u8; 64]],
    sums: &'a [i32; 2 * ROWS],
    first_row: usize,
}

impl Pair<'_> {
    /// Both panels times the `T` tokens from `token` on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn multiply<const T: usize>(&self, call: &mut Call<'_>, token: usize) {
        let input = call.input;
        let x: [Int8Row<'_>; T] = std::array::from_fn(|t| input.int8(token + t));
        let columns: [&[[i8; 4]]; T] = std::array::from_fn(|t| x[t].padded.as_flattened().as_chunks().0);
        let (first, second) = self.bytes.split_at(self.bytes.len() / 2);
        assert!(columns.iter().all(|columns| columns.len() == first.len()) && second.len() == first.len());
        let start = |t: usize| _mm512_set1_epi32((-128i32).wrapping_mul(x[t].sum));
        let mut low: [__m512i; T] = std::array::from_fn(start);
        let mut high = low;
        for (i, (first, second)) in first.iter().zip(second).enumerate() {
            let (first, second) = (load(first), load(second));
            for t in 0..T {
                // SAFETY: all have one length, as asserted.
                let four = unsafe { columns[t].get_unchecked(i) };
                let four = _mm512_set1_epi32(i32::from_le_bytes(four.map(|x| x as u8)));
                low[t] = _mm512_dpbusd_epi32(low[t], first, four);
                high[t] = _mm512_dpbusd_epi32(high[t], second, four);
            }
        }
        for t in 0..T {
            for (half, products) in [low[t], high[t]].into_iter().enumerate() {
                let row = self.first_row + half * ROWS;
                let rows = ROWS.min(call.rows().saturating_sub(row));
                if rows == 0 {
                    continue;
                }
                let sums = load_numbers(&self.sums.as_chunks::<ROWS>().0[half]);
                let zero = _mm512_mullo_epi32(sums, _mm512_set1_epi32(x[t].zero));
                let products = _mm512_cvtepi32_ps(_mm512_sub_epi32(products, zero));
                let products = _mm512_mul_ps(products, _mm512_set1_ps(x[t].scale));
                store_some(call.part(token + t, row, rows), products);
            }
        }
    }
}
