//! Attention by AVX-512: up to four queries at a time share every key and value that is loaded.

#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // queries, keys and vectors are indices of several arrays

use super::ahead::Ahead;
use super::{Element, LANES, Query, TILE, Tile};
use crate::kernels::avx512::{load_floats, mask_16, store_floats};
use crate::kernels::exp;
use half::f16;
use std::arch::x86_64::*;
use std::ops::Range;

/// Vectors of a tile's positions.
const WIDE: usize = TILE / LANES;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) fn attend<E: Element>(
    queries: &mut [Query<'_>],
    tile: Tile<'_, E>,
    seen: Range<usize>,
    then: Option<Tile<'_, E>>,
    scale: f32,
) {
    if queries[0].q.len().is_multiple_of(LANES) {
        attend_heads::<E, true>(queries, tile, seen, then, scale);
    } else {
        attend_heads::<E, false>(queries, tile, seen, then, scale);
    }
}

/// `WHOLE`: heads are whole vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn attend_heads<E: Element, const WHOLE: bool>(
    queries: &mut [Query<'_>],
    tile: Tile<'_, E>,
    seen: Range<usize>,
    then: Option<Tile<'_, E>>,
    scale: f32,
) {
    let head_dim = queries[0].q.len();
    let passes = queries.len() / 4 + [0, 1, 1, 2][queries.len() % 4];
    let mut rest = queries;
    for pass in 0..passes {
        let some = rest.len().min(4);
        let (queries, others) = rest.split_at_mut(some - usize::from(some == 3));
        rest = others;
        let steps = [head_dim, value_steps(head_dim)];
        let ahead = std::array::from_fn(|i| Ahead::of(tile, then, passes, 2 * pass + i, steps[i]));
        match queries.len() {
            1 => some_queries::<E, WHOLE, 1>(queries, tile, &seen, ahead, scale),
            2 => some_queries::<E, WHOLE, 2>(queries, tile, &seen, ahead, scale),
            _ => some_queries::<E, WHOLE, 4>(queries, tile, &seen, ahead, scale),
        }
    }
}

/// A tile for `Q` queries, while the loops over keys and values ask for what is `ahead`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn some_queries<E: Element, const WHOLE: bool, const Q: usize>(
    queries: &mut [Query<'_>],
    tile: Tile<'_, E>,
    seen: &Range<usize>,
    [beside_keys, beside_values]: [Ahead; 2],
    scale: f32,
) {
    let sums = match seen.end.div_ceil(LANES) {
        1 => dots::<E, Q, 1>(queries, tile.keys, beside_keys),
        2 => dots::<E, Q, 2>(queries, tile.keys, beside_keys),
        3 => dots::<E, Q, 3>(queries, tile.keys, beside_keys),
        _ => dots::<E, Q, WIDE>(queries, tile.keys, beside_keys),
    };
    let mut scores = [[0.0; TILE]; Q];
    let mut rescale = [None; Q];
    for (((scores, sums), query), rescale) in scores.iter_mut().zip(sums).zip(&mut *queries).zip(&mut rescale) {
        *rescale = weigh(sums, seen, scale, query, scores);
    }
    if rescale.iter().all(Option::is_some) {
        let rescale = rescale.map(Option::unwrap_or_default);
        return add_values::<E, WHOLE, Q>(&scores, tile.values, seen, &rescale, beside_values, queries);
    }
    // Where there is nothing to add the weights are 0, but a value may be no number.
    for ((scores, query), rescale) in scores.iter().zip(queries).zip(rescale) {
        if let Some(rescale) = rescale {
            let (scores, query) = (std::array::from_ref(scores), std::slice::from_mut(query));
            add_values::<E, WHOLE, 1>(scores, tile.values, seen, &[rescale], Ahead::NOTHING, query);
        }
    }
}

/// 16 elements, or those before the end with zeros after them.
///
/// # Safety
/// 16 elements can be read if `WHOLE`, else `left` or 16, whichever is less.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load_f32<const WHOLE: bool>(at: *const f32, left: usize) -> __m512 {
    if WHOLE {
        // SAFETY: the caller's.
        return unsafe { _mm512_loadu_ps(at) };
    }
    // SAFETY: the caller's; what the mask leaves out is not read.
    unsafe { _mm512_maskz_loadu_ps(mask_16(left), at) }
}

/// As [`load_f32`], widened.
///
/// # Safety
/// As [`load_f32`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn load_f16<const WHOLE: bool>(at: *const f16, left: usize) -> __m512 {
    let halves = if WHOLE {
        // SAFETY: the caller's.
        unsafe { _mm256_loadu_si256(at.cast()) }
    } else {
        // SAFETY: the caller's; what the mask leaves out is not read.
        unsafe { _mm256_maskz_loadu_epi16(mask_16(left), at.cast()) }
    };
    _mm512_cvtph_ps(halves)
}

/// The products of queries and the first `N` vectors of keys.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn dots<E: Element, const Q: usize, const N: usize>(
    queries: &[Query<'_>],
    keys: &[E],
    ahead: Ahead,
) -> [[__m512; WIDE]; Q] {
    let head_dim = queries[0].q.len();
    let q: [&[f32]; Q] = std::array::from_fn(|i| &queries[i].q[..head_dim]);
    let mut sums = [[_mm512_setzero_ps(); WIDE]; Q];
    for (d, keys) in keys.as_chunks::<TILE>().0[..head_dim].iter().enumerate() {
        ahead.ask(d);
        // SAFETY: `j < N`, which is `WIDE` at most.
        let keys =
            std::array::from_fn::<_, N, _>(|j| unsafe { E::load_16::<true>(keys.as_ptr().add(j * LANES), LANES) });
        for i in 0..Q {
            let x = _mm512_set1_ps(q[i][d]);
            for j in 0..N {
                sums[i][j] = _mm512_fmadd_ps(x, keys[j], sums[i][j]);
            }
        }
    }
    sums
}

