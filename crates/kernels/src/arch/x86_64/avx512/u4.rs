//! U4 by AVX-512 VNNI.

use super::blocks::{many_tokens, unpack};
use super::load;
use super::q4_0::one_token;
use crate::Call;
use crate::arch::generic::wide::EightBlocks;
use crate::arch::x86_64::avx2::load as load_32;
use crate::dtypes::scaled::{CallScales, Groups};
use model_factory_dtypes::DType;
use std::arch::x86_64::*;

/// The matrix product, with one token like that of Q4_0; `EIGHT` and `SIXTEEN` are the bytes of so many blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn multiply<F: EightBlocks<EIGHT>, const EIGHT: usize, const SIXTEEN: usize>(
    call: &mut Call<'_>,
    eights: &F,
) {
    let few = match call.scales {
        CallScales::Groups(scales) => few_tokens::<SIXTEEN, 1>(call, [scales]),
        CallScales::Affine(affine) => few_tokens::<SIXTEEN, 2>(call, [affine.scales, affine.biases]),
        _ => unreachable!("scales of another kind"),
    };
    if !few {
        many_tokens::<F>(call, |rows, panel| unpack(rows, panel, eights));
    }
}

/// The product with one token, like [`Call::few_tokens`], with scales and, if `N` is 2, biases.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn few_tokens<const SIXTEEN: usize, const N: usize>(call: &mut Call<'_>, of_groups: [Groups<'_>; N]) -> bool {
    match of_groups[0].scales.dtype() {
        DType::F32 => by::<64, SIXTEEN, N>(call, of_groups, |floats| _mm512_castsi512_ps(load(floats))),
        DType::BF16 => by::<32, SIXTEEN, N>(call, of_groups, |halves| {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(load_32(halves))))
        }),
        _ => by::<32, SIXTEEN, N>(call, of_groups, |halves| _mm512_cvtph_ps(load_32(halves))),
    }
}

/// Like [`few_tokens`], with floats of which sixteen in `BYTES` are `widened`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn by<const BYTES: usize, const SIXTEEN: usize, const N: usize>(
    call: &mut Call<'_>,
    of_groups: [Groups<'_>; N],
    widened: impl Fn(&[u8; BYTES]) -> __m512,
) -> bool {
    let low = _mm512_set1_epi8(15);
    let elements =
        |bytes: __m512i, _| (_mm512_and_si512(bytes, low), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), low));
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let order = _mm512_srl_epi32(order, _mm_cvtsi32_si128(of_groups[0].shift as i32));
    let count = of_groups[0].scales.len_of(BYTES / 16);
    let factors = |place| {
        let [from, skipped] = of_groups[0].place::<16>(place, count);
        let numbers = _mm512_add_epi32(order, _mm512_set1_epi32(skipped as i32));
        let mut factors = [_mm512_setzero_ps(); N];
        for (factors, groups) in factors.iter_mut().zip(of_groups) {
            *factors = _mm512_permutexvar_ps(numbers, widened(groups.scales.chunk(from * (BYTES / 16))));
        }
        if N == 2 {
            factors[1] = _mm512_add_ps(_mm512_mul_ps(factors[0], _mm512_set1_ps(8.0)), factors[1]);
        }
        move |_: &_| factors
    };
    one_token::<8, 64, SIXTEEN, 2, N, _>(call, true, elements, factors)
}
