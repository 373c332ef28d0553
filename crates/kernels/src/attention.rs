//! Attention over a tile of keys and values, as a running softmax: no score outlives its tile.
//!
//! Tiles begin at fixed positions of a sequence. For one query the order of all operations depends on the tiles and on what
//! the query sees of them, so it does not matter which call computes a query, or with which others.

pub(crate) mod ahead;
mod floats;
pub(crate) mod passes;
mod q8_0;

pub use q8_0::{put_key, put_value};

use super::element::Element;
use super::isa::{Isa, Sets};
use super::{LANES, sum_lanes};
#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64;
use crate::ops::exp::{exp, tanh};
use std::ops::Range;

/// Positions of a tile: the keys whose scores are held at a time.
pub const TILE: usize = 64;

/// How a query and a key make a score: `scale * (q . key)`, then `cap * tanh(score / cap)` if there is a cap, then less the
/// query's slope times their distance, then more by its bias for the position of the key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scoring {
    /// The factor of products.
    pub scale: f32,
    /// The bound of the magnitude of scores, where there is one.
    pub cap: Option<f32>,
    /// The position of the tile's first key, by which queries with a slope or a bias know positions.
    pub first: usize,
}

impl Scoring {
    /// Caps the `scores` of `query` for keys of a tile from `key` on, where there is a cap, takes distances from them, where it
    /// has a slope, and adds its bias, where it has one.
    #[inline(always)]
    pub(crate) fn finish<const FUSED: bool>(self, scores: &mut [f32], key: usize, query: &Query<'_>) {
        if let Some(cap) = self.cap {
            scores.iter_mut().for_each(|score| *score = cap * tanh::<FUSED>(*score / cap));
        }
        if let Some(Slope { slope, position }) = query.slope {
            for (key, score) in (self.first + key..).zip(&mut *scores) {
                *score -= slope * position.abs_diff(key) as f32;
            }
        }
        if let Some(bias) = query.bias.and_then(|bias| bias.get(self.first + key..)) {
            scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
        }
    }
}

/// How scores of a query fall with the distance of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// What each position between the two takes from the score.
    pub slope: f32,
    /// The position of the query.
    pub position: usize,
}

/// The numbers of [`Query::state`].
pub const STATE: usize = 1 + LANES;

/// A query, and its softmax over the tiles so far.
#[derive(Debug)]
pub struct Query<'a> {
    /// The query, as long as a key.
    q: &'a [f32],
    pub(crate) max: f32,
    /// Lanes of the sum of `e^(score - max)`: lane `i` has that of positions `i` modulo 16.
    pub(crate) sums: [f32; LANES],
    /// The values so far, weighted by `e^(score - max)`.
    out: &'a mut [f32],
    pub(crate) slope: Option<Slope>,
    pub(crate) bias: Option<&'a [f32]>,
}

impl<'a> Query<'a> {
    /// A query that has attended to nothing; the result, as long as a value, will be in `out`. Panics when one of them is empty.
    pub fn new(q: &'a [f32], out: &'a mut [f32]) -> Query<'a> {
        assert!(!q.is_empty() && !out.is_empty(), "{} elements into {}", q.len(), out.len());
        out.fill(0.0);
        Query { q, max: f32::NEG_INFINITY, sums: [0.0; LANES], out, slope: None, bias: None }
    }

    /// The query with scores that fall with the distance of keys.
    pub fn sloped(self, slope: Option<Slope>) -> Query<'a> {
        Query { slope, ..self }
    }

    /// The query with a number for each position, from the first of the sequence on, that is added to its score.
    pub fn biased(self, bias: Option<&'a [f32]>) -> Query<'a> {
        Query { bias, ..self }
    }

    /// The numbers that [`merge`](Self::merge) needs besides `out`: the maximum, then the sums.
    pub fn state(&self) -> [f32; STATE] {
        let mut state = [self.max; STATE];
        state[1..].copy_from_slice(&self.sums);
        state
    }

    /// Adds the result of the same query for other positions: its `state` and its `out`. The first that saw anything is
    /// copied as it is, and one that saw nothing changes nothing.
    pub fn merge(&mut self, state: &[f32; STATE], out: &[f32]) {
        let [theirs, sums @ ..] = state;
        if *theirs == f32::NEG_INFINITY {
            return;
        }
        if self.max == f32::NEG_INFINITY {
            (self.max, self.sums) = (*theirs, *sums);
            return self.out.copy_from_slice(out);
        }
        let max = if theirs.is_nan() || *theirs > self.max { *theirs } else { self.max };
        let (ours, theirs) = (exp::<false>(self.max - max), exp::<false>(*theirs - max));
        self.max = max;
        let both = |a: &mut f32, b: &f32| *a = *a * ours + b * theirs;
        self.sums.iter_mut().zip(sums).for_each(|(a, b)| both(a, b));
        self.out.iter_mut().zip(out).for_each(|(a, b)| both(a, b));
    }

    /// Attends to a position of this score whose value is zero: it takes weight from the others.
    pub fn sink(&mut self, score: f32) {
        let max = if score.is_nan() || score > self.max { score } else { self.max };
        let rescale = exp::<false>(self.max - max);
        self.max = max;
        self.sums.iter_mut().for_each(|sum| *sum *= rescale);
        self.sums[0] += exp::<false>(score - max);
        self.out.iter_mut().for_each(|out| *out *= rescale);
    }

    /// Divides by the sum: the result is in `out`. Zeros if there was no key.
    pub fn finish(self) {
        let sum = sum_lanes(self.sums);
        let factor = if sum == 0.0 { 0.0 } else { 1.0 / sum };
        self.out.iter_mut().for_each(|out| *out *= factor);
    }
}

