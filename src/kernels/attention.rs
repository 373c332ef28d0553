//! Attention over a tile of keys and values, as a running softmax: no score outlives its tile.
//!
//! Tiles begin at fixed positions of a sequence. For one query the order of all operations depends on the tiles and on what
//! it sees of them, so it does not matter which call computes a query, or with which others.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod ahead;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod passes;

use super::element::Element;
use super::exp::exp;
use super::isa::Isa;
use super::{LANES, sum_lanes};
use std::ops::Range;

/// Positions of a tile: the keys whose scores are held at a time.
pub const TILE: usize = 64;

/// Numbers of [`Query::state`].
pub const STATE: usize = 1 + LANES;

/// A query, and its softmax over the tiles so far.
#[derive(Debug)]
pub struct Query<'a> {
    /// `[head_dim]`
    q: &'a [f32],
    max: f32,
    /// What adds up to the sum of `e^(score - max)`: lane `i` has that of positions `i` modulo 16.
    sums: [f32; LANES],
    /// The values so far, weighted by `e^(score - max)`.
    out: &'a mut [f32],
}

impl<'a> Query<'a> {
    /// Nothing attended yet; the result will be in `out`. Panics when it is not as long as `q`.
    pub fn new(q: &'a [f32], out: &'a mut [f32]) -> Query<'a> {
        assert!(!q.is_empty() && q.len() == out.len(), "{} elements into {}", q.len(), out.len());
        out.fill(0.0);
        Query { q, max: f32::NEG_INFINITY, sums: [0.0; LANES], out }
    }

    /// What [`merge`](Self::merge) needs beside `out`: the maximum, then the sums.
    pub fn state(&self) -> [f32; STATE] {
        let mut state = [self.max; STATE];
        state[1..].copy_from_slice(&self.sums);
        state
    }

    /// Adds what the same query has come to over other positions: its `state` and its `out`. The first that saw anything is
    /// taken as it is, and one that saw nothing changes nothing.
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

    /// Divides by the sum: the result is in `out`. Zeros if there was no key.
    pub fn finish(self) {
        let sum = sum_lanes(self.sums);
        let factor = if sum == 0.0 { 0.0 } else { 1.0 / sum };
        self.out.iter_mut().for_each(|out| *out *= factor);
    }
}

/// Keys and values of [`TILE`] positions of one head. A position that no query sees may hold any bits.
#[derive(Clone, Copy, Debug)]
pub struct KvTile<'a, E> {
    /// `[head_dim, TILE]`, so that scores of neighbours are summed side by side, a lane each.
    pub keys: &'a [E],
    /// `[TILE, head_dim]`
    pub values: &'a [E],
}

/// Lets `queries`, which share keys and values, attend to the positions `seen` of `tile`, with `scale * (q . key)` as
/// score. The bits of a query do not depend on the others. Where nobody else has read them, `then` is the tile after this
/// one, or this one again if it is the last: what follows is asked of the memory ahead. Panics when lengths do not match.
pub fn attend<E: Element>(
    isa: Isa,
    queries: &mut [Query<'_>],
    tile: KvTile<'_, E>,
    seen: Range<usize>,
    then: Option<KvTile<'_, E>>,
    scale: f32,
) {
    let Some(first) = queries.first().filter(|_| !seen.is_empty()) else { return };
    let len = TILE * first.q.len();
    assert!(queries.iter().all(|query| query.q.len() == first.q.len()), "one length of heads");
    assert!(seen.end <= TILE, "positions {seen:?} of a tile");
    for KvTile { keys, values } in std::iter::once(tile).chain(then) {
        assert!(keys.len() == len && values.len() == len, "{} and {} elements of {len}", keys.len(), values.len());
    }
    #[cfg(target_arch = "x86_64")]
    if isa.has(super::isa::Sets::AVX512) {
        // SAFETY: the token is proof of the instruction sets.
        return unsafe { avx512::attend(queries, tile, seen, then, scale) };
    }
    #[cfg(target_arch = "x86_64")]
    if isa.has(super::isa::Sets::AVX2) {
        // SAFETY: as above.
        return unsafe { avx2::attend(queries, tile, seen, then, scale) };
    }
    let _ = (isa, then);
    for query in queries {
        let mut scores = [0.0; TILE];
        for (q, keys) in query.q.iter().zip(tile.keys.as_chunks::<TILE>().0) {
            scores.iter_mut().zip(keys).for_each(|(score, key)| *score += q * key.wide());
        }
        scores.iter_mut().for_each(|score| *score *= scale);
        if let Some(rescale) = weigh::<false>(&mut scores, &seen, query) {
            query.out.iter_mut().for_each(|out| *out *= rescale);
            let values = tile.values.chunks_exact(query.q.len());
            for (&weight, value) in scores.iter().zip(values).take(seen.end).skip(seen.start) {
                query.out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value.wide());
            }
        }
    }
}

