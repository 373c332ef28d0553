//! U4 by AVX-512 VNNI.

use super::blocks::{many_tokens, unpack};
use super::load;
use super::q4_0::{Scales, one_token, scaled};
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
    let CallScales::Groups(groups) = call.scales else { unreachable!("other scales") };
    let few = match F::PARTS {
        2 => few_tokens::<SIXTEEN, 2>(call, groups),
        _ => few_tokens::<SIXTEEN, 1>(call, groups),
    };
    if !few {
        many_tokens::<F>(call, |rows, panel| unpack(rows, panel, eights));
    }
}

/// The product with one token, like [`Call::few_tokens`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn few_tokens<const SIXTEEN: usize, const P: usize>(call: &mut Call<'_>, groups: Groups<'_>) -> bool {
    match groups.scales.dtype() {
        DType::F32 => by_scales::<64, SIXTEEN, P>(call, groups, |floats| _mm512_castsi512_ps(load(floats))),
        DType::BF16 => by_scales::<32, SIXTEEN, P>(call, groups, |halves| {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(load_32(halves))))
        }),
        _ => by_scales::<32, SIXTEEN, P>(call, groups, |halves| _mm512_cvtph_ps(load_32(halves))),
    }
}

/// The same with sixteen scales of `N` bytes that `widened` widens.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn by_scales<const N: usize, const SIXTEEN: usize, const P: usize>(
    call: &mut Call<'_>,
    groups: Groups<'_>,
    widened: impl Fn(&[u8; N]) -> __m512,
) -> bool {
    let low = _mm512_set1_epi8(15);
    let elements =
        |bytes: __m512i, _| (_mm512_and_si512(bytes, low), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), low));
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let order = _mm512_srl_epi32(order, _mm_cvtsi32_si128(groups.shift as i32));
    let count = groups.scales.len_of(N / 16);
    let start = |place| {
        let [from, skipped] = groups.place::<16>(place, count);
        let numbers = _mm512_add_epi32(order, _mm512_set1_epi32(skipped as i32));
        _mm512_permutexvar_ps(numbers, widened(groups.scales.chunk(from * (N / 16))))
    };
    let apply = |scales, dots, x_scales, sums| scaled(scales, dots, x_scales, sums);
    one_token::<8, 64, SIXTEEN, P, _>(call, true, elements, Scales { start, add: |scales, _, _| scales, apply })
}
