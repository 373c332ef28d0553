//! U2, U3, U4 and U5 by AVX-512 VNNI.

use super::blocks::{many_tokens, unpack};
use super::q4_0::{Scales, one_token, scaled};
use super::{load, load_floats, load_numbers};
use crate::Call;
use crate::arch::generic::wide::EightBlocks;
use crate::arch::x86_64::avx2::load as load_32;
use crate::dtypes::blocks::Format;
use crate::dtypes::scaled::{Affine, CallScales, Groups, padded};
use model_factory_dtypes::DType;
use std::arch::x86_64::*;

/// The matrix product, with one token like that of Q4_0; `EIGHT` and `SIXTEEN` are the bytes of so many blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn multiply<F: EightBlocks<EIGHT>, const EIGHT: usize, const SIXTEEN: usize>(
    call: &mut Call<'_>,
    eights: &F,
) {
    let few = match F::PARTS {
        2 => few_tokens::<F, SIXTEEN, 2>(call),
        _ => few_tokens::<F, SIXTEEN, 1>(call),
    };
    if !few {
        many_tokens::<F>(call, |rows, panel| unpack(rows, panel, eights));
    }
}

/// The product with one token, like [`Call::few_tokens`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn few_tokens<F: Format, const SIXTEEN: usize, const P: usize>(call: &mut Call<'_>) -> bool {
    match call.scales {
        CallScales::Groups(scales) => by_dtype::<F, SIXTEEN, P, 1>(call, [scales]),
        CallScales::Affine(Affine { scales, biases, .. }) => by_dtype::<F, SIXTEEN, P, 2>(call, [scales, biases]),
        _ => unreachable!("scales of another kind"),
    }
}

/// With scales and, if `N` is 2, biases.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn by_dtype<F: Format, const SIXTEEN: usize, const P: usize, const N: usize>(
    call: &mut Call<'_>,
    of_groups: [Groups<'_>; N],
) -> bool {
    match of_groups[0].scales.dtype() {
        DType::F32 => by::<F, SIXTEEN, P, N, 64>(call, of_groups, |floats| _mm512_castsi512_ps(load(floats))),
        DType::BF16 => by::<F, SIXTEEN, P, N, 32>(call, of_groups, |halves| {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(load_32(halves))))
        }),
        _ => by::<F, SIXTEEN, P, N, 32>(call, of_groups, |halves| _mm512_cvtph_ps(load_32(halves))),
    }
}

/// With floats of which sixteen in `BYTES` are `widened`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn by<F: Format, const SIXTEEN: usize, const P: usize, const N: usize, const BYTES: usize>(
    call: &mut Call<'_>,
    of_groups: [Groups<'_>; N],
    widened: impl Fn(&[u8; BYTES]) -> __m512,
) -> bool {
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let order = _mm512_srl_epi32(order, _mm_cvtsi32_si128(of_groups[0].shift as i32));
    let start = move |place| {
        let at = of_groups[0].first::<16>(place) * (BYTES / 16);
        let mut factors = [_mm512_setzero_ps(); N];
        for n in 0..N {
            factors[n] = _mm512_permutexvar_ps(order, widened(&padded(of_groups[n].scales.from(at))));
        }
        if N == 2 {
            factors[1] = _mm512_add_ps(_mm512_mul_ps(factors[0], _mm512_set1_ps(F::OFFSET as f32)), factors[1]);
        }
        factors
    };
    let apply = |factors: [__m512; N], dots: [__m512i; 2], [x_scales, x_sums]: [&[f32; 16]; 2], sums: __m512| {
        let sums = scaled(factors[0], dots, x_scales, sums);
        if N == 2 { _mm512_fmadd_ps(factors[1], load_floats(x_sums), sums) } else { sums }
    };
    let elements = |first, second| elements::<F>(first, second);
    let apart = const { if 8 % F::BITS == 0 { 8 / F::BITS as usize } else { 1 } };
    one_token::<F, SIXTEEN, P, _>(call, apart, elements, Scales { start, add: |factors, _, _| factors, apply })
}

/// The elements of four blocks, of which `first` and `second` are the first and the last 64 bytes, as many apart as a byte has, or in
/// order if these are no whole number.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn elements<F: Format>(first: __m512i, second: __m512i) -> (__m512i, __m512i) {
    let low = _mm512_set1_epi8((1 << F::BITS) - 1);
    if F::BITS == 4 {
        return (_mm512_and_si512(first, low), _mm512_and_si512(_mm512_srli_epi16::<4>(first), low));
    }
    if F::BITS == 2 {
        let twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), first);
        let shifted = |a, b| _mm512_and_si512(_mm512_srlv_epi64(twice, _mm512_set4_epi64(b, a, b, a)), low);
        return (shifted(0, 2), shifted(4, 6));
    }
    // The two bytes in which each field begins, of which even ones come to the low byte and odd ones to the high one.
    let windows = |odd: usize| {
        let (places, shifts) = &const { [windows(F::BITS as usize, 0), windows(F::BITS as usize, 1)] }[odd];
        (load_numbers(places), load_numbers(shifts))
    };
    let ((evens, right), (odds, left)) = (windows(0), windows(1));
    let fields = |words: &[i16; 32]| {
        let words = load_numbers(words);
        let halves = match F::BITS {
            3 => _mm512_permutexvar_epi16(words, first),
            _ => _mm512_permutex2var_epi16(first, words, second),
        };
        let evens = _mm512_srlv_epi16(_mm512_shuffle_epi8(halves, evens), right);
        let odds = _mm512_sllv_epi16(_mm512_shuffle_epi8(halves, odds), left);
        _mm512_and_si512(_mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, evens, odds), low)
    };
    let [words, more] = &const { [words(F::BITS as usize, 0), words(F::BITS as usize, 1)] };
    (fields(words), fields(more))
}

/// The places of the words of half `half` of four blocks, 16 bytes for each, in vectors of their first and their last 64 bytes.
const fn words(bits: usize, half: usize) -> [i16; 32] {
    let (four, mut places, mut i) = (8 * bits, [0; 32], 0);
    while i < 32 {
        let word = (2 * (i / 8) + half) * bits + i % 8;
        // What follows the last half counts for nothing.
        places[i] = if word < 32 || four <= 32 { word as i16 & 31 } else { (word + 64 - four) as i16 & 63 };
        i += 1;
    }
    places
}

/// For each two fields of 16 bytes where the bytes are in which the first or the second begins, and by how much they are shifted.
const fn windows(bits: usize, odd: usize) -> ([u8; 64], [u16; 32]) {
    let (mut places, mut shifts, mut i) = ([0; 64], [0; 32], 0);
    while i < 32 {
        let bit = (2 * (i % 8) + odd) * bits;
        (places[2 * i], places[2 * i + 1]) = ((bit / 8) as u8, (bit / 8 + 1) as u8);
        shifts[i] = if odd == 0 { bit % 8 } else { 8 - bit % 8 } as u16;
        i += 1;
    }
    (places, shifts)
}
