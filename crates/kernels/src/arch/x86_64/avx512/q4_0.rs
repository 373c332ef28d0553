//! Q4_0 by AVX-512 VNNI, and what Q4_0 and Q5_0 share: blocks of a scale, bits that differ, and 16 bytes of nibbles.

use super::blocks::{Panel, ROWS, Step, many_tokens_of_blocks};
use super::{load, load_apart, load_floats, load_less, load_numbers, store_floats, store_numbers};
use super::{rows_times_token, transpose};
use crate::Call;
use crate::dtypes::blocks::Format;
use crate::dtypes::q4_0::{BYTES, Q40};
use crate::dtypes::scaled::padded;
use crate::input::Q8;
use crate::order::BLOCK;
use crate::scratch::{Scratch, room};
use bytemuck::{Pod, Zeroable};
use std::arch::x86_64::*;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn matmul(call: &mut Call<'_>) {
    let elements = |first, second| nibbles::<BYTES>(first, second);
    if !one_token::<Q40, { 16 * BYTES }, 1, _>(call, 1, elements, scales_in_blocks::<BYTES>()) {
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

/// The activations of a step in the product with one token, for one row of the input.
#[derive(Clone, Copy)]
#[repr(C)]
struct X {
    /// In the order of elements.
    bytes: [[u8; 64]; 8],
    /// What the weights' offset adds too much to the sums of [`of_halves`].
    offsets: [[i32; 16]; 2],
    /// In the order of scales, as what follows.
    scales: [f32; 16],
    /// Sums of blocks.
    sums: [f32; 16],
}
// SAFETY: arrays of numbers without padding, for which all bits are valid.
unsafe impl Zeroable for X {}
// SAFETY: the reason above holds here too.
unsafe impl Pod for X {}

/// The product with one token, like [`Call::few_tokens`]. `elements` has elements of four blocks, with their offset, 16 of each in a
/// vector: those in order if they are 1 `apart`, as [`nibbles`] has them, else those at even places before those at odd ones, or by
/// their places modulo 4. `STEP` are the bytes of 16 blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn one_token<F: Format, const STEP: usize, const P: usize, T: Copy>(
    call: &mut Call<'_>,
    apart: usize,
    elements: impl Fn(__m512i, __m512i) -> (__m512i, __m512i),
    scales: Scales<
        impl Fn([usize; 2]) -> T,
        impl Fn(T, usize, [__m512i; 2]) -> T,
        impl Fn(T, [__m512i; 2], [&[f32; 16]; 2], __m512) -> __m512,
    >,
) -> bool {
    const { assert!(F::OFFSET <= 16) };
    call.few_tokens::<P>(|Scratch { bytes, .. }, weight, rows, y| {
        let steps = rows[0].scales.len().div_ceil(16);
        let all: &mut [X] = bytemuck::cast_slice_mut(room(bytes, steps * P * size_of::<X>())?);
        for (i, of_step) in all.as_chunks_mut::<P>().0.iter_mut().enumerate() {
            for (x, row) in of_step.iter_mut().zip(&rows) {
                *x = arranged::<F>(row, i, apart);
            }
        }
        let all = all.as_chunks::<P>().0;
        let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        // Two rows share loaded activations, of which there are twice as many as weights.
        rows_times_token!(2, weight, y, order, |blocks: [&[u8; STEP]; 2], rows, i, mut sums: [[__m512; P]; 2]| {
            // First what branches, while few registers are used.
            let mut of_blocks = [(scales.start)([rows[0], i]), (scales.start)([rows[1], i])];
            let (x, zero) = (&all[i], _mm512_setzero_si512());
            let mut dots = [[[zero; 4]; P]; 2];
            for j in 0..4 {
                let mut w = [(zero, zero); 2];
                for r in 0..2 {
                    let four = &blocks[r][STEP / 4 * j..][..STEP / 4];
                    let first = four.first_chunk().map_or_else(|| load_less(four), |bytes| load_apart(bytes));
                    let second = four.last_chunk().map_or(first, |bytes| load_apart(bytes));
                    of_blocks[r] = (scales.add)(of_blocks[r], j, [first, second]);
                    w[r] = elements(first, second);
                }
                for p in 0..P {
                    let (low, high) = (load(&x[p].bytes[2 * j]), load(&x[p].bytes[2 * j + 1]));
                    for r in 0..2 {
                        dots[r][p][j] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, w[r].0, low), w[r].1, high);
                    }
                }
            }
            for r in 0..2 {
                for p in 0..P {
                    let X { offsets, scales: x_scales, sums: x_sums, .. } = &x[p];
                    let [first, second] = of_halves(dots[r][p]);
                    let first = _mm512_sub_epi32(first, load_numbers(&offsets[0]));
                    let second = _mm512_sub_epi32(second, load_numbers(&offsets[1]));
                    sums[r][p] = (scales.apply)(of_blocks[r], [first, second], [x_scales, x_sums], sums[r][p]);
                }
            }
            sums
        });
        Ok(())
    })
}

/// Step `i` of a row of the input, with zeros past its end.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn arranged<F: Format>(row: &Q8<'_>, i: usize, apart: usize) -> X {
    let mut x = X::zeroed();
    let bytes: [u8; 16 * BLOCK] = padded(bytemuck::cast_slice(&row.bytes[16 * BLOCK * i..]));
    let mut offsets = [_mm512_setzero_si512(); 4];
    for (j, [first, second]) in bytes.as_chunks::<64>().0.as_chunks().0.iter().enumerate() {
        let (a, b) = (load(first), load(second));
        let (low, high) = (_mm512_shuffle_i64x2::<0b10_00_10_00>(a, b), _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b));
        // Of each half by the places, then those of both halves next to each other.
        let by_places = |[a, b, c, d]: [i32; 4]| {
            let order = _mm512_set4_epi32(d, c, b, a);
            (_mm512_shuffle_epi8(low, order), _mm512_shuffle_epi8(high, order))
        };
        let (low, high) = match apart {
            1 => (low, high),
            2 => {
                let (low, high) = by_places([0x0604_0200, 0x0e0c_0a08, 0x0705_0301, 0x0f0d_0b09]);
                (_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high))
            }
            _ => {
                let (low, high) = by_places([0x0c08_0400, 0x0d09_0501, 0x0e0a_0602, 0x0f0b_0703]);
                (_mm512_unpacklo_epi32(low, high), _mm512_unpackhi_epi32(low, high))
            }
        };
        store_numbers(&mut x.bytes[2 * j], low);
        store_numbers(&mut x.bytes[2 * j + 1], high);
        let offset = _mm512_set1_epi8(F::OFFSET as i8);
        offsets[j] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), offset, low), offset, high);
    }
    for (to, half) in x.offsets.iter_mut().zip(of_halves(offsets)) {
        store_numbers(to, half);
    }
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (to, floats) in [(&mut x.scales, row.scales), (&mut x.sums, row.sums)] {
        let floats = load(&padded(bytemuck::cast_slice(&floats[16 * i..])));
        store_floats(to, _mm512_castsi512_ps(_mm512_permutexvar_epi32(order, floats)));
    }
    x
}

/// Of sums of eight products in the order of four times four blocks, at most `31 * 127 * 8`, so that they fit 16 bits: those of sixteen,
/// two of each first eight blocks, then two of each second ones; where halves of bytes are neighbors these are halves of blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn of_halves(dots: [__m512i; 4]) -> [__m512i; 2] {
    let sums = |a, b| _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
    [sums(dots[0], dots[1]), sums(dots[2], dots[3])]
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