/// The element of keys and values: how a tile of them is read.
pub trait KvElement: Compiled + Copy + Sync + 'static {
    /// Whether products are of integers.
    const INTEGERS: bool;

    /// Whether elements are widened to multiply them.
    #[doc(hidden)]
    const WIDENS: bool;

    /// Elements of the keys of [`TILE`] positions, and of their values.
    fn tile_len(head_dim: usize) -> usize;

    /// The elements of a tile of keys that hold its first `positions`, in order.
    fn used_keys(head_dim: usize, positions: usize) -> impl Iterator<Item = Range<usize>>;

    /// The elements of a tile of values that hold its first `positions`, in order.
    fn used_values(head_dim: usize, positions: usize) -> impl Iterator<Item = Range<usize>>;

    /// Fills a tile of `values` of `value_dim` elements, which are the first of the `head_dim` elements of the `keys` of a
    /// tile: the same bits in another order.
    fn values_of_keys(keys: &[Self], head_dim: usize, values: &mut [Self], value_dim: usize);

    /// The products of a query and the keys of a tile.
    #[doc(hidden)]
    fn products(q: &[f32], keys: &[Self]) -> [f32; TILE];

    /// `out += sum over seen i of weights[i] * values[i]`. Weights of positions that are not seen are 0.
    #[doc(hidden)]
    fn add(weights: &[f32; TILE], values: &[Self], seen: &Range<usize>, out: &mut [f32]);

    /// Elements from `at` on, as many as a vector has, widened.
    ///
    /// # Safety
    /// They can be read.
    #[doc(hidden)]
    unsafe fn widened<S: passes::Attend>(simd: S, at: *const Self) -> S::Floats;

    /// Steps of [`dots`](Self::dots) for one part, and of [`add_values`](Self::add_values).
    #[doc(hidden)]
    fn steps<S: passes::Attend>(head_dim: usize) -> [usize; 2];

    /// The products of queries and the first `N` vectors of part `part` of the keys of a tile.
    #[doc(hidden)]
    fn dots<S: passes::Attend, const Q: usize, const N: usize>(
        simd: S,
        queries: &[Query<'_>],
        keys: &[Self],
        part: usize,
        ahead: ahead::Ahead,
    ) -> [[S::Floats; passes::COLUMNS]; Q];

    /// `out = rescale * out + sum over seen i of weights[i] * values[i]` for `Q` queries, in the order of the values. Weights
    /// of positions that are not seen are 0. `WHOLE`: heads are whole vectors.
    #[doc(hidden)]
    fn add_values<S: passes::Attend, const WHOLE: bool, const Q: usize>(
        simd: S,
        queries: &mut [Query<'_>],
        attention: &Attention<'_, Self>,
        weights: &[[f32; TILE]; Q],
        rescale: &[f32; Q],
        ahead: ahead::Ahead,
    );
}

/// Keys and values of [`TILE`] positions of one head, which may differ in length. A position that no query sees may hold any bits.
#[derive(Clone, Copy, Debug)]
pub struct KvTile<'a, E> {
    /// Keys. Floats are `[head_dim, TILE]`, so that scores of neighbors are summed side by side, one in each lane.
    pub keys: &'a [E],
    /// Values. Floats are `[TILE, value_dim]`.
    pub values: &'a [E],
}

/// The tile that queries attend to, and how.
#[derive(Debug)]
pub struct Attention<'a, E> {
    pub(crate) tile: KvTile<'a, E>,
    /// The positions of the tile that are seen.
    pub(crate) seen: Range<usize>,
    /// The tile after this one, or this one again if it is the last; none if nothing is to be prefetched.
    pub(crate) then: Option<KvTile<'a, E>>,
    pub(crate) scoring: Scoring,
}

