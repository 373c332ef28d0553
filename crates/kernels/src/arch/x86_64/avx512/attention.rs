//! Attention by AVX-512.

use super::simd::Avx512;
use super::{load_floats, store_floats};
use crate::LANES;
use crate::arch::generic::simd::operations;
use crate::attention::ahead::Ahead;
use crate::attention::passes::{self, Attend, COLUMNS};
use crate::attention::{Attention, KvElement, KvTile, Query, Scoring, TILE};
use crate::ops::exp;
use std::arch::x86_64::*;
use std::ops::Range;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(crate) fn attend<E: KvElement>(queries: &mut [Query<'_>], attention: &Attention<'_, E>) {
    // SAFETY: the function is compiled for the instruction sets.
    passes::attend(unsafe { <Avx512>::new() }, queries, attention);
}

/// Like [`attend`], for integers.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(crate) fn attend_by_vnni<E: KvElement>(queries: &mut [Query<'_>], attention: &Attention<'_, E>) {
    // SAFETY: the function is compiled for the instruction sets.
    passes::attend(unsafe { Avx512::<true>::new() }, queries, attention);
}

impl<const VNNI: bool> Attend for Avx512<VNNI> {
    const QUERIES: usize = 4;

    operations! {
        no_ints() -> __m512i = _mm512_setzero_si512();
        all_ints(x: i32) -> __m512i = _mm512_set1_epi32(x);
        add_pairs(sums: __m512i, a: __m512i, b: __m512i) -> __m512i = match VNNI {
            true => _mm512_dpwssd_epi32(sums, a, b),
            false => _mm512_add_epi32(sums, _mm512_madd_epi16(a, b)),
        };
        to_floats(ints: __m512i) -> __m512 = _mm512_cvtepi32_ps(ints);
    }

    #[inline(always)]
    unsafe fn load_pairs(self, at: *const u8) -> __m512i {
        // SAFETY: the caller guarantees it.
        unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(at.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bytes_apart(self, at: *const u8) -> __m512i {
        // SAFETY: the caller guarantees it.
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    fn weigh<E: KvElement, const Q: usize>(
        self,
        queries: &mut [Query<'_>],
        attention: &Attention<'_, E>,
        ahead: Ahead,
    ) -> ([[f32; TILE]; Q], [Option<f32>; Q]) {
        let Attention { tile: KvTile { keys, .. }, seen, scoring, .. } = attention;
        let sums = match seen.end.div_ceil(LANES) {
            1 => E::dots::<Self, Q, 1>(self, queries, keys, 0, ahead),
            2 => E::dots::<Self, Q, 2>(self, queries, keys, 0, ahead),
            3 => E::dots::<Self, Q, 3>(self, queries, keys, 0, ahead),
            _ => E::dots::<Self, Q, COLUMNS>(self, queries, keys, 0, ahead),
        };
        let (mut weights, mut rescale) = ([[0.0; TILE]; Q], [None; Q]);
        for (((weights, sums), query), rescale) in weights.iter_mut().zip(sums).zip(queries).zip(&mut rescale) {
            // SAFETY: the value proves the instruction sets.
            *rescale = unsafe { weigh(sums, seen, *scoring, query, weights) };
        }
        (weights, rescale)
    }
}

/// Like [`crate::attention::weigh`], from the products `dots` of a query and the keys of a tile, with the same bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn weigh(
    dots: [__m512; COLUMNS],
    seen: &Range<usize>,
    scoring: Scoring,
    query: &mut Query<'_>,
    weights: &mut [f32; TILE],
) -> Option<f32> {
    let none = _mm512_set1_ps(f32::NEG_INFINITY);
    let seen = u64::MAX >> (TILE - seen.end) & u64::MAX << seen.start;
    let mut scores = [none; COLUMNS];
    for i in 0..COLUMNS {
        let mut score = _mm512_mul_ps(dots[i], _mm512_set1_ps(scoring.scale));
        if scoring.cap.is_some() || query.slope.is_some() || query.bias.is_some() {
            let mut lanes = [0.0; LANES];
            store_floats(&mut lanes, score);
            scoring.finish::<true>(&mut lanes, i * LANES, query);
            score = load_floats(&lanes);
        }
        scores[i] = _mm512_mask_mov_ps(none, (seen >> (i * LANES)) as u16, score);
    }
    let [a, b, c, d] = scores;
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, b) | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(c, d);
    let max = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d)));
    let max = if nan != 0 || query.max.is_nan() { f32::NAN } else { max.max(query.max) };
    if max == f32::NEG_INFINITY {
        return None;
    }
    let rescale = exp_below_zero(_mm512_set1_ps(query.max - max));
    let mut lanes = _mm512_setzero_ps();
    for (score, weights) in scores.into_iter().zip(weights.as_chunks_mut().0) {
        let weight = exp_below_zero(_mm512_sub_ps(score, _mm512_set1_ps(max)));
        store_floats(weights, weight);
        lanes = _mm512_add_ps(lanes, weight);
    }
    query.max = max;
    let sums = _mm512_mul_ps(load_floats(&query.sums), rescale);
    store_floats(&mut query.sums, _mm512_add_ps(sums, lanes));
    Some(_mm512_cvtss_f32(rescale))
}

/// Like [`exp::exp`] with fused operations for `x` up to 0, with the same bits: its products by powers of two are exact.
#[inline]
#[target_feature(enable = "avx512f")]
fn exp_below_zero(x: __m512) -> __m512 {
    let all = |x: f32| _mm512_set1_ps(x);
    let n = _mm512_sub_ps(_mm512_fmadd_ps(x, all(std::f32::consts::LOG2_E), all(exp::ROUND)), all(exp::ROUND));
    let r = _mm512_fmadd_ps(n, all(-exp::LN_2_LOW), _mm512_fmadd_ps(n, all(-exp::LN_2_HIGH), x));
    let mut series = all(exp::SERIES[0]);
    for &factor in &exp::SERIES[1..] {
        series = _mm512_fmadd_ps(series, r, all(factor));
    }
    let e_r = _mm512_add_ps(all(1.0), _mm512_fmadd_ps(_mm512_mul_ps(r, r), series, r));
    // NaN is not less than anything.
    let above = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, all(exp::LOWEST));
    _mm512_maskz_scalef_ps(above, e_r, n)
}
