//! Attention in vectors of one width: some queries at a time share every loaded key and value.

use super::ahead::Ahead;
use super::{Attention, KvElement, KvTile, LANES, Query, TILE};
use crate::arch::generic::simd::Simd;
use crate::scratch::{Scratch, room, swap_scratch};

/// The vectors of keys whose sums are in registers, and the vectors of a value that are added at a time, while there are as many.
pub(crate) const COLUMNS: usize = 4;

/// The parts that differ between vector widths.
pub trait Attend: Simd {
    /// The most queries at a time.
    const QUERIES: usize;
    /// Loops over the keys of a tile.
    const PARTS: usize = TILE / (COLUMNS * Self::LANES);

    /// A vector of zeros.
    fn no_ints(self) -> Self::Bits;

    /// `x` in all lanes.
    fn all_ints(self, x: i32) -> Self::Bits;

    /// Loads two signed bytes for each lane, as words.
    ///
    /// # Safety
    /// That many bytes can be read.
    unsafe fn load_pairs(self, at: *const u8) -> Self::Bits;

    /// Loads a signed byte for each lane, as an integer.
    ///
    /// # Safety
    /// That many bytes can be read.
    unsafe fn load_bytes_apart(self, at: *const u8) -> Self::Bits;

    /// `sums` + the product of the low words + the product of the high words of `a` and `b`.
    fn add_pairs(self, sums: Self::Bits, a: Self::Bits, b: Self::Bits) -> Self::Bits;

    /// Converts integers, rounded to the nearest, ties to even.
    fn to_floats(self, ints: Self::Bits) -> Self::Floats;

