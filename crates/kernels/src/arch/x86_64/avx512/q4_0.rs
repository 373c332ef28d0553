//! Q4_0 by AVX-512 VNNI, and what Q4_0 and Q5_0 share: blocks of a scale, bits that differ, and 16 bytes of nibbles.

use super::blocks::{Panel, ROWS, Step, many_tokens_of_blocks};
use super::{load, load_apart, load_floats, load_less, load_numbers, rows_times_token, transpose};
use crate::Call;
use crate::dtypes::blocks::Format;
use crate::dtypes::q4_0::{BYTES, Q40};
use crate::scratch::{Scratch, arranged, arranged_bytes, room};
use std::arch::x86_64::*;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    let elements = |first, second| nibbles::<BYTES>(first, second);
    let scales = |_| |stored: &_| [scales::<BYTES>(stored)];
    if !one_token::<Q40, { 16 * BYTES }, 1, 1, _>(call, elements, scales) {
        many_tokens_of_blocks::<Q40, BYTES, { 4 * BYTES }>(call, |fours, i, panel| put(fours, i, panel));
    }
}

/// Puts the elements of four blocks of 16 rows into a panel, transposed as nibbles.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn put(fours: Step<'_, { 4 * BYTES }>, i: usize, panel: &mut Panel<'_>) {
    let zero = _mm512_setzero_si512();
    let places = load_numbers(&const { places(BYTES, 4 * BYTES, 2, 2) });
    let mut rows = [zero; ROWS];
    for (r, row) in rows.iter_mut().enumerate() {
        let (first, last) = (load(fours.part(r, 0)), load(fours.part(r, 4 * BYTES - 64)));
        *row = _mm512_permutex2var_epi16(first, places, last);
    }
    let columns = transpose(&rows);
    let low = _mm512_set1_epi8(15);
    // An offset of 8 becomes one of 128.
    let raised = |nibbles: __m512i| _mm512_add_epi8(_mm512_and_si512(nibbles, low), _mm512_set1_epi8(120));
    for (j, bytes) in columns.as_chunks::<4>().0.iter().enumerate() {
        let mut block = [zero; 8];
        for (c, &bytes) in bytes.iter().enumerate() {
            block[c] = raised(bytes);
            block[4 + c] = raised(_mm512_srli_epi16::<4>(bytes));
        }
        panel.put_columns(4 * i + j, &block);
    }
}

/// The places of words in two vectors with the first and the last 64 bytes of `four`: words at these bytes of block `i / 8`,
/// `at`, and `step` more for each of 8.
pub(crate) const fn places(block: usize, four: usize, at: usize, step: usize) -> [i16; 32] {
    let (mut places, mut i) = ([0; 32], 0);
    while i < 32 {
        let byte = i / 8 * block + at + i % 8 * step;
        places[i] = if byte < 64 { byte as i16 / 2 } else { 32 + (byte + 64 - four) as i16 / 2 };
        i += 1;
    }
    places
}

/// The nibbles of four blocks, of which `first` and `second` are the first and the last 64 bytes: elements 0 to 15
/// of each, and elements 16 to 31.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn nibbles<const BYTES: usize>(first: __m512i, second: __m512i) -> (__m512i, __m512i) {
    let places = const { places(BYTES, 4 * BYTES, BYTES - 16, 2) };
    let bytes = _mm512_permutex2var_epi16(first, load_numbers(&places), second);
    let low = _mm512_set1_epi8(15);
    (_mm512_and_si512(bytes, low), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), low))
}