/// Turns the scores of a tile into weights, those that are not `seen` into zeros, and brings the query to the new maximum.
/// Gives the factor by which `out` is to be multiplied before values are added; none if there is nothing to add.
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

/// The largest of scores and `max`; NaN is larger than all.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{Random, each_isa};
    use half::f16;

    /// Keys and values `[n, head_dim]` as tiles; what no query sees is NaN.
    fn tiles<E: Element>(keys: &[E], values: &[E], head_dim: usize, nan: E) -> Vec<[Vec<E>; 2]> {
        let cut = keys.chunks(TILE * head_dim).zip(values.chunks(TILE * head_dim));
        let of = |(keys, values): (&[E], &[E])| {
            let (mut across, mut padded) = (vec![nan; TILE * head_dim], vec![nan; TILE * head_dim]);
            for (slot, key) in keys.chunks_exact(head_dim).enumerate() {
                key.iter().enumerate().for_each(|(d, &x)| across[d * TILE + slot] = x);
            }
            padded[..values.len()].copy_from_slice(values);
            [across, padded]
        };
        cut.map(of).collect()
    }

    /// The queries `q` `[heads, head_dim]` on the keys from `first` on.
    fn attended<E: Element>(isa: Isa, q: &[f32], tiles: &[[Vec<E>; 2]], keys: Range<usize>, heads: usize) -> Vec<f32> {
        let head_dim = q.len() / heads;
        let mut out = vec![f32::NAN; q.len()];
        let of = |q, out| Query::new(q, out);
        let mut queries: Vec<Query<'_>> =
            q.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)).map(|(q, out)| of(q, out)).collect();
        for (i, [tile_keys, values]) in tiles.iter().enumerate() {
            let seen = keys.start.saturating_sub(i * TILE).min(TILE)..keys.end.saturating_sub(i * TILE).min(TILE);
            let tile = KvTile { keys: &tile_keys[..], values };
            // What is asked for ahead changes nothing.
            attend(isa, &mut queries, tile, seen, (heads % 2 == 1).then_some(tile), 0.3);
        }
        queries.into_iter().for_each(Query::finish);
        out
    }

    #[test]
    fn parts_of_the_positions_merge() {
        let mut random = Random::new(14);
        let (head_dim, n) = (20, 300);
        let (q, keys, values) = (random.floats(head_dim), random.floats(n * head_dim), random.floats(n * head_dim));
        let tiles = tiles(&keys, &values, head_dim, f32::NAN);
        let truth = oracle(&q, &keys, &values);
        for isa in each_isa() {
            let part = |range: Range<usize>| {
                let mut out = vec![f32::NAN; head_dim];
                let mut query = Query::new(&q, &mut out);
                for (i, [keys, values]) in tiles.iter().enumerate() {
                    let seen =
                        range.start.saturating_sub(i * TILE).min(TILE)..range.end.saturating_sub(i * TILE).min(TILE);
                    attend(isa, std::slice::from_mut(&mut query), KvTile { keys, values }, seen, None, 0.3);
                }
                (query.state(), out)
            };
            let merged = |parts: &[Range<usize>]| {
                let mut out = vec![f32::NAN; head_dim];
                let mut query = Query::new(&q, &mut out);
                for (state, out) in parts.iter().cloned().map(part) {
                    query.merge(&state, &out);
                }
                query.finish();
                out
            };
            let whole = attended(isa, &q, &tiles, 0..n, 1);
            assert_eq!(merged(&[5..5, 0..n, 9..9]), whole, "{isa}: what saw nothing changes no bit");
            for parts in [[0..64, 64..192, 192..n], [192..n, 0..64, 64..192]] {
                for (&out, truth) in merged(&parts).iter().zip(&truth) {
                    // As for one pass, and two roundings more a part.
                    let error = (f64::from(out) - truth).abs();
                    assert!(error < 2e-5, "{isa} {parts:?}: {out} for {truth}");
                }
            }
            let (mut state, out) = part(0..64);
            state[0] = f32::NAN;
            let mut into = vec![0.0; head_dim];
            let mut query = Query::new(&q, &mut into);
            query.merge(&part(64..128).0, &part(64..128).1);
            query.merge(&state, &out);
            query.finish();
            assert!(into.iter().all(|x| x.is_nan()), "{isa}: NaN passes");
        }
    }

    fn oracle(q: &[f32], keys: &[f32], values: &[f32]) -> Vec<f64> {
        let score = |key: &[f32]| 0.3 * q.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum::<f64>();
        let scores: Vec<f64> = keys.chunks_exact(q.len()).map(score).collect();
        let max = scores.iter().fold(f64::MIN, |a, &b| a.max(b));
        let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        let mut out = vec![0.0; q.len()];
        for (score, value) in scores.iter().zip(values.chunks_exact(q.len())) {
            out.iter_mut().zip(value).for_each(|(out, &v)| *out += (score - max).exp() / sum * f64::from(v));
        }
        out
    }

    #[test]
    fn agrees_with_the_oracle_and_with_single_queries() {
        let mut random = Random::new(11);
        for isa in each_isa() {
            for head_dim in [1, 8, 16, 20, 64, 80, 96, 128] {
                for (first, n) in
                    [(0, 1), (1, 2), (0, 15), (3, 16), (0, 17), (62, 63), (0, 64), (63, 65), (64, 130), (70, 300)]
                {
                    let q: Vec<f32> = random.floats(7 * head_dim).iter().map(|x| x * 4.0).collect();
                    let (keys, values) = (random.floats(n * head_dim), random.floats(n * head_dim));
                    let tiles = tiles(&keys, &values, head_dim, f32::NAN);
                    let together = attended(isa, &q, &tiles, first..n, 7);
                    for (q, together) in q.chunks_exact(head_dim).zip(together.chunks_exact(head_dim)) {
                        assert_eq!(attended(isa, q, &tiles, first..n, 1), together, "{isa} {head_dim} {first}..{n}");
                        let truth = oracle(q, &keys[first * head_dim..], &values[first * head_dim..]);
                        for (&out, truth) in together.iter().zip(truth) {
                            // Weights are off by the error of a score: of at most 128 roundings, each half a unit in the
                            // last place of a sum that seldom passes 4 * sqrt(128 / 3) * 0.3 / 0.6 < 16.
                            let error = (f64::from(out) - truth).abs();
                            assert!(error < 2e-5, "{isa} {head_dim} {first}..{n}: {out} for {truth}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn halves_give_the_bits_of_the_floats_they_stand_for() {
        let mut random = Random::new(13);
        for isa in each_isa() {
            for (head_dim, n) in [(1, 3), (20, 70), (64, 130), (80, 17), (128, 64)] {
                let q = random.floats(5 * head_dim);
                let rounded = |x: Vec<f32>| -> Vec<f16> { x.into_iter().map(f16::from_f32).collect() };
                let (keys, values) = (rounded(random.floats(n * head_dim)), rounded(random.floats(n * head_dim)));
                let wide = |x: &[f16]| -> Vec<f32> { x.iter().map(|x| x.to_f32()).collect() };
                let floats = tiles(&wide(&keys), &wide(&values), head_dim, f32::NAN);
                let halves = tiles(&keys, &values, head_dim, f16::NAN);
                let expected = attended(isa, &q, &floats, 0..n, 5);
                assert_eq!(attended(isa, &q, &halves, 0..n, 5), expected, "{isa} {head_dim} {n}");
            }
        }
    }

    #[test]
    fn gives_the_same_bits_by_avx2_and_by_avx512() {
        let mut random = Random::new(12);
        let [Some(avx2), Some(avx512)] = ["avx2", "avx512"].map(Isa::named) else { return };
        for (head_dim, n) in [(20, 70), (64, 130), (96, 17), (128, 64)] {
            let (q, cache) = (random.floats(3 * head_dim), random.floats(n * head_dim));
            let tiles = tiles(&cache, &cache, head_dim, f32::NAN);
            let by = |isa: Isa| attended(isa, &q, &tiles, 0..n, 3);
            assert_eq!(by(avx2), by(avx512), "{head_dim} {n}");
        }
    }

    #[test]
    fn passes_nan_on_and_accepts_nothing() {
        for isa in each_isa() {
            let mut keys = vec![0.5; 70 * 16];
            keys[68 * 16] = f32::NAN;
            let with_nan = tiles(&keys, &[1.0; 70 * 16], 16, 0.0);
            assert!(attended(isa, &[1.0; 16], &with_nan, 0..70, 1).iter().all(|x| x.is_nan()), "{isa}");
            assert_eq!(attended(isa, &[1.0; 16], &with_nan, 5..5, 1), [0.0; 16]);
            assert_eq!(attended::<f32>(isa, &[1.0; 16], &[], 0..0, 1), [0.0; 16]);
            let far = attended(isa, &[300.0; 16], &tiles(&[30.0; 16], &[2.0; 16], 16, f32::NAN), 0..1, 1);
            assert_eq!(far, [2.0; 16]);
        }
    }
}
