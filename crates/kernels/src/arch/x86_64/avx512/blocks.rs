//! Products of block dtypes by AVX-512 VNNI: panels of 16 rows for many tokens, and for formats without code of their own both
//! products from the same two routines as by AVX2 (`crate::arch::x86_64::avx2`), the elements and the factors of eight blocks.
//!
//! With one token a step is sixteen blocks, a lane each: blocks `b` and `b + 8` share a register. `vpdpbusd` adds four
//! products in 32 bits, so nothing saturates.

#![allow(clippy::needless_range_loop)] // tokens are indices of several arrays

use super::simd::Avx512;
use super::{load, load_floats, load_numbers, rows_times_token, sum_quarters_of_four, transpose};
use crate::Call;
use crate::arch::generic::panel::{self, Multiply};
use crate::arch::generic::prefetch::four_words;
use crate::arch::generic::simd::Simd;
use crate::arch::generic::wide::{EightBlocks, PANEL_OF_16, STEP, scales_and_mins_of_halves, scales_of_halves};
use crate::dtypes::blocks::Format;
use crate::order::GROUP;
use crate::scratch::{Scratch, arranged, arranged_bytes, arranged_sums, with_scratch};
use std::arch::x86_64::*;
use std::ops::Range;

/// The matrix product of a block dtype. `SIXTEEN` is twice `EIGHT`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn matmul<F: EightBlocks<EIGHT> + Default, const EIGHT: usize, const SIXTEEN: usize>(call: &mut Call<'_>) {
    multiply::<F, EIGHT, SIXTEEN>(call, &F::default());
}

/// The matrix product of a block dtype as `eights` unpacks it. `SIXTEEN` is twice `EIGHT`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn multiply<F: EightBlocks<EIGHT>, const EIGHT: usize, const SIXTEEN: usize>(
    call: &mut Call<'_>,
    eights: &F,
) {
    let few = match F::PARTS {
        2 => one_token::<F, EIGHT, SIXTEEN, 2>(call, eights),
        _ => one_token::<F, EIGHT, SIXTEEN, 1>(call, eights),
    };
    if !few {
        many_tokens::<F>(call, |rows, panel| unpack(rows, panel, eights));
    }
}

/// Rows in a panel.
pub(crate) const ROWS: usize = <Avx512>::LANES;

pub(crate) type Panel<'a> = panel::Panel<'a, Avx512>;

pub(crate) type Rows<'a> = panel::Rows<'a, ROWS>;

pub(crate) type Step<'a, const N: usize> = panel::Step<'a, N, ROWS>;

impl Multiply for Avx512 {
    const TOKENS: usize = GROUP;
    const ASKS: bool = true;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn products<F: Format, const T: usize>(
        self,
        w: *const u8,
        x: &[[[i8; 4]; 8]; T],
        groups: Range<usize>,
        offsets: &[i32; T],
    ) -> [__m512; T] {
        let mut dots = [_mm512_setzero_si512(); T];
        if F::RAISED {
            for t in 0..T {
                dots[t] = _mm512_set1_epi32(offsets[t]);
            }
        }
        for group in groups {
            // SAFETY: the caller guarantees it.
            let w = load(unsafe { &*w.add(64 * group).cast() });
            for t in 0..T {
                let x = _mm512_set1_epi32(i32::from_le_bytes(x[t][group].map(|x| x as u8)));
                dots[t] = _mm512_dpbusd_epi32(dots[t], w, x);
            }
        }
        let mut sums = [_mm512_setzero_ps(); T];
        for t in 0..T {
            sums[t] = _mm512_cvtepi32_ps(dots[t]);
        }
        sums
    }
}

/// The product with many tokens: `unpack(rows, panel)` fills a panel with up to 16 rows. Signed elements get an
/// offset of 128 there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn many_tokens<F: Format>(call: &mut Call<'_>, unpack: impl Fn(&Rows<'_>, &mut Panel<'_>)) {
    // SAFETY: the function is compiled for the instruction sets.
    let simd = unsafe { Avx512::new() };
    // SAFETY: this function and the product are compiled for the same.
    let done = with_scratch(|scratch| unsafe { panel::matmul::<Avx512, F, ROWS>(simd, scratch, call, unpack) });
    call.note(done);
}