/// The product with one token, like [`Call::few_tokens`]. `elements` has elements of four blocks like [`nibbles`], with their offset,
/// and `factors` the scales of sixteen, by their place and the same vectors, and if `N` is 2 what is added to their elements.
/// `STEP` are the bytes of 16 blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn one_token<F: Format, const STEP: usize, const P: usize, const N: usize, S>(
    call: &mut Call<'_>,
    elements: impl Fn(__m512i, __m512i) -> (__m512i, __m512i),
    factors: impl Fn([usize; 2]) -> S,
) -> bool
where
    S: Fn(&[(__m512i, __m512i); 4]) -> [__m512; N],
{
    const { assert!(F::OFFSET <= 16) };
    call.few_tokens::<P>(|Scratch { bytes, floats, more_floats, ints, .. }, weight, x, y| {
        let blocks = x[0].scales.len().next_multiple_of(16);
        // The activations, padded to a whole number of steps, in the order of elements and scales; and what the
        // weights' offset adds too much in each eight products.
        let order = |i: usize| i / 8 * 8 + i % 4 * 2 + i / 4 % 2;
        let x_bytes = arranged_bytes::<64, P>(bytes, &x, F::ELEMENTS.evens_first, blocks, order)?;
        let order = |i: usize| i / 16 * 16 + i % 4 * 4 + i / 4 % 4;
        let x_scales = arranged(floats, x.map(|x| x.scales), blocks, order)?.as_chunks::<P>().0;
        let x_sums = if N == 2 { x.map(|x| x.sums) } else { [&[][..]; P] };
        let x_sums = arranged(more_floats, x_sums, if N == 2 { blocks } else { 0 }, order)?.as_chunks::<P>().0;
        let x_offsets = room(ints, P * blocks * 4)?;
        let (x_halves, _) = x_bytes.as_flattened().as_flattened().as_chunks::<16>();
        for (offsets, halves) in x_offsets.as_chunks_mut::<16>().0.iter_mut().zip(x_halves.as_chunks::<8>().0) {
            for (i, offset) in offsets.iter_mut().enumerate() {
                let sum = |half: usize| -> i32 {
                    halves[i / 4 + 4 * half][i % 4 * 4..][..4].iter().map(|&x| i32::from(x as i8)).sum()
                };
                *offset = -F::OFFSET * (sum(0) + sum(1));
            }
        }
        let x_bytes = x_bytes.as_chunks::<P>().0;
        let x_offsets = x_offsets.as_chunks::<16>().0.as_chunks::<4>().0.as_chunks::<P>().0;
        let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        rows_times_token!(weight, y, order, |blocks: &[u8; STEP], [row, i], mut sums: [__m512; P]| {
            // First what branches, while few registers are used.
            let factors = factors([row, i]);
            let zero = _mm512_setzero_si512();
            let (mut stored, mut dots) = ([(zero, zero); 4], [[zero; 4]; P]);
            for (j, four) in blocks.chunks_exact(const { STEP / 4 }).enumerate() {
                let first = four.first_chunk().map_or_else(|| load_less(four), |bytes| load_apart(bytes));
                let second = four.last_chunk().map_or(first, |bytes| load_apart(bytes));
                stored[j] = (first, second);
                let (low, high) = elements(first, second);
                for p in 0..P {
                    let (x, x_offsets) = (&x_bytes[i][p], &x_offsets[i][p]);
                    let sums = _mm512_dpbusd_epi32(load_numbers(&x_offsets[j]), low, load(&x[2 * j]));
                    dots[p][j] = _mm512_dpbusd_epi32(sums, high, load(&x[2 * j + 1]));
                }
            }
            let factors = factors(&stored);
            for (p, dots) in dots.iter().enumerate() {
                // In each 128 bits are four sums of eight products of one block: at most 16 * 127 * 8 and twice that, so
                // that they fit 16 bits.
                let ones = _mm512_set1_epi16(1);
                let first = _mm512_madd_epi16(_mm512_packs_epi32(dots[0], dots[1]), ones);
                let second = _mm512_madd_epi16(_mm512_packs_epi32(dots[2], dots[3]), ones);
                let dots = _mm512_madd_epi16(_mm512_packs_epi32(first, second), ones);
                let scales = _mm512_mul_ps(factors[0], load_floats(&x_scales[i][p]));
                sums[p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scales, sums[p]);
                if N == 2 {
                    sums[p] = _mm512_fmadd_ps(factors[1], load_floats(&x_sums[i][p]), sums[p]);
                }
            }
            sums
        });
        Ok(())
    })
}

/// The scales of sixteen blocks that begin with them, in the order of [`one_token`], of which `stored` has the first and the last 64
/// bytes of each four.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn scales<const BYTES: usize>(stored: &[(__m512i, __m512i); 4]) -> __m512 {
    let mut scales = _mm512_setzero_si512();
    for (j, (first, second)) in stored.iter().enumerate() {
        // Scale k of the four goes to double word j of the k-th 128 bits.
        let at = load_numbers(&const { scales_at(BYTES, 4 * BYTES) });
        scales = _mm512_or_si512(scales, _mm512_maskz_permutex2var_epi16(0x1111 << j, *first, at, *second));
    }
    _mm512_cvtph_ps(_mm512_castsi512_si256(scales))
}

/// The places of the scales of four blocks, each four times.
const fn scales_at(block: usize, four: usize) -> [i16; 32] {
    let (all, mut places, mut i) = (places(block, four, 0, 0), [0; 32], 0);
    while i < 16 {
        places[i] = all[i / 4 * 8];
        i += 1;
    }
    places
}
