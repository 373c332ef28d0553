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
    if !one_token::<Q40, { 16 * BYTES }, 1, _>(call, false, elements, scales_in_blocks::<BYTES>()) {
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

/// How the product with one token scales sixteen blocks, in the order of its sums.
pub(crate) struct Scales<S, A, F> {
    /// What the place of the blocks gives.
    pub(crate) start: S,
    /// Adds what the `j`-th four blocks hold, by their first and last 64 bytes.
    pub(crate) add: A,
    /// Adds the scaled sums of the blocks, of which the vectors have two for each first and each second half, to the sums of lanes;
    /// with the scales of activations, and if the format has minima with their sums.
    pub(crate) apply: F,
}

/// [`Scales::apply`] with a scale for each block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn scaled(scales: __m512, [first, second]: [__m512i; 2], x_scales: &[f32; 16], sums: __m512) -> __m512 {
    let dots = _mm512_madd_epi16(_mm512_packs_epi32(first, second), _mm512_set1_epi16(1));
    _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_mul_ps(scales, load_floats(x_scales)), sums)
}

/// The product with one token, like [`Call::few_tokens`]. `elements` has elements of four blocks like [`nibbles`], with their offset;
/// `evens_first` is as in `Elements`. `STEP` are the bytes of 16 blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn one_token<F: Format, const STEP: usize, const P: usize, T: Copy>(
    call: &mut Call<'_>,
    evens_first: bool,
    elements: impl Fn(__m512i, __m512i) -> (__m512i, __m512i),
    scales: Scales<
        impl Fn([usize; 2]) -> T,
        impl Fn(T, usize, [__m512i; 2]) -> T,
        impl Fn(T, [__m512i; 2], [&[f32; 16]; 2], __m512) -> __m512,
    >,
) -> bool {
    const { assert!(F::OFFSET <= 16) };
    call.few_tokens::<P>(|Scratch { bytes, floats, more_floats, ints, .. }, weight, x, y| {
        let blocks = x[0].scales.len().next_multiple_of(16);
        // The activations, padded to a whole number of steps, in the order of elements and scales; and what the
        // weights' offset adds too much in each eight products.
        let order = |i: usize| i / 8 * 8 + i % 4 * 2 + i / 4 % 2;
        let x_bytes = arranged_bytes::<64, P>(bytes, &x, evens_first, blocks, order)?;
        let order = |i: usize| i / 16 * 16 + i % 4 * 4 + i / 4 % 4;
        let x_scales = arranged(floats, x.map(|x| x.scales), blocks, order)?.as_chunks::<P>().0;
        let x_sums = if F::MINS { x.map(|x| x.sums) } else { [&[][..]; P] };
        let x_sums = arranged(more_floats, x_sums, if F::MINS { blocks } else { 0 }, order)?.as_chunks::<P>().0;
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
            let mut of_blocks = (scales.start)([row, i]);
            let zero = _mm512_setzero_si512();
            let mut dots = [[zero; 4]; P];
            for (j, four) in blocks.chunks_exact(const { STEP / 4 }).enumerate() {
                let first = four.first_chunk().map_or_else(|| load_less(four), |bytes| load_apart(bytes));
                let second = four.last_chunk().map_or(first, |bytes| load_apart(bytes));
                of_blocks = (scales.add)(of_blocks, j, [first, second]);
                let (low, high) = elements(first, second);
                for p in 0..P {
                    let (x, x_offsets) = (&x_bytes[i][p], &x_offsets[i][p]);
                    let sums = _mm512_dpbusd_epi32(load_numbers(&x_offsets[j]), low, load(&x[2 * j]));
                    dots[p][j] = _mm512_dpbusd_epi32(sums, high, load(&x[2 * j + 1]));
                }
            }
            for (p, dots) in dots.iter().enumerate() {
                // In each 128 bits are four sums of eight products of one block: at most 16 * 127 * 8 and twice that, so
                // that they fit 16 bits; the first two are of its first half.
                let ones = _mm512_set1_epi16(1);
                let first = _mm512_madd_epi16(_mm512_packs_epi32(dots[0], dots[1]), ones);
                let second = _mm512_madd_epi16(_mm512_packs_epi32(dots[2], dots[3]), ones);
                let x_sums = if F::MINS { &x_sums[i][p] } else { &[0.0; 16] };
                sums[p] = (scales.apply)(of_blocks, [first, second], [&x_scales[i][p], x_sums], sums[p]);
            }
            sums
        });
        Ok(())
    })
}

/// The scales of blocks that begin with them, as [`one_token`] takes them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[allow(clippy::type_complexity)] // closures have no shorter names
pub(crate) fn scales_in_blocks<const BYTES: usize>() -> Scales<
    impl Fn([usize; 2]) -> __m512i,
    impl Fn(__m512i, usize, [__m512i; 2]) -> __m512i,
    impl Fn(__m512i, [__m512i; 2], [&[f32; 16]; 2], __m512) -> __m512,
> {
    let at = load_numbers(&const { scales_at(BYTES, 4 * BYTES) });
    Scales {
        start: |_| _mm512_setzero_si512(),
        // Scale k of the j-th four goes to word 4 * k + j.
        add: move |scales, j, [first, second]: [__m512i; 2]| {
            _mm512_or_si512(scales, _mm512_maskz_permutex2var_epi16(0x1111u32 << j, first, at, second))
        },
        apply: |scales, dots, [x_scales, _]: [&[f32; 16]; 2], sums| {
            scaled(_mm512_cvtph_ps(_mm512_castsi512_si256(scales)), dots, x_scales, sums)
        },
    }
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
