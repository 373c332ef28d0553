//! AVX2 pieces that several dtypes share: loads, sums in the defined order, the product of block dtypes with one token.
//!
//! A row's 16 lanes are two vectors: lanes 0 to 7 and 8 to 15. Block dtypes come eight blocks at a time.
//!
//! # No product saturates
//!
//! `vpmaddubsw` multiplies unsigned by signed bytes and adds pairs, saturating at 16 bits. Activations are -127 to 127,
//! and weights are taken as unsigned, so that a pair is at most `2 * (2^BITS - 1) * 127`: 3810 for 4 bits, 7874 for 5,
//! 16002 for 6. Signed weights (8 bits) enter by their magnitude, at most 128, and their sign goes to the activation,
//! which has a negative for each of its values: at most 2 * 128 * 127 = 32512. All are below 2^15, and so are 8 pairs of
//! 4 bits (30480), 4 of 5 bits (31496) and 2 of 6 bits (32004). Fewer bits count as 4.

#![allow(clippy::needless_range_loop)] // parts are indices of several arrays

pub(crate) mod attention;
pub(crate) mod i8;
pub(crate) mod q4_0;
pub(crate) mod q4_k;
pub(crate) mod simd;
pub(crate) mod wide;
pub(crate) mod wide_panel;

use super::prefetch::{NEAR_4_BITS, prefetch_near};
use crate::Call;
use crate::arch::generic::prefetch::{NEAR, streams};
use crate::arch::generic::wide::{EightBlocks, ONE_TOKEN, scales_and_mins_of_halves, scales_of_halves};
use crate::arch::generic::{codes, floats};
use crate::dtypes::blocks::Format;
use crate::dtypes::codes::Codes;
use crate::element::Element;
use crate::scratch::{Scratch, arranged, arranged_bytes, arranged_sums};
use bytemuck::Pod;
use simd::Avx2;
use std::arch::x86_64::*;

pub(crate) use wide::{load, load_16, load_floats, load_numbers, transpose};

/// Stores 32 bytes of numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn store_numbers<T: Pod, const N: usize>(numbers: &mut [T; N], v: __m256i) {
    const { assert!(size_of::<[T; N]>() == 32) };
    // SAFETY: the array is 32 bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(numbers.as_mut_ptr().cast(), v) }
}

/// The sum of 16 lanes in the order of `crate::sum_lanes`.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_lanes(lanes: [__m256; 2]) -> f32 {
    sum_eight_lanes(_mm256_add_ps(lanes[0], lanes[1]))
}

/// The sum of 8 lanes, in pairs that are 4 apart, then 2, then 1.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn sum_eight_lanes(eight: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// The sum of the double words of each of 8 vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_eight(v: [__m256i; 8]) -> __m256i {
    let two = |a: __m256i, b: __m256i| _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let four = |a: __m256i, b: __m256i| _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let low = four(two(v[0], v[1]), two(v[2], v[3]));
    let high = four(two(v[4], v[5]), two(v[6], v[7]));
    add_halves(low, high)
}

/// The sum of the words of each of 8 vectors; any 4 words of a vector add up to a word.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_eight_words(v: [__m256i; 8]) -> __m256i {
    let [a, b, c, d, e, f, g, h] = v;
    add_halves(sum_four_words([a, b, c, d]), sum_four_words([e, f, g, h]))
}

/// The sums of the words of each 128-bit half of 4 vectors, in that half; any 4 words of a half add up to a word.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn sum_four_words(v: [__m256i; 4]) -> __m256i {
    let two = |a: __m256i, b: __m256i| {
        let words = _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
        _mm256_castsi256_ps(words)
    };
    let (a, b) = (two(v[0], v[1]), two(v[2], v[3]));
    let even = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
    let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(a, b));
    _mm256_madd_epi16(_mm256_add_epi16(even, odd), _mm256_set1_epi16(1))
}

/// The sums of the two 128-bit halves of each: of `low`, then of `high`.
#[inline]
#[target_feature(enable = "avx2")]
fn add_halves(low: __m256i, high: __m256i) -> __m256i {
    let first = _mm256_permute2x128_si256::<0x20>(low, high);
    _mm256_add_epi32(first, _mm256_permute2x128_si256::<0x31>(low, high))
}

/// The matrix product of a block dtype.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn matmul<F: EightBlocks<EIGHT> + Default, const EIGHT: usize>(call: &mut Call<'_>) {
    multiply(call, &F::default());
}

/// The matrix product of a block dtype as `eights` unpacks it.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn multiply<F: EightBlocks<EIGHT>, const EIGHT: usize>(call: &mut Call<'_>, eights: &F) {
    let few = match F::PARTS {
        2 => one_token::<F, EIGHT, 2>(call, eights),
        _ => one_token::<F, EIGHT, 1>(call, eights),
    };
    if !few {
        wide_panel::many_tokens(call, eights);
    }
}