/// Lets `queries`, which share keys and values, attend to the positions `seen` of `tile`, by the scores of
/// `scoring`. The bits of a query do not depend on the others. Where no other query has read them, `then` is the tile after this
/// one, or this one again if it is the last, for prefetches. Panics when lengths do not match.
pub fn attend<E: KvElement>(
    isa: Isa,
    queries: &mut [Query<'_>],
    tile: KvTile<'_, E>,
    seen: Range<usize>,
    then: Option<KvTile<'_, E>>,
    scoring: Scoring,
) {
    let Some(first) = queries.first().filter(|_| !seen.is_empty()) else { return };
    let lens = [first.q.len(), first.out.len()];
    assert!(queries.iter().all(|query| [query.q.len(), query.out.len()] == lens), "one length of heads");
    assert!(seen.end <= TILE, "positions {seen:?} of a tile");
    for KvTile { keys, values } in std::iter::once(tile).chain(then) {
        assert_eq!([keys.len(), values.len()], lens.map(E::tile_len), "elements of a tile");
    }
    E::attend(isa, queries, &Attention { tile, seen, then, scoring });
}

/// Attention is compiled here, for each element once, and not in every crate that calls [`attend`].
#[doc(hidden)]
pub trait Compiled: Sized {
    /// [`attend`], of lengths that match.
    fn attend(isa: Isa, queries: &mut [Query<'_>], attention: &Attention<'_, Self>);
}

macro_rules! compiled {
    ($($element:ty),*) => {$(
        impl Compiled for $element {
            fn attend(isa: Isa, queries: &mut [Query<'_>], attention: &Attention<'_, Self>) {
                attend_by(isa, queries, attention);
            }
        }
    )*};
}
compiled!(f32, half::f16, u8);

fn attend_by<E: KvElement>(isa: Isa, queries: &mut [Query<'_>], attention: &Attention<'_, E>) {
    #[cfg(target_arch = "x86_64")]
    if E::INTEGERS && isa.has(Sets::AVX512.and(Sets::VNNI)) {
        // SAFETY: the token proves the instruction sets.
        return unsafe { x86_64::avx512::attention::attend_by_vnni(queries, attention) };
    }
    #[cfg(target_arch = "x86_64")]
    if isa.has(Sets::AVX512) {
        // SAFETY: the token proves the instruction sets.
        return unsafe { x86_64::avx512::attention::attend(queries, attention) };
    }
    #[cfg(target_arch = "x86_64")]
    if isa.has(Sets::AVX2) {
        // SAFETY: the reason above holds here too.
        return unsafe { x86_64::avx2::attention::attend(queries, attention) };
    }
    #[cfg(target_arch = "aarch64")]
    if isa.has(Sets::NEON) {
        // SAFETY: the reason above holds here too.
        return unsafe { aarch64::neon::attention::attend(queries, attention) };
    }
    let _ = isa;
    for query in queries {
        let mut scores = E::products(query.q, attention.tile.keys);
        scores.iter_mut().for_each(|score| *score *= attention.scoring.scale);
        attention.scoring.finish::<false>(&mut scores, 0, query);
        if let Some(rescale) = weigh::<false>(&mut scores, &attention.seen, query) {
            query.out.iter_mut().for_each(|out| *out *= rescale);
            E::add(&scores, attention.tile.values, &attention.seen, query.out);
        }
    }
}

/// Turns the scores of a tile into weights, those that are not `seen` into zeros, and updates the query's maximum.
/// Returns the factor by which `out` must be multiplied before values are added; none if there is nothing to add.
#[inline(always)]
fn weigh<const FUSED: bool>(scores: &mut [f32; TILE], seen: &Range<usize>, query: &mut Query<'_>) -> Option<f32> {
    scores[..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..].fill(f32::NEG_INFINITY);
    let max = largest(scores, query.max);
    if max == f32::NEG_INFINITY {
        return None;
    }
    let rescale = exp::<FUSED>(query.max - max);
    let mut lanes = [0.0; LANES];
    for scores in scores.as_chunks_mut::<LANES>().0 {
        for (lane, score) in lanes.iter_mut().zip(scores) {
            *score = exp::<FUSED>(*score - max);
            *lane += *score;
        }
    }
    query.max = max;
    query.sums.iter_mut().zip(lanes).for_each(|(sum, lane)| *sum = *sum * rescale + lane);
    Some(rescale)
}

/// The largest of scores and `max`; NaN counts as larger than all.
#[inline(always)]
fn largest(scores: &[f32; TILE], max: f32) -> f32 {
    let (mut maxima, mut nan) = ([max; LANES], [false; LANES]);
    for scores in scores.as_chunks::<LANES>().0 {
        for ((max, nan), &score) in maxima.iter_mut().zip(&mut nan).zip(scores) {
            *max = if score > *max { score } else { *max };
            *nan |= score.is_nan();
        }
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            maxima[i] = if maxima[i + half] > maxima[i] { maxima[i + half] } else { maxima[i] };
        }
    }
    if nan.iter().fold(false, |a, &b| a | b) { f32::NAN } else { maxima[0] }
}