/// Stores elements `64 * i ..` of all rows.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn put(panel: &mut Panel<'_>, i: usize, rows: &[__m512i; ROWS]) {
    let columns = transpose(rows);
    for (b, columns) in [2 * i, 2 * i + 1].into_iter().zip(columns.as_chunks::<8>().0) {
        panel.put_columns(b, columns);
    }
}

/// The 64 bytes at `at` of a super-block of 16 rows, transposed.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn columns<const BYTES: usize>(blocks: Step<'_, BYTES>, at: usize) -> [__m512i; 16] {
    let mut rows = [_mm512_setzero_si512(); ROWS];
    rows.iter_mut().enumerate().for_each(|(r, row)| *row = load(blocks.part(r, at)));
    transpose(&rows)
}

/// Like [`many_tokens`], with `len` blocks of each row at a time, whose bytes are `STEP`: `put(stored, i, panel)` stores the `i`th.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn many_tokens_by<F: Format, const STEP: usize>(
    call: &mut Call<'_>,
    len: usize,
    put: impl Fn(Step<'_, STEP>, usize, &mut Panel<'_>),
) {
    many_tokens::<F>(call, |rows, panel| {
        for i in panel.steps(len) {
            panel.ask_ahead(i, ROWS * STEP);
            let mut padding = None;
            put(rows.step(i, &mut padding), i, panel);
        }
    });
}

/// Like [`many_tokens`] for blocks of 32 that begin with their scale, four blocks at a time, whose bytes are `FOUR`;
/// `put(fours, i, panel)` stores the elements of the `i`-th four blocks of all rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn many_tokens_of_blocks<F: Format, const BYTES: usize, const FOUR: usize>(
    call: &mut Call<'_>,
    put: impl Fn(Step<'_, FOUR>, usize, &mut Panel<'_>),
) {
    const { assert!(FOUR == 4 * BYTES) };
    many_tokens_by::<F, FOUR>(call, 4, |fours, i, panel| {
        put(fours, i, panel);
        for j in 0..4 {
            let scales = |first: usize| four_words(|r| *fours.part(first + r, j * BYTES));
            let scales = _mm256_setr_epi64x(scales(0), scales(4), scales(8), scales(12));
            panel.put_floats(4 * i + j, [_mm512_cvtph_ps(scales)]);
        }
    });
}

/// Two vectors side by side.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn join(a: __m256i, b: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn join_floats(a: __m256, b: __m256) -> __m512 {
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(a), b)
}

/// Fills a panel with up to 16 rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn unpack<F: EightBlocks<EIGHT>, const EIGHT: usize>(rows: &Rows<'_>, panel: &mut Panel<'_>, eights: &F) {
    let zero = _mm512_setzero_si512();
    // Panels of signed values have an offset of 128.
    let raise = _mm512_set1_epi8(if F::RAISED { (128 - F::OFFSET) as i8 } else { 0 });
    let (mut quants, mut floats, mut halves) = ([[zero; ROWS]; 4], [zero; ROWS], [[zero; ROWS]; 2]);
    for i in panel.steps(8) {
        panel.ask_ahead(i, ROWS * EIGHT);
        let mut padding = None;
        let stored = rows.step(i, &mut padding);
        for r in 0..ROWS {
            let eight = stored.row(r);
            // SAFETY: this function is compiled for the instruction sets.
            let elements = unsafe { eights.elements::<PANEL_OF_16>(eight) };
            for (quants, two) in quants.iter_mut().zip(elements.as_chunks::<2>().0) {
                quants[r] = _mm512_add_epi8(join(two[0], two[1]), raise);
            }
            // SAFETY: the reason above holds here too.
            let factors = unsafe { eights.factors::<PANEL_OF_16>(eight, [rows.first() + r, i]) };
            floats[r] = _mm512_castps_si512(join_floats(factors.scales, factors.mins));
            if F::FLOATS {
                let [first, second] = scales_of_halves(factors.halves);
                halves[0][r] = _mm512_castps_si512(join_floats(first, second));
            } else if F::HALVES {
                for (to, of_halves) in halves.iter_mut().zip(scales_and_mins_of_halves(F::MINS, factors.halves)) {
                    to[r] = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(of_halves)));
                }
            }
        }
        for (j, quants) in quants.iter().enumerate() {
            put(panel, 4 * i + j, quants);
        }
        let (floats, halves, half_mins) = (transpose(&floats), transpose(&halves[0]), transpose(&halves[1]));
        for b in 0..8 {
            let of = |columns: &[__m512i; 16], i: usize| _mm512_castsi512_ps(columns[i]);
            let of_halves = |columns: &[__m512i; 16]| match F::FLOATS {
                true => [of(columns, b), of(columns, 8 + b)],
                false => [of(columns, 2 * b), of(columns, 2 * b + 1)],
            };
            let factors = [of(&floats, b), of(&floats, 8 + b)];
            panel.put_factors::<F>(8 * i + b, factors, of_halves(&halves), of_halves(&half_mins));
        }
    }
}

