//! Attention in vectors of one width: some queries at a time share every key and value that is loaded.

#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // queries, keys and vectors are indices of several arrays

use super::ahead::Ahead;
use super::{Element, KvTile, LANES, Query, TILE};
use crate::kernels::simd::Simd;
use std::ops::Range;

/// Vectors of keys whose sums are in registers, and of a value that are added at a time, while there are as many.
pub(super) const COLUMNS: usize = 4;

/// What differs from width to width.
pub(super) trait Attend: Simd {
    /// The most queries at a time.
    const QUERIES: usize;
    /// Loops over the keys of a tile.
    const PARTS: usize = TILE / (COLUMNS * Self::LANES);

    /// The weights of all positions of a tile, 0 for those that are not seen, while the loops over the keys ask for what is
    /// ahead. Brings the queries to their new maxima, and gives the factors by which their `out` is to be multiplied before
    /// values are added; none where there is nothing to add.
    fn weigh<E: Element, const Q: usize>(
        self,
        queries: &mut [Query<'_>],
        keys: &[E],
        seen: &Range<usize>,
        ahead: Ahead,
        scale: f32,
    ) -> ([[f32; TILE]; Q], [Option<f32>; Q]);
}

/// As [`super::attend`].
#[inline(always)]
pub(super) fn attend<S: Attend, E: Element>(
    simd: S,
    queries: &mut [Query<'_>],
    tile: KvTile<'_, E>,
    seen: &Range<usize>,
    then: Option<KvTile<'_, E>>,
    scale: f32,
) {
    if queries[0].q.len().is_multiple_of(LANES) {
        attend_heads::<S, E, true>(simd, queries, tile, seen, then, scale);
    } else {
        attend_heads::<S, E, false>(simd, queries, tile, seen, then, scale);
    }
}

/// How many of the queries that are left make a pass: three are two and one.
fn together<S: Attend>(left: usize) -> usize {
    if left == 3 { 2 } else { left.min(S::QUERIES) }
}

/// `WHOLE`: heads are whole vectors.
#[inline(always)]
fn attend_heads<S: Attend, E: Element, const WHOLE: bool>(
    simd: S,
    queries: &mut [Query<'_>],
    tile: KvTile<'_, E>,
    seen: &Range<usize>,
    then: Option<KvTile<'_, E>>,
    scale: f32,
) {
    let head_dim = queries[0].q.len();
    let steps = [S::PARTS * head_dim, value_steps::<S>(head_dim)];
    let (mut passes, mut left) = (0, queries.len());
    while left > 0 {
        left -= together::<S>(left);
        passes += 1;
    }
    let mut rest = queries;
    for pass in 0..passes {
        let (queries, others) = rest.split_at_mut(together::<S>(rest.len()));
        rest = others;
        let ahead = std::array::from_fn(|i| Ahead::of(tile, then, passes, 2 * pass + i, steps[i]));
        match queries.len() {
            1 => some_queries::<S, E, WHOLE, 1>(simd, queries, tile, seen, ahead, scale),
            2 => some_queries::<S, E, WHOLE, 2>(simd, queries, tile, seen, ahead, scale),
            _ if S::QUERIES > 2 => some_queries::<S, E, WHOLE, 4>(simd, queries, tile, seen, ahead, scale),
            _ => unreachable!("two queries at a time"),
        }
    }
}

/// A tile for `Q` queries, while the loops over keys and values ask for what is `ahead`.
#[inline(always)]
fn some_queries<S: Attend, E: Element, const WHOLE: bool, const Q: usize>(
    simd: S,
    queries: &mut [Query<'_>],
    tile: KvTile<'_, E>,
    seen: &Range<usize>,
    [beside_keys, beside_values]: [Ahead; 2],
    scale: f32,
) {
    let (weights, rescale) = simd.weigh::<E, Q>(queries, tile.keys, seen, beside_keys, scale);
    if rescale.iter().all(Option::is_some) {
        let rescale = rescale.map(Option::unwrap_or_default);
        return add_values::<S, E, WHOLE, Q>(simd, &weights, tile.values, seen, &rescale, beside_values, queries);
    }
    // Where there is nothing to add the weights are 0, but a value may be NaN.
    for ((weights, query), rescale) in weights.iter().zip(queries).zip(rescale) {
        if let Some(rescale) = rescale {
            let (weights, query) = (std::array::from_ref(weights), std::slice::from_mut(query));
            add_values::<S, E, WHOLE, 1>(simd, weights, tile.values, seen, &[rescale], Ahead::NOTHING, query);
        }
    }
}

/// The products of queries and the first `N` vectors of part `part` of the keys.
#[inline(always)]
pub(super) fn dots<S: Attend, E: Element, const Q: usize, const N: usize>(
    simd: S,
    queries: &[Query<'_>],
    keys: &[E],
    part: usize,
    ahead: Ahead,
) -> [[S::Floats; COLUMNS]; Q] {
    let head_dim = queries[0].q.len();
    let mut q: [&[f32]; Q] = [&[]; Q];
    for i in 0..Q {
        q[i] = &queries[i].q[..head_dim];
    }
    let mut sums = [[simd.all(0.0); COLUMNS]; Q];
    for (d, keys) in keys.as_chunks::<TILE>().0[..head_dim].iter().enumerate() {
        ahead.ask(d);
        let mut vectors = [simd.all(0.0); N];
        for j in 0..N {
            // SAFETY: `part < PARTS` and `j < N`, which is `COLUMNS` at most.
            vectors[j] =
                unsafe { E::load::<S, true>(simd, keys[(part * COLUMNS + j) * S::LANES..].as_ptr(), S::LANES) };
        }
        for i in 0..Q {
            let x = simd.all(q[i][d]);
            for j in 0..N {
                sums[i][j] = simd.mul_add(x, vectors[j], sums[i][j]);
            }
        }
    }
    sums
}

/// Steps of the loops over the values of a tile.
fn value_steps<S: Attend>(head_dim: usize) -> usize {
    let vectors = head_dim.div_ceil(S::LANES);
    let whole = head_dim / (COLUMNS * S::LANES);
    (whole + vectors - whole * COLUMNS) * TILE
}

/// `out = rescale * out + sum over seen i of weights[i] * values[i]` for `Q` queries, in the order of the values.
#[inline(always)]
fn add_values<S: Attend, E: Element, const WHOLE: bool, const Q: usize>(
    simd: S,
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
        if left >= COLUMNS * S::LANES {
            add_columns::<S, E, true, Q, COLUMNS>(simd, weights, values, seen, rescale, at, left, ahead, queries);
            at += COLUMNS * S::LANES;
        } else {
            add_columns::<S, E, WHOLE, Q, 1>(simd, weights, values, seen, rescale, at, left, ahead, queries);
            at += S::LANES;
        }
        ahead = ahead.after(TILE);
    }
}

/// The `WIDE` vectors from element `at` on, of which `left` elements are there.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // the loop needs them all
fn add_columns<S: Attend, E: Element, const WHOLE: bool, const Q: usize, const WIDE: usize>(
    simd: S,
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
    assert!((!WHOLE || left >= WIDE * S::LANES) && (WHOLE || WIDE == 1));
    let mut sums = [[simd.all(0.0); WIDE]; Q];
    for i in 0..Q {
        let out = &queries[i].out[at..head_dim];
        for j in 0..WIDE {
            // SAFETY: `left` elements are there, `WIDE` vectors if whole.
            let out = unsafe { simd.load::<WHOLE>(out.as_ptr().add(j * S::LANES), left) };
            sums[i][j] = simd.mul(out, simd.all(rescale[i]));
        }
    }
    for key in seen.clone() {
        ahead.ask(key);
        let mut value = [simd.all(0.0); WIDE];
        for j in 0..WIDE {
            // SAFETY: as above, in row `key` of the tile.
            value[j] =
                unsafe { E::load::<S, WHOLE>(simd, values.as_ptr().add(key * head_dim + at + j * S::LANES), left) };
        }
        for i in 0..Q {
            let weight = simd.all(weights[i][key]);
            for j in 0..WIDE {
                sums[i][j] = simd.mul_add(weight, value[j], sums[i][j]);
            }
        }
    }
    for i in 0..Q {
        let out = &mut queries[i].out[at..head_dim];
        for j in 0..WIDE {
            // SAFETY: the store stays inside.
            unsafe { simd.store(out.as_mut_ptr().add(j * S::LANES), out.len() - j * S::LANES, sums[i][j]) };
        }
    }
}
