//! Attention by AVX2: two queries at a time share every key and value that is loaded. The same bits as by AVX-512.

#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // queries, keys and vectors are indices of several arrays

use super::ahead::Ahead;
use super::{Element, LANES, Query, TILE, Tile, weigh};
use crate::kernels::avx2::store_floats;
use half::f16;
use std::arch::x86_64::*;
use std::ops::Range;

#[target_feature(enable = "avx2,fma,f16c")]
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
#[target_feature(enable = "avx2,fma,f16c")]
fn attend_heads<E: Element, const WHOLE: bool>(
    queries: &mut [Query<'_>],
    tile: Tile<'_, E>,
    seen: Range<usize>,
    then: Option<Tile<'_, E>>,
    scale: f32,
) {
    let head_dim = queries[0].q.len();
    let passes = queries.len().div_ceil(2);
    for (pass, queries) in queries.chunks_mut(2).enumerate() {
        let steps = [PARTS * head_dim, value_steps(head_dim)];
        let ahead = std::array::from_fn(|i| Ahead::of(tile, then, passes, 2 * pass + i, steps[i]));
        match queries.len() {
            1 => some_queries::<E, WHOLE, 1>(queries, tile, &seen, ahead, scale),
            _ => some_queries::<E, WHOLE, 2>(queries, tile, &seen, ahead, scale),
        }
    }
}

/// A tile for `Q` queries, while the loops over keys and values ask for what is `ahead`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn some_queries<E: Element, const WHOLE: bool, const Q: usize>(
    queries: &mut [Query<'_>],
    tile: Tile<'_, E>,
    seen: &Range<usize>,
    [beside_keys, beside_values]: [Ahead; 2],
    scale: f32,
) {
    let mut scores = score::<E, Q>(queries, tile.keys, beside_keys, scale);
    let mut rescale = [None; Q];
    for ((scores, query), rescale) in scores.iter_mut().zip(&mut *queries).zip(&mut rescale) {
        *rescale = weigh::<true>(scores, seen, query);
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

/// Half the lanes.
const HALF: usize = LANES / 2;

/// The mask of the first `left` of 8 elements.
#[inline]
#[target_feature(enable = "avx2")]
fn mask(left: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(left.min(HALF) as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

/// 8 elements, or those before the end with zeros after them.
///
/// # Safety
/// 8 elements can be read if `WHOLE`, else `left` or 8, whichever is less.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn load_f32<const WHOLE: bool>(at: *const f32, left: usize) -> __m256 {
    if WHOLE {
        // SAFETY: the caller's.
        return unsafe { _mm256_loadu_ps(at) };
    }
    // SAFETY: the caller's; what the mask leaves out is not read.
    unsafe { _mm256_maskload_ps(at, mask(left)) }
}

/// As [`load_f32`], widened.
///
/// # Safety
/// As [`load_f32`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn load_f16<const WHOLE: bool>(at: *const f16, left: usize) -> __m256 {
    let mut halves = [f16::ZERO; HALF];
    let at = if WHOLE {
        at
    } else {
        // SAFETY: the caller's: so many can be read, and they are no part of a local array.
        unsafe { std::ptr::copy_nonoverlapping(at, halves.as_mut_ptr(), left.min(HALF)) };
        halves.as_ptr()
    };
    // SAFETY: 8 elements are at `at` by now.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
}

/// Vectors of keys whose sums are in registers, and of a value that are added at a time, while there are as many.
const COLUMNS: usize = 4;

/// Loops over the keys of a tile.
const PARTS: usize = TILE / (COLUMNS * HALF);

/// Steps of the loops over the values of a tile.
fn value_steps(head_dim: usize) -> usize {
    let vectors = head_dim.div_ceil(HALF);
    let whole = head_dim / (COLUMNS * HALF);
    (whole + vectors - whole * COLUMNS) * TILE
}

/// The scores of all keys.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn score<E: Element, const Q: usize>(queries: &[Query<'_>], keys: &[E], ahead: Ahead, scale: f32) -> [[f32; TILE]; Q] {
    let head_dim = queries[0].q.len();
    let q: [&[f32]; Q] = std::array::from_fn(|i| &queries[i].q[..head_dim]);
    let mut scores = [[0.0; TILE]; Q];
    for part in 0..PARTS {
        let mut sums = [[_mm256_setzero_ps(); COLUMNS]; Q];
        let ahead = ahead.after(part * head_dim);
        for (d, keys) in keys.as_chunks::<TILE>().0[..head_dim].iter().enumerate() {
            ahead.ask(d);
            let keys = keys[part * COLUMNS * HALF..].as_chunks::<HALF>().0;
            for j in 0..COLUMNS {
                // SAFETY: a chunk is 8 elements.
                let keys = unsafe { E::load_8::<true>(keys[j].as_ptr(), HALF) };
                for i in 0..Q {
                    sums[i][j] = _mm256_fmadd_ps(_mm256_set1_ps(q[i][d]), keys, sums[i][j]);
                }
            }
        }
        for (scores, sums) in scores.iter_mut().zip(sums) {
            let scores = scores[part * COLUMNS * HALF..].as_chunks_mut().0;
            for (scores, sums) in scores.iter_mut().zip(sums) {
                store_floats(scores, _mm256_mul_ps(sums, _mm256_set1_ps(scale)));
            }
        }
    }
    scores
}

/// `out = rescale * out + sum over seen i of weights[i] * values[i]` for `Q` queries, in the order of the values.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
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
        if left >= COLUMNS * HALF {
            add_columns::<E, true, Q, COLUMNS>(weights, values, seen, rescale, at, left, ahead, queries);
            at += COLUMNS * HALF;
        } else {
            add_columns::<E, WHOLE, Q, 1>(weights, values, seen, rescale, at, left, ahead, queries);
            at += HALF;
        }
        ahead = ahead.after(TILE);
    }
}

/// The `WIDE` vectors from element `at` on, of which `left` elements are there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
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
    assert!((!WHOLE || left >= WIDE * HALF) && (WHOLE || WIDE == 1));
    let mut sums = [[_mm256_setzero_ps(); WIDE]; Q];
    for i in 0..Q {
        let out = &queries[i].out[at..head_dim];
        for j in 0..WIDE {
            // SAFETY: `left` elements are there, `WIDE` vectors if whole.
            let out = unsafe { load_f32::<WHOLE>(out.as_ptr().add(j * HALF), left) };
            sums[i][j] = _mm256_mul_ps(out, _mm256_set1_ps(rescale[i]));
        }
    }
    for key in seen.clone() {
        ahead.ask(key);
        let mut value = [_mm256_setzero_ps(); WIDE];
        for j in 0..WIDE {
            // SAFETY: as above, in row `key` of the tile.
            value[j] = unsafe { E::load_8::<WHOLE>(values.as_ptr().add(key * head_dim + at + j * HALF), left) };
        }
        for i in 0..Q {
            let weight = _mm256_set1_ps(weights[i][key]);
            for j in 0..WIDE {
                sums[i][j] = _mm256_fmadd_ps(weight, value[j], sums[i][j]);
            }
        }
    }
    for i in 0..Q {
        let out = &mut queries[i].out[at..head_dim];
        for j in 0..WIDE {
            let mask = mask(out.len() - j * HALF);
            // SAFETY: the mask keeps the store inside.
            unsafe { _mm256_maskstore_ps(out.as_mut_ptr().add(j * HALF), mask, sums[i][j]) };
        }
    }
}
