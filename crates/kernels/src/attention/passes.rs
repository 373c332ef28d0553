//! Attention in vectors of one width: some queries at a time share every key and value that is loaded.

#![allow(unsafe_code)]

use super::ahead::Ahead;
use super::{KvElement, KvTile, LANES, Query, Scoring, TILE};
use crate::arch::generic::simd::Simd;
use std::ops::Range;

/// Vectors of keys whose sums are in registers, and of a value that are added at a time, while there are as many.
pub(crate) const COLUMNS: usize = 4;

/// What differs from width to width.
pub trait Attend: Simd {
    /// The most queries at a time.
    const QUERIES: usize;
    /// Loops over the keys of a tile.
    const PARTS: usize = TILE / (COLUMNS * Self::LANES);

    /// Zeros.
    fn no_ints(self) -> Self::Bits;

    /// `x` in all lanes.
    fn all_ints(self, x: i32) -> Self::Bits;

    /// Two signed bytes a lane, as words.
    ///
    /// # Safety
    /// So many bytes can be read.
    unsafe fn load_pairs(self, at: *const u8) -> Self::Bits;

    /// A signed byte a lane, as an integer.
    ///
    /// # Safety
    /// So many bytes can be read.
    unsafe fn load_bytes_apart(self, at: *const u8) -> Self::Bits;

    /// `sums` + the product of the low words + the product of the high words of `a` and `b`.
    fn add_pairs(self, sums: Self::Bits, a: Self::Bits, b: Self::Bits) -> Self::Bits;

    /// Rounded to the nearest, ties to even.
    fn to_floats(self, ints: Self::Bits) -> Self::Floats;

    /// The weights of all positions of a tile, 0 for those that are not seen, while the loops over the keys ask for what is
    /// ahead. Brings the queries to their new maxima, and gives the factors by which their `out` is to be multiplied before
    /// values are added; none where there is nothing to add.
    fn weigh<E: KvElement, const Q: usize>(
        self,
        queries: &mut [Query<'_>],
        keys: &[E],
        seen: &Range<usize>,
        ahead: Ahead,
        scoring: Scoring,
    ) -> ([[f32; TILE]; Q], [Option<f32>; Q]);
}

/// Operations by instructions that the value is the proof of.
macro_rules! integers {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty = $operation:expr;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $type),*) -> $result {
                // SAFETY: the value is the proof.
                unsafe { $operation }
            }
        )*
    };
}
pub(crate) use integers;

/// As [`Attend::weigh`], for vectors of which a part of the keys has several: scores go through memory.
#[inline(always)]
pub(crate) fn weigh_by_parts<S: Attend, E: KvElement, const Q: usize>(
    simd: S,
    queries: &mut [Query<'_>],
    keys: &[E],
    seen: &Range<usize>,
    ahead: Ahead,
    scoring: Scoring,
) -> ([[f32; TILE]; Q], [Option<f32>; Q]) {
    let mut weights = [[0.0; TILE]; Q];
    for part in 0..S::PARTS {
        let steps = E::steps::<S>(queries[0].q.len())[0];
        let sums = E::dots::<S, Q, COLUMNS>(simd, queries, keys, part, ahead.after(part * steps));
        for (weights, sums) in weights.iter_mut().zip(sums) {
            let weights = weights[part * COLUMNS * S::LANES..].chunks_exact_mut(S::LANES);
            for (weights, sums) in weights.zip(sums) {
                // SAFETY: the chunk has room for a vector.
                unsafe { simd.store_all(weights.as_mut_ptr(), simd.mul(sums, simd.all(scoring.scale))) };
            }
        }
    }
    let mut rescale = [None; Q];
    for ((weights, query), rescale) in weights.iter_mut().zip(queries).zip(&mut rescale) {
        scoring.cap::<true>(weights);
        *rescale = super::weigh::<true>(weights, seen, query);
    }
    (weights, rescale)
}

/// As [`super::attend`].
#[inline(always)]
pub(crate) fn attend<S: Attend, E: KvElement>(
    simd: S,
    queries: &mut [Query<'_>],
    tile: KvTile<'_, E>,
    seen: &Range<usize>,
    then: Option<KvTile<'_, E>>,
    scoring: Scoring,
) {
    if queries[0].q.len().is_multiple_of(LANES) {
        attend_heads::<S, E, true>(simd, queries, tile, seen, then, scoring);
    } else {
        attend_heads::<S, E, false>(simd, queries, tile, seen, then, scoring);
    }
}

/// How many of the queries that are left make a pass: three are two and one.
fn together<S: Attend>(left: usize) -> usize {
    if left == 3 { 2 } else { left.min(S::QUERIES) }
}

/// `WHOLE`: heads are whole vectors.
#[inline(always)]
fn attend_heads<S: Attend, E: KvElement, const WHOLE: bool>(
    simd: S,
    queries: &mut [Query<'_>],
    tile: KvTile<'_, E>,
    seen: &Range<usize>,
    then: Option<KvTile<'_, E>>,
    scoring: Scoring,
) {
    let head_dim = queries[0].q.len();
    let [of_keys, of_values] = E::steps::<S>(head_dim);
    let steps = [S::PARTS * of_keys, of_values];
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
            1 => some_queries::<S, E, WHOLE, 1>(simd, queries, tile, seen, ahead, scoring),
            2 => some_queries::<S, E, WHOLE, 2>(simd, queries, tile, seen, ahead, scoring),
            _ if S::QUERIES > 2 => some_queries::<S, E, WHOLE, 4>(simd, queries, tile, seen, ahead, scoring),
            _ => unreachable!("two queries at a time"),
        }
    }
}

/// A tile for `Q` queries, while the loops over keys and values ask for what is `ahead`.
#[inline(always)]
fn some_queries<S: Attend, E: KvElement, const WHOLE: bool, const Q: usize>(
    simd: S,
    queries: &mut [Query<'_>],
    tile: KvTile<'_, E>,
    seen: &Range<usize>,
    [beside_keys, beside_values]: [Ahead; 2],
    scoring: Scoring,
) {
    let (weights, rescale) = simd.weigh::<E, Q>(queries, tile.keys, seen, beside_keys, scoring);
    if rescale.iter().all(Option::is_some) {
        let rescale = rescale.map(Option::unwrap_or_default);
        return E::add_values::<S, WHOLE, Q>(simd, &weights, tile.values, seen, &rescale, beside_values, queries);
    }
    // Where there is nothing to add the weights are 0, but a value may be NaN.
    for ((weights, query), rescale) in weights.iter().zip(queries).zip(rescale) {
        if let Some(rescale) = rescale {
            let (weights, query) = (std::array::from_ref(weights), std::slice::from_mut(query));
            E::add_values::<S, WHOLE, 1>(simd, weights, tile.values, seen, &[rescale], Ahead::NOTHING, query);
        }
    }
}
