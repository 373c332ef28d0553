//! U4 by AVX-512 VNNI.

use super::blocks::{many_tokens, unpack};
use super::q4_0::one_token;
use super::{load, load_floats};
use crate::Call;
use crate::arch::generic::wide::EightBlocks;
use crate::arch::x86_64::avx2::load as load_32;
use crate::dtypes::scaled::Groups;
use model_factory_dtypes::DType;
use std::arch::x86_64::*;

/// The matrix product, with one token like that of Q4_0; `EIGHT` and `SIXTEEN` are the bytes of so many blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn multiply<F: EightBlocks<EIGHT>, const EIGHT: usize, const SIXTEEN: usize>(
    call: &mut Call<'_>,
    eights: &F,
) {
    let low = _mm512_set1_epi8(15);
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let elements =
        |bytes: __m512i, _| (_mm512_and_si512(bytes, low), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), low));
    let groups = call.scales.groups();
    let scales = move |place| {
        let scales = scales(&groups, order, place);
        move |_: &_| scales
    };
    if !one_token::<8, 64, SIXTEEN, 2, _>(call, true, elements, scales) {
        many_tokens::<F>(call, |rows, panel| unpack(rows, panel, eights));
    }
}

/// The scales of sixteen blocks, which are number `place[1]` of row `place[0]`, a lane for each block of `order`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn scales(groups: &Groups<'_>, order: __m512i, place: [usize; 2]) -> __m512 {
    let Some((dtype, at, shift)) = groups.stored::<16>(place) else {
        let floats = load_floats(&groups.of_blocks(place[0] * groups.blocks + 16 * place[1]));
        return _mm512_permutexvar_ps(order, floats);
    };
    let floats = match dtype {
        DType::F32 => _mm512_castsi512_ps(load(groups.scales.chunk(at, &mut [0; 64]))),
        DType::BF16 => {
            let halves = _mm512_cvtepu16_epi32(load_32(groups.scales.chunk(at, &mut [0; 32])));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
        }
        _ => _mm512_cvtph_ps(load_32(groups.scales.chunk(at, &mut [0; 32]))),
    };
    _mm512_permutexvar_ps(_mm512_srl_epi32(order, _mm_cvtsi32_si128(shift as i32)), floats)
}
