//! Products with many tokens for block dtypes by AVX2: panels of 8 rows.
//!
//! One `vpmaddubsw` with four activations of a token, repeated in all lanes, gives two sums of pairs for each of 8 outputs. As
//! many of these as fit 16 bits are added before they are brought to 32.

#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // tokens are indices of several arrays

use super::avx2::{Factors, load, pairs, scales_and_mins_of_halves, transpose};
use super::blocks::Format;
use super::panel::{self, Multiply};
use super::scratch::with_scratch;
use super::simd::{Avx2, Simd};
use super::{Input, Output};
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows in a panel.
const ROWS: usize = Avx2::LANES;

type Panel<'a> = panel::Panel<'a, Avx2>;

type Rows<'a> = panel::Rows<'a, ROWS>;

/// Vectors of pairs that fit 16 bits when they are added up; half a block has four.
const fn pairs_a_word<F: Format>() -> usize {
    match F::BITS {
        0..=4 if !F::HALVES => 8,
        0..=5 => 4,
        6 => 2,
        _ => 1,
    }
}

impl Multiply for Avx2 {
    const TOKENS: usize = 4;
    const ASKS: bool = false;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn products<F: Format, const T: usize>(
        self,
        w: *const u8,
        x: &[[[i8; 4]; 8]; T],
        groups: Range<usize>,
        offsets: &[i32; T],
    ) -> [__m256; T] {
        let zero = _mm256_setzero_si256();
        let mut dots = [zero; T];
        for some in groups.step_by(const { pairs_a_word::<F>() }) {
            let mut words = [zero; T];
            for group in some..some + const { pairs_a_word::<F>() } {
                // SAFETY: the caller's.
                let w = load(unsafe { &*w.add(32 * group).cast() });
                for t in 0..T {
                    let x = _mm256_set1_epi32(i32::from_le_bytes(x[t][group].map(|x| x as u8)));
                    words[t] = _mm256_add_epi16(words[t], pairs::<F>(w, x));
                }
            }
            for t in 0..T {
                dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(words[t], _mm256_set1_epi16(1)));
            }
        }
        let mut sums = [_mm256_setzero_ps(); T];
        for t in 0..T {
            let offset = if F::OFFSET > 0 { offsets[t] >> F::SHIFT } else { 0 };
            sums[t] = _mm256_cvtepi32_ps(_mm256_add_epi32(dots[t], _mm256_set1_epi32(offset)));
        }
        sums
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<F: Format, const EIGHT: usize>(
    weight: &[u8],
    input: &Input,
    output: &mut Output<'_>,
    elements: impl Fn(&[u8; EIGHT]) -> [__m256i; 8],
    factors: impl Fn(&[u8; EIGHT], [usize; 2]) -> Factors,
) {
    // SAFETY: the function is compiled for the instruction sets.
    let simd = unsafe { Avx2::new() };
    let done = with_scratch(|scratch| {
        let unpack = |rows: &Rows<'_>, panel: &mut Panel<'_>| {
            unpack::<F, EIGHT>(rows, panel, &elements, &factors);
        };
        // SAFETY: this function and the product are compiled for the same.
        unsafe { panel::matmul::<Avx2, F, ROWS>(simd, scratch, weight, input, output, unpack) }
    });
    output.note(done);
}

/// Fills a panel with 8 rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<F: Format, const EIGHT: usize>(
    rows: &Rows<'_>,
    panel: &mut Panel<'_>,
    elements: impl Fn(&[u8; EIGHT]) -> [__m256i; 8],
    factors: impl Fn(&[u8; EIGHT], [usize; 2]) -> Factors,
) {
    let zero = _mm256_setzero_si256();
    for i in panel.steps(8) {
        let (mut quants, mut scales, mut mins) = ([[zero; ROWS]; 8], [zero; ROWS], [zero; ROWS]);
        let (mut halves, mut half_mins) = ([[zero; ROWS]; 2], [[zero; ROWS]; 2]);
        let mut padding = None;
        let eights = rows.step(i, &mut padding);
        for r in 0..ROWS {
            let eight = eights.row(r);
            for (quants, elements) in quants.iter_mut().zip(elements(eight)) {
                quants[r] = elements;
            }
            let factors = factors(eight, [rows.first() + r, i]);
            scales[r] = _mm256_castps_si256(factors.scales);
            mins[r] = _mm256_castps_si256(factors.mins);
            if F::HALVES {
                let wide = |bytes: __m128i| _mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
                let [scales, mins] = scales_and_mins_of_halves::<F>(factors.halves);
                for (to, bytes) in [(&mut halves, scales), (&mut half_mins, mins)] {
                    to[0][r] = wide(bytes);
                    to[1][r] = wide(_mm_srli_si128::<8>(bytes));
                }
            }
        }
        let (scales, mins) = (transpose(scales), transpose(mins));
        let [halves, half_mins] = [halves, half_mins].map(|halves| halves.map(|halves| transpose(halves)));
        for b in 0..8 {
            panel.put_columns(8 * i + b, &transpose(quants[b]));
            let of = |v: __m256i| _mm256_castsi256_ps(v);
            let of_halves = |halves: &[[__m256i; ROWS]; 2]| [0, 1].map(|h| of(halves[b / 4][b % 4 * 2 + h]));
            let (halves, half_mins) = (of_halves(&halves), of_halves(&half_mins));
            panel.put_factors::<F>(8 * i + b, [of(scales[b]), of(mins[b])], halves, half_mins);
        }
    }
}