/// The product with one token, like [`Call::few_tokens`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn one_token<F: EightBlocks<EIGHT>, const EIGHT: usize, const P: usize>(call: &mut Call<'_>, eights: &F) -> bool {
    call.few_tokens::<P>(|Scratch { bytes, floats, more_floats, ints, .. }, weight, x, y| {
        // The activations, padded to a whole number of steps.
        let blocks = x[0].scales.len().next_multiple_of(8);
        let x_bytes = arranged_bytes::<32, P>(bytes, &x, F::ELEMENTS.evens_first, blocks, |i| i)?.as_chunks::<P>().0;
        let x_scales = arranged(floats, x.map(|x| x.scales), blocks, |b| b)?.as_chunks::<P>().0;
        let x_sums = arranged(more_floats, x.map(|x| x.sums), blocks, |b| b)?.as_chunks::<P>().0;
        let x_ints = arranged_sums::<F, 8, P>(ints, &x, blocks)?;
        rows_times_token(weight, y, |stored: [&[u8; EIGHT]; 4], of, i, sums: &mut [[__m256; P]; 4]| {
            for ((eight, row), sums) in stored.into_iter().zip(of).zip(sums) {
                // SAFETY: this function is compiled for the instruction sets.
                let factors = unsafe { eights.factors::<ONE_TOKEN>(eight, [row, i]) };
                let [halves, half_mins] = scales_and_mins_of_halves(F::MINS, factors.halves);
                // SAFETY: the reason above holds here too.
                let elements = unsafe { eights.elements::<ONE_TOKEN>(eight) };
                for p in 0..P {
                    let [mut dots, second] = dots::<F>(elements, &x_bytes[i][p], halves);
                    // The products of the factors of half blocks and the sums of their activations; the ints are these sums with
                    // their sign turned.
                    let place = (i * P + p) * if F::FLOATS { 2 } else { 1 };
                    let ints = load_numbers(&x_ints[place]);
                    let by_half = |halves| _mm256_madd_epi16(_mm256_cvtepi8_epi16(halves), ints);
                    if F::HALVES && F::OFFSET > 0 && !F::FLOATS {
                        let sums = by_half(halves);
                        let shift = _mm_cvtsi32_si128(7 - F::SHIFT);
                        dots = _mm256_add_epi32(dots, _mm256_sll_epi32(sums, shift));
                    } else if F::OFFSET > 0 {
                        dots = _mm256_add_epi32(dots, ints);
                    }
                    let mut dots = _mm256_cvtepi32_ps(dots);
                    if F::FLOATS {
                        let second = _mm256_cvtepi32_ps(_mm256_add_epi32(second, load_numbers(&x_ints[place + 1])));
                        let [by_first, by_second] = scales_of_halves(halves);
                        dots = _mm256_fmadd_ps(second, by_second, _mm256_mul_ps(dots, by_first));
                    }
                    let x_scales = load_floats(&x_scales[i][p]);
                    let scales = _mm256_mul_ps(factors.scales, x_scales);
                    sums[p] = _mm256_fmadd_ps(dots, scales, sums[p]);
                    if F::MINS && F::HALVES {
                        let mins = _mm256_mul_ps(factors.mins, x_scales);
                        sums[p] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(by_half(half_mins)), mins, sums[p]);
                    } else if F::MINS {
                        sums[p] = _mm256_fnmadd_ps(factors.mins, load_floats(&x_sums[i][p]), sums[p]);
                    }
                }
            }
        });
        Ok(())
    })
}

/// The products of eight blocks, added up for each block, with the scales of half blocks where these are integers; where they are
/// floats, added up for each first half and each second.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn dots<F: Format>(q: [__m256i; 8], x: &[[u8; 32]; 8], halves: __m128i) -> [__m256i; 2] {
    if F::HALVES {
        // The scales of first halves in the low 128 bits and of second halves in the high, a word each.
        let split = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
        let scales = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(halves, split));
        // The two double words of each half of two blocks: words are added before they are scaled, in pairs at most.
        const { assert!(F::BITS <= 6 || !F::HALVES) };
        let two = |b: usize| {
            let [first, second] = [b, b + 1].map(|b| _mm256_maddubs_epi16(q[b], load(&x[b])));
            let words = _mm256_add_epi16(_mm256_unpacklo_epi64(first, second), _mm256_unpackhi_epi64(first, second));
            let pick = |b: usize| (b as i64 * 0x0202 + 0x0100) * 0x0001_0001_0001_0001;
            let pick = _mm256_setr_epi64x(pick(b), pick(b + 1), pick(b), pick(b + 1));
            let scales = if F::FLOATS { _mm256_set1_epi16(1) } else { _mm256_shuffle_epi8(scales, pick) };
            _mm256_castsi256_ps(_mm256_madd_epi16(words, scales))
        };
        let four = |b: usize| {
            let (first, second) = (two(b), two(b + 2));
            let even = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(first, second));
            let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(first, second));
            _mm256_add_epi32(even, odd)
        };
        let (low, high) = (four(0), four(4));
        if F::FLOATS {
            return [_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high)];
        }
        return [add_halves(low, high); 2];
    }
    let mut sums = [_mm256_setzero_si256(); 8];
    for b in 0..8 {
        sums[b] = pairs::<F>(q[b], load(&x[b]));
    }
    if F::BITS <= 5 {
        return [sum_eight_words(sums); 2];
    }
    [sum_eight(sums.map(|sums| _mm256_madd_epi16(sums, _mm256_set1_epi16(1)))); 2]
}