/// As [`super::weigh`], from the products `dots` of a query and the keys of a tile, with the same bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn weigh(
    dots: [__m512; WIDE],
    seen: &Range<usize>,
    scale: f32,
    query: &mut Query<'_>,
    weights: &mut [f32; TILE],
) -> Option<f32> {
    let none = _mm512_set1_ps(f32::NEG_INFINITY);
    let seen = u64::MAX >> (TILE - seen.end) & u64::MAX << seen.start;
    let mut scores = [none; WIDE];
    for i in 0..WIDE {
        scores[i] = _mm512_mask_mul_ps(none, (seen >> (i * LANES)) as u16, dots[i], _mm512_set1_ps(scale));
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

/// As [`exp::exp`] by fused operations for `x` up to 0, with the same bits: one rounding at the end here, and there of two
/// the first is exact.
#[inline]
#[target_feature(enable = "avx512f")]
fn exp_below_zero(x: __m512) -> __m512 {
    let all = |x: f32| _mm512_set1_ps(x);
    // The second operand, if one is no number.
    let x = _mm512_max_ps(all(exp::LOWEST), x);
    let n = _mm512_sub_ps(_mm512_fmadd_ps(x, all(std::f32::consts::LOG2_E), all(exp::ROUND)), all(exp::ROUND));
    let r = _mm512_fmadd_ps(n, all(-exp::LN_2_LOW), _mm512_fmadd_ps(n, all(-exp::LN_2_HIGH), x));
    let mut series = all(exp::SERIES[0]);
    for &factor in &exp::SERIES[1..] {
        series = _mm512_fmadd_ps(series, r, all(factor));
    }
    let e_r = _mm512_add_ps(all(1.0), _mm512_fmadd_ps(_mm512_mul_ps(r, r), series, r));
    _mm512_scalef_ps(e_r, n)
}

/// Vectors of a value that are added at a time, while there are as many.
const COLUMNS: usize = 4;

/// Steps of the loops over the values of a tile.
fn value_steps(head_dim: usize) -> usize {
    let vectors = head_dim.div_ceil(LANES);
    let whole = head_dim / (COLUMNS * LANES);
    (whole + vectors - whole * COLUMNS) * TILE
}

/// `out = rescale * out + sum over seen i of weights[i] * values[i]` for `Q` queries, in the order of the values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn add_values<E: Element, const WHOLE: bool, const Q: usize>(
    weights: &[[f32; TILE]; Q],
    values: &[E],
    seen: &Range<usize>,
    rescale: &[f32; Q],
    mut ahead: Ahead,
    queries: &mut [Query<'_>],
) {
    let head_dim = queries[0].out.len();
    let mut at = 0;
    while at < head_dim {
        let left = head_dim - at;
        if left >= COLUMNS * LANES {
            add_columns::<E, true, Q, COLUMNS>(weights, values, seen, rescale, at, left, ahead, queries);
            at += COLUMNS * LANES;
        } else {
            add_columns::<E, WHOLE, Q, 1>(weights, values, seen, rescale, at, left, ahead, queries);
            at += LANES;
        }
        ahead = ahead.after(TILE);
    }
}

/// The `WIDE` vectors from element `at` on, of which `left` elements are there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[allow(clippy::too_many_arguments)] // the loop needs them all
fn add_columns<E: Element, const WHOLE: bool, const Q: usize, const WIDE: usize>(
    weights: &[[f32; TILE]; Q],
    values: &[E],
    seen: &Range<usize>,
    rescale: &[f32; Q],
    at: usize,
    left: usize,
    ahead: Ahead,
    queries: &mut [Query<'_>],
) {
    let head_dim = at + left;
    assert!(seen.end <= TILE && values.len() >= TILE * head_dim);
    assert!((!WHOLE || left >= WIDE * LANES) && (WHOLE || WIDE == 1));
    let mut sums = [[_mm512_setzero_ps(); WIDE]; Q];
    for i in 0..Q {
        let out = &queries[i].out[at..head_dim];
        for j in 0..WIDE {
            // SAFETY: `left` elements are there, `WIDE` vectors if whole.
            let out = unsafe { load_f32::<WHOLE>(out.as_ptr().add(j * LANES), left) };
            sums[i][j] = _mm512_mul_ps(out, _mm512_set1_ps(rescale[i]));
        }
    }
    for key in seen.clone() {
        ahead.ask(key);
        let mut value = [_mm512_setzero_ps(); WIDE];
        for j in 0..WIDE {
            // SAFETY: as above, in row `key` of the tile.
            value[j] = unsafe { E::load_16::<WHOLE>(values.as_ptr().add(key * head_dim + at + j * LANES), left) };
        }
        for i in 0..Q {
            let weight = _mm512_set1_ps(weights[i][key]);
            for j in 0..WIDE {
                sums[i][j] = _mm512_fmadd_ps(weight, value[j], sums[i][j]);
            }
        }
    }
    for i in 0..Q {
        let out = &mut queries[i].out[at..head_dim];
        for j in 0..WIDE {
            let mask = mask_16(out.len() - j * LANES);
            // SAFETY: the mask keeps the store inside.
            unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr().add(j * LANES), mask, sums[i][j]) };
        }
    }
}