/// The product with one token, like [`Call::few_tokens`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn one_token<F: EightBlocks<EIGHT>, const EIGHT: usize, const SIXTEEN: usize, const P: usize>(
    call: &mut Call<'_>,
    eights: &F,
) -> bool {
    const { assert!(SIXTEEN == 2 * EIGHT) };
    call.few_tokens::<P>(|Scratch { bytes, floats, more_floats, ints, .. }, weight, x, y| {
        // The activations, padded to a whole number of steps, blocks b and b + 8 of a step side by side.
        let blocks = x[0].scales.len().next_multiple_of(16);
        let order = |i: usize| i / 32 * 32 + i / 2 % 2 * 16 + i % 32 / 4 * 2 + i % 2;
        let x_bytes = arranged_bytes::<64, P>(bytes, &x, F::ELEMENTS.evens_first, blocks, order)?.as_chunks::<P>().0;
        let x_scales = arranged(floats, x.map(|x| x.scales), blocks, |b| b)?.as_chunks::<P>().0;
        let x_sums = arranged(more_floats, x.map(|x| x.sums), blocks, |b| b)?.as_chunks::<P>().0;
        let x_ints = arranged_sums::<F, 16, P>(ints, &x, blocks)?;
        let order = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        rows_times_token!(1, weight, y, order, |[w]: [&[u8; SIXTEEN]; 1], [row], i, [mut sums]: [[__m512; P]; 1]| {
            let [a, b] = w.as_chunks::<EIGHT>().0 else { unreachable!("two times eight blocks") };
            // SAFETY: this function is compiled for the instruction sets.
            let (of_a, of_b) =
                unsafe { (eights.factors::<STEP>(a, [row, 2 * i]), eights.factors::<STEP>(b, [row, 2 * i + 1])) };
            let [halves_a, mins_a] = scales_and_mins_of_halves(F::MINS, of_a.halves);
            let [halves_b, mins_b] = scales_and_mins_of_halves(F::MINS, of_b.halves);
            let floats = floats_of_halves::<F>(halves_a, halves_b);
            // SAFETY: the reason above holds here too.
            let (a, b) = unsafe {
                if F::ELEMENTS.apart {
                    (apart(eights, a), apart(eights, b))
                } else {
                    (eights.elements::<STEP>(a), eights.elements::<STEP>(b))
                }
            };
            for p in 0..P {
                let place = (i * P + p) * if F::FLOATS { 2 } else { 1 };
                let ints = load_numbers(&x_ints[place]);
                let by_half =
                    |a: __m128i, b: __m128i| _mm512_madd_epi16(_mm512_cvtepi8_epi16(_mm256_set_m128i(b, a)), ints);
                let [mut dots, second] = dots::<F>(a, b, &x_bytes[i][p], halves_a, halves_b);
                if F::HALVES && F::OFFSET > 0 && !F::FLOATS {
                    let shift = _mm_cvtsi32_si128(7 - F::SHIFT);
                    dots = _mm512_add_epi32(dots, _mm512_sll_epi32(by_half(halves_a, halves_b), shift));
                } else if F::RAISED {
                    dots = _mm512_add_epi32(dots, ints);
                }
                let mut dots = _mm512_cvtepi32_ps(dots);
                if F::FLOATS {
                    let second = _mm512_cvtepi32_ps(_mm512_add_epi32(second, load_numbers(&x_ints[place + 1])));
                    dots = _mm512_fmadd_ps(second, floats[1], _mm512_mul_ps(dots, floats[0]));
                }
                let x_scales = load_floats(&x_scales[i][p]);
                let scales = _mm512_mul_ps(join_floats(of_a.scales, of_b.scales), x_scales);
                sums[p] = _mm512_fmadd_ps(dots, scales, sums[p]);
                let mins = join_floats(of_a.mins, of_b.mins);
                if F::MINS && F::HALVES {
                    let dots = _mm512_cvtepi32_ps(by_half(mins_a, mins_b));
                    sums[p] = _mm512_fmadd_ps(dots, _mm512_mul_ps(mins, x_scales), sums[p]);
                } else if F::MINS {
                    sums[p] = _mm512_fnmadd_ps(mins, load_floats(&x_sums[i][p]), sums[p]);
                }
            }
            [sums]
        });
        Ok(())
    })
}

