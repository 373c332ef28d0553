//! Attention by AVX-512: up to four queries at a time share every key and value that is loaded.

#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // queries, keys and vectors are indices of several arrays

use super::{Element, LANES, Softmax, TILE, Tile, weigh};
use crate::kernels::avx512::{mask_16, store_floats, sum_sixteen};
use half::f16;
use std::arch::x86_64::*;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) fn attend<E: Element>(q: &[f32], tile: Tile<'_, E>, scale: f32, states: &mut [Softmax<'_>]) {
    if (q.len() / states.len()).is_multiple_of(LANES) {
        attend_heads::<E, true>(q, tile, scale, states);
    } else {
        attend_heads::<E, false>(q, tile, scale, states);
    }
}

/// `WHOLE`: heads are whole vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn attend_heads<E: Element, const WHOLE: bool>(
    q: &[f32],
    mut tile: Tile<'_, E>,
    scale: f32,
    states: &mut [Softmax<'_>],
) {
    let head_dim = q.len() / states.len();
    let mut first = 0;
    while first < states.len() {
        let (q, states) = (&q[first * head_dim..], &mut states[first..]);
        first += match states.len() {
            1 => some_queries::<E, WHOLE, 1, 16>(q, tile, scale, states),
            2 | 3 => some_queries::<E, WHOLE, 2, 8>(q, tile, scale, states),
            _ => some_queries::<E, WHOLE, 4, 4>(q, tile, scale, states),
        };
        // Once is enough.
        tile.ahead = None;
    }
}

/// A tile for the first `Q` queries, `KEYS = 16 / Q` keys at a time; gives `Q` back.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn some_queries<E: Element, const WHOLE: bool, const Q: usize, const KEYS: usize>(
    q: &[f32],
    tile: Tile<'_, E>,
    scale: f32,
    states: &mut [Softmax<'_>],
) -> usize {
    let Tile { keys, values, .. } = tile;
    let head_dim = states[0].out.len();
    let mut scores = [[f32::NEG_INFINITY; TILE]; Q];
    let n = keys.len() / head_dim;
    for first in (0..n).step_by(KEYS) {
        tile.ask_ahead(first * head_dim, KEYS * head_dim);
        score::<E, WHOLE, Q, KEYS>(&q[..Q * head_dim], &keys[first * head_dim..], scale, first, &mut scores);
    }
    let mut all = true;
    for (scores, state) in scores.iter_mut().zip(&mut *states) {
        if !weigh(scores, state) {
            // Nothing to add: the weights are 0, but a value may be no number.
            all = false;
        }
    }
    if all {
        add_values::<E, WHOLE, Q>(&scores, values, states);
        return Q;
    }
    for (scores, state) in scores.iter().zip(states) {
        if state.max != f32::NEG_INFINITY {
            add_values::<E, WHOLE, 1>(std::array::from_ref(scores), values, std::slice::from_mut(state));
        }
    }
    Q
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

/// The scores of up to `KEYS` keys, the first of which is number `first` of the tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn score<E: Element, const WHOLE: bool, const Q: usize, const KEYS: usize>(
    q: &[f32],
    keys: &[E],
    scale: f32,
    first: usize,
    scores: &mut [[f32; TILE]; Q],
) {
    const { assert!(Q * KEYS == LANES) };
    let head_dim = q.len() / Q;
    let n = KEYS.min(keys.len() / head_dim);
    assert!(n > 0);
    // So many keys always: the last stands in for those that are not there.
    let mut rows = [0; KEYS];
    rows.iter_mut().enumerate().for_each(|(i, row)| *row = i.min(n - 1) * head_dim);
    let mut sums = [_mm512_setzero_ps(); LANES];
    for at in (0..head_dim).step_by(LANES) {
        let left = head_dim - at;
        let mut x = [_mm512_setzero_ps(); Q];
        for i in 0..Q {
            // SAFETY: `at < head_dim`, and there are `Q` queries.
            x[i] = unsafe { load_f32::<WHOLE>(q.as_ptr().add(i * head_dim + at), left) };
        }
        for j in 0..KEYS {
            // SAFETY: as above, in row `rows[j]` of the keys.
            let key = unsafe { E::load_16::<WHOLE>(keys.as_ptr().add(rows[j] + at), left) };
            for i in 0..Q {
                sums[i * KEYS + j] = _mm512_fmadd_ps(x[i], key, sums[i * KEYS + j]);
            }
        }
    }
    let mut dots = [0.0; LANES];
    store_floats(&mut dots, _mm512_mul_ps(sum_sixteen(sums), _mm512_set1_ps(scale)));
    for (scores, dots) in scores.iter_mut().zip(dots.as_chunks_mut::<KEYS>().0) {
        if n < KEYS {
            dots[n..].fill(f32::NEG_INFINITY);
        }
        scores[first..first + KEYS].copy_from_slice(dots);
    }
}

/// `out += sum over i of weights[i] * values[i]` for `Q` queries, in the order of the values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn add_values<E: Element, const WHOLE: bool, const Q: usize>(
    weights: &[[f32; TILE]; Q],
    values: &[E],
    states: &mut [Softmax<'_>],
) {
    const WIDE: usize = 4;
    let head_dim = states[0].out.len();
    let n = values.len() / head_dim;
    let mut at = 0;
    while at < head_dim {
        // Four vectors at a time while there are as many.
        let wide = if head_dim - at >= WIDE * LANES { WIDE } else { 1 };
        let left = head_dim - at;
        if wide == WIDE {
            add_columns::<E, true, Q, WIDE>(weights, values, n, at, left, states);
        } else {
            add_columns::<E, WHOLE, Q, 1>(weights, values, n, at, left, states);
        }
        at += wide * LANES;
    }
}

/// The `WIDE` vectors from element `at` on, of which `left` elements are there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn add_columns<E: Element, const WHOLE: bool, const Q: usize, const WIDE: usize>(
    weights: &[[f32; TILE]; Q],
    values: &[E],
    n: usize,
    at: usize,
    left: usize,
    states: &mut [Softmax<'_>],
) {
    let head_dim = at + left;
    assert!(n <= TILE && values.len() >= n * head_dim && (!WHOLE || left >= WIDE * LANES) && (WHOLE || WIDE == 1));
    let mut sums = [[_mm512_setzero_ps(); WIDE]; Q];
    for i in 0..Q {
        let out = &states[i].out[at..head_dim];
        for j in 0..WIDE {
            // SAFETY: `left` elements are there, `WIDE` vectors if whole.
            sums[i][j] = unsafe { load_f32::<WHOLE>(out.as_ptr().add(j * LANES), left) };
        }
    }
    for key in 0..n {
        let mut value = [_mm512_setzero_ps(); WIDE];
        for j in 0..WIDE {
            // SAFETY: as above, in row `key` of `n`.
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
        let out = &mut states[i].out[at..head_dim];
        for j in 0..WIDE {
            let mask = mask_16(out.len() - j * LANES);
            // SAFETY: the mask keeps the store inside.
            unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr().add(j * LANES), mask, sums[i][j]) };
        }
    }
}