    /// The weights of all positions of a tile, 0 for those that are not seen, while the loops over the keys prefetch what is
    /// ahead. Updates the queries' maxima, and returns the factors by which their `out` must be multiplied before
    /// values are added; none where there is nothing to add. Scores go through memory, as a part of the keys is several vectors.
    #[inline(always)]
    fn weigh<E: KvElement, const Q: usize>(
        self,
        queries: &mut [Query<'_>],
        attention: &Attention<'_, E>,
        ahead: Ahead,
    ) -> ([[f32; TILE]; Q], [Option<f32>; Q]) {
        let Attention { tile: KvTile { keys, .. }, seen, scoring, .. } = attention;
        let mut weights = [[0.0; TILE]; Q];
        for part in 0..Self::PARTS {
            let steps = E::steps::<Self>(queries[0].q.len())[0];
            let sums = E::dots::<Self, Q, COLUMNS>(self, queries, keys, part, ahead.after(part * steps));
            for (weights, sums) in weights.iter_mut().zip(sums) {
                let weights = weights[part * COLUMNS * Self::LANES..].chunks_exact_mut(Self::LANES);
                for (weights, sums) in weights.zip(sums) {
                    // SAFETY: the chunk has room for a vector.
                    unsafe { self.store_all(weights.as_mut_ptr(), self.mul(sums, self.all(scoring.scale))) };
                }
            }
        }
        let mut rescale = [None; Q];
        for ((weights, query), rescale) in weights.iter_mut().zip(queries).zip(&mut rescale) {
            scoring.finish::<true>(weights, 0, query);
            *rescale = super::weigh::<true>(weights, seen, query);
        }
        (weights, rescale)
    }
}

/// With more queries than this a tile of halves is widened once, for all of them: to widen it in each pass would take longer.
const FEW: usize = 16;

/// Bytes of a widened tile, at most: it stays in the second-level cache, and mostly in the first.
const WIDE: usize = 64 << 10;

/// Like [`super::attend`].
#[inline(always)]
pub(crate) fn attend<S: Attend, E: KvElement>(simd: S, queries: &mut [Query<'_>], attention: &Attention<'_, E>) {
    let KvTile { keys, values } = attention.tile;
    let len = keys.len() + values.len();
    if !E::WIDENS || queries.len() <= FEW || size_of::<f32>() * len > WIDE {
        return attend_to::<S, E>(simd, queries, attention);
    }
    // Memory is taken from the thread and put back: a closure that computed there would be compiled without the instruction sets.
    let mut scratch = Scratch::default();
    swap_scratch(&mut scratch);
    match room(&mut scratch.floats, len) {
        Ok(wide) => {
            let (wide_keys, wide_values) = wide.split_at_mut(keys.len());
            widen::<S, E>(simd, keys, wide_keys);
            widen::<S, E>(simd, values, wide_values);
            let tile = KvTile { keys: &*wide_keys, values: &*wide_values };
            let Attention { ref seen, scoring, .. } = *attention;
            attend_to::<S, f32>(simd, queries, &Attention { tile, seen: seen.clone(), then: None, scoring });
        }
        // Without memory for it the tile is widened in registers, which gives the same bits.
        Err(_) => attend_to::<S, E>(simd, queries, attention),
    }
    swap_scratch(&mut scratch);
}

/// Widens elements, which are whole vectors as those of a tile are.
#[inline(always)]
fn widen<S: Attend, E: KvElement>(simd: S, from: &[E], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "elements of a tile");
    for (from, to) in from.chunks_exact(S::LANES).zip(to.chunks_exact_mut(S::LANES)) {
        // SAFETY: both chunks are a vector.
        unsafe { simd.store_all(to.as_mut_ptr(), E::widened(simd, from.as_ptr())) };
    }
}

#[inline(always)]
fn attend_to<S: Attend, E: KvElement>(simd: S, queries: &mut [Query<'_>], attention: &Attention<'_, E>) {
    if queries[0].out.len().is_multiple_of(LANES) {
        attend_heads::<S, E, true>(simd, queries, attention);
    } else {
        attend_heads::<S, E, false>(simd, queries, attention);
    }
}

/// How many of the remaining queries make a pass: three are two and one.
fn together<S: Attend>(left: usize) -> usize {
    if left == 3 { 2 } else { left.min(S::QUERIES) }
}

/// Attends in passes over a tile. `WHOLE`: values are whole vectors.
#[inline(always)]
fn attend_heads<S: Attend, E: KvElement, const WHOLE: bool>(
    simd: S,
    queries: &mut [Query<'_>],
    attention: &Attention<'_, E>,
) {
    let [of_keys, _] = E::steps::<S>(queries[0].q.len());
    let [_, of_values] = E::steps::<S>(queries[0].out.len());
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
        let ahead = std::array::from_fn(|i| Ahead::new(attention.tile, attention.then, passes, 2 * pass + i, steps[i]));
        match queries.len() {
            1 => some_queries::<S, E, WHOLE, 1>(simd, queries, attention, ahead),
            2 => some_queries::<S, E, WHOLE, 2>(simd, queries, attention, ahead),
            _ if S::QUERIES > 2 => some_queries::<S, E, WHOLE, 4>(simd, queries, attention, ahead),
            _ => unreachable!("two queries at a time"),
        }
    }
}

/// Computes a tile for `Q` queries, while the loops over keys and values prefetch what is `ahead`.
#[inline(always)]
fn some_queries<S: Attend, E: KvElement, const WHOLE: bool, const Q: usize>(
    simd: S,
    queries: &mut [Query<'_>],
    attention: &Attention<'_, E>,
    [with_keys, with_values]: [Ahead; 2],
) {
    let (weights, rescale) = simd.weigh::<E, Q>(queries, attention, with_keys);
    if rescale.iter().all(Option::is_some) {
        let rescale = rescale.map(Option::unwrap_or_default);
        return E::add_values::<S, WHOLE, Q>(simd, queries, attention, &weights, &rescale, with_values);
    }
    // If there is nothing to add the weights are 0, but a value may be NaN.
    for ((weights, query), rescale) in weights.iter().zip(queries).zip(rescale) {
        if let Some(rescale) = rescale {
            let (weights, query) = (std::array::from_ref(weights), std::slice::from_mut(query));
            E::add_values::<S, WHOLE, 1>(simd, query, attention, weights, &[rescale], Ahead::NOTHING);
        }
    }
}