/// The elements of eight blocks, unpacked by a function that is not inlined.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn apart<F: EightBlocks<EIGHT>, const EIGHT: usize>(eights: &F, eight: &[u8; EIGHT]) -> [__m256i; 8] {
    // SAFETY: this function is compiled for the instruction sets.
    unsafe { eights.elements::<STEP>(eight) }
}

/// The scales of the first and of the second halves of sixteen blocks, where they are floats.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn floats_of_halves<F: Format>(a: __m128i, b: __m128i) -> [__m512; 2] {
    if !F::FLOATS {
        return [_mm512_setzero_ps(); 2];
    }
    let ([first, second], [more, last]) = (scales_of_halves(a), scales_of_halves(b));
    [join_floats(first, more), join_floats(second, last)]
}

/// The products of sixteen blocks, added up for each block, with the scales of half blocks where these are integers; where they are
/// floats, added up for each first half and each second.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn dots<F: Format>(
    a: [__m256i; 8],
    b: [__m256i; 8],
    x: &[[u8; 64]; 8],
    halves_a: __m128i,
    halves_b: __m128i,
) -> [__m512i; 2] {
    // The scales of first halves, then of second halves, a word each: of `a` in the low 256 bits, of `b` in the high.
    let split = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    let words = |halves: __m128i| _mm256_cvtepi8_epi16(_mm_shuffle_epi8(halves, split));
    let scales = join(words(halves_a), words(halves_b));
    let mut sums = [_mm512_setzero_si512(); 8];
    for j in 0..8 {
        let mut q = join(a[j], b[j]);
        if F::BITS == 8 {
            q = _mm512_xor_si512(q, _mm512_set1_epi8(-128));
        }
        sums[j] = _mm512_dpbusd_epi32(sums[j], q, load(&x[j]));
        if F::HALVES && !F::FLOATS {
            // Four products of at most 6 bits fit a word (32004), so the high word, the sign, is left out.
            let pick = _mm512_set1_epi32(0x8080_0100_u32 as i32 + 0x0202 * j as i32);
            sums[j] = _mm512_madd_epi16(sums[j], _mm512_shuffle_epi8(scales, pick));
        }
    }
    let low = sum_quarters_of_four([sums[0], sums[1], sums[2], sums[3]]);
    let high = sum_quarters_of_four([sums[4], sums[5], sums[6], sums[7]]);
    let first = _mm512_shuffle_i64x2::<0b10_00_10_00>(low, high);
    let second = _mm512_shuffle_i64x2::<0b11_01_11_01>(low, high);
    let in_order = |sums| _mm512_shuffle_i64x2::<0b11_01_10_00>(sums, sums);
    if F::FLOATS { [in_order(first), in_order(second)] } else { [in_order(_mm512_add_epi32(first, second)); 2] }
}