/// The products of elements and activations, added up in pairs.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn pairs<F: Format>(q: __m256i, x: __m256i) -> __m256i {
    if F::BITS == 8 {
        _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q))
    } else {
        _mm256_maddubs_epi16(q, x)
    }
}

/// The product of weights that are widened in a register.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn widened<E: Element>(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    floats::widened::<_, E>(unsafe { Avx2::new() }, call);
}

/// The product of codes that are widened in a register.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn codes<C: Codes>(call: &mut Call<'_>) {
    // SAFETY: the function is compiled for the instruction sets.
    codes::multiply::<_, C>(unsafe { Avx2::new() }, call, |call| widened::<f32>(call));
}

/// For four rows of `weight` at a time, `step(blocks, rows, i, sums)` adds eight blocks of each to lanes 0 to 7 for even `i`, to
/// the other lanes for odd `i`, of which there are some for each row of the input. A row's end is padded with zeros.
///
/// `step` is called in one place, so that compilers inline it there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn rows_times_token<const EIGHT: usize, const P: usize>(
    weight: &[u8],
    y: &mut [f32],
    step: impl Fn([&[u8; EIGHT]; 4], [usize; 4], usize, &mut [[__m256; P]; 4]),
) {
    let row_bytes = weight.len() / y.len();
    let (steps, rest) = (row_bytes / EIGHT, row_bytes % EIGHT);
    let near = if EIGHT > 160 { NEAR } else { NEAR_4_BITS };
    let mut padded = [[0; EIGHT]; 4];
    for indices in streams::<4>(y.len()) {
        // A loop, as a call of `map` is not inlined here.
        let mut rows = [weight; 4];
        for (row, i) in rows.iter_mut().zip(indices) {
            *row = &weight[i * row_bytes..][..row_bytes];
        }
        if rest > 0 {
            for (padded, row) in padded.iter_mut().zip(rows) {
                padded[..rest].copy_from_slice(&row[row_bytes - rest..]);
            }
        }
        let mut sums = [[[_mm256_setzero_ps(); P]; 4]; 2];
        for i in 0..steps + usize::from(rest > 0) {
            let mut eights = padded.each_ref();
            if i < steps {
                for r in 0..4 {
                    // SAFETY: the row has `steps` steps.
                    eights[r] = unsafe { &*rows[r].as_ptr().add(i * EIGHT).cast::<[u8; EIGHT]>() };
                }
            }
            eights.iter().for_each(|eight| prefetch_near(eight.as_ptr().wrapping_add(near), EIGHT));
            step(eights, indices, i, &mut sums[i % 2]);
        }
        for (r, row) in indices.into_iter().enumerate() {
            y[row] = sum_lanes([sums[0][r][0], sums[1][r][0]]);
            for p in 1..P {
                y[row] += sum_lanes([sums[0][r][p], sums[1][r][p]]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Sets};

    #[test]
    fn transposes() {
        #[target_feature(enable = "avx2")]
        fn transposed(numbers: &[[i32; 8]; 8]) -> [[i32; 8]; 8] {
            let mut rows = [_mm256_setzero_si256(); 8];
            rows.iter_mut().zip(numbers).for_each(|(row, numbers)| *row = load_numbers(numbers));
            let mut out = [[0; 8]; 8];
            out.iter_mut().zip(transpose(rows)).for_each(|(out, column)| store_numbers(out, column));
            out
        }
        if Isa::detect().has(Sets::AVX2) {
            let numbers: [[i32; 8]; 8] = std::array::from_fn(|r| std::array::from_fn(|c| (100 * r + c) as i32));
            // SAFETY: the token proves the instruction sets.
            let out = unsafe { transposed(&numbers) };
            assert!((0..8).all(|r| (0..8).all(|c| out[c][r] == numbers[r][c])));
        }
    }
}
