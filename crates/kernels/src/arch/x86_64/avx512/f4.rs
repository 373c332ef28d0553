//! F4 by AVX-512 VNNI.

use super::blocks::{many_tokens, unpack};
use super::load_floats;
use super::q4_0::{Scales, one_token, scaled};
use crate::Call;
use crate::arch::generic::wide::EightBlocks;
use crate::arch::x86_64::avx2::{load as load_32, load_16};
use crate::dtypes::blocks::Format;
use crate::dtypes::mxfp4::simd::RAISED;
use crate::dtypes::nvfp4::SCALE;
use crate::dtypes::scaled::{CallScales, padded};
use std::arch::x86_64::*;

/// The matrix product, with one token like that of Q4_0; `EIGHT` and `SIXTEEN` are the bytes of so many blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn multiply<F: EightBlocks<EIGHT>, const EIGHT: usize, const SIXTEEN: usize>(
    call: &mut Call<'_>,
    eights: &F,
) {
    let (low, table) = (_mm512_set1_epi8(15), _mm512_broadcast_i32x4(load_16(&RAISED)));
    let value = |codes: __m512i| _mm512_shuffle_epi8(table, _mm512_and_si512(codes, low));
    let elements = |bytes: __m512i, _| (value(bytes), value(_mm512_srli_epi16::<4>(bytes)));
    let few = match F::PARTS {
        2 => few_tokens::<F, SIXTEEN, 2>(call, elements),
        _ => few_tokens::<F, SIXTEEN, 1>(call, elements),
    };
    if !few {
        many_tokens::<F>(call, |rows, panel| unpack(rows, panel, eights));
    }
}

/// The product with one token, like [`Call::few_tokens`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn few_tokens<F: Format, const SIXTEEN: usize, const P: usize>(
    call: &mut Call<'_>,
    elements: impl Fn(__m512i, __m512i) -> (__m512i, __m512i),
) -> bool {
    match call.scales {
        CallScales::Powers(powers) if !F::FLOATS => {
            let start = |place| powers_of_two(&padded(powers.of_blocks::<16>(place)));
            let apply =
                |scales, dots: [__m512i; 2], [x_scales, _]: [&[f32; 16]; 2], sums| scaled(scales, dots, x_scales, sums);
            one_token::<F, SIXTEEN, P, _>(call, 2, elements, Scales { start, add: |scales, _, _| scales, apply })
        }
        CallScales::Halves(halves) if F::FLOATS => {
            let start = |place| floats(&padded(halves.of_blocks::<16>(place)));
            let apply = |scales: [__m512; 2], [first, second]: [__m512i; 2], [x_scales, _]: [&[f32; 16]; 2], sums| {
                let (a, b) = (_mm512_cvtepi32_ps(first), _mm512_cvtepi32_ps(second));
                let firsts = _mm512_mul_ps(_mm512_shuffle_ps::<0b10_00_10_00>(a, b), scales[0]);
                let dots = _mm512_fmadd_ps(_mm512_shuffle_ps::<0b11_01_11_01>(a, b), scales[1], firsts);
                _mm512_fmadd_ps(dots, _mm512_mul_ps(_mm512_set1_ps(SCALE), load_floats(x_scales)), sums)
            };
            one_token::<F, SIXTEEN, P, _>(call, 2, elements, Scales { start, add: |scales, _, _| scales, apply })
        }
        _ => unreachable!("other scales"),
    }
}

/// `2^(exponent - 128)` in the order of [`one_token`]; the two least are subnormal.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn powers_of_two(exponents: &[u8; 16]) -> __m512 {
    let order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let exponents = _mm512_cvtepu8_epi32(_mm_shuffle_epi8(load_16(exponents), order));
    let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(exponents, _mm512_set1_epi32(1)));
    let least = _mm512_cmplt_epi32_mask(exponents, _mm512_set1_epi32(2));
    _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, least, _mm512_set1_epi32(0x0020_0000), exponents))
}

/// Like `scales_of_halves` of AVX2, in the order of [`one_token`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn floats(bytes: &[u8; 32]) -> [__m512; 2] {
    let order = _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let bytes = load_32(bytes);
    let numbers = _mm256_maskz_mov_epi8(_mm256_cmpneq_epi8_mask(bytes, _mm256_set1_epi8(0x7f)), bytes);
    let numbers = _mm256_permutexvar_epi16(order, numbers);
    let wide = |halves: __m256i| _mm512_cvtph_ps(_mm256_and_si256(halves, _mm256_set1_epi16(0x3f80)));
    [wide(_mm256_slli_epi16::<7>(numbers)), wide(_mm256_srli_epi16::<1>(numbers))]
}
