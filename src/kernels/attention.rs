//! Attention over a tile of keys and values, as a running softmax: no score outlives its tile.
//!
//! Tiles are cut at fixed positions by the caller. For one query the order of all operations depends on the tiles alone,
//! so it does not matter which call computes a query, or with which others.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use super::exp::exp;
use super::f16::f16_to_f32;
use super::isa::Isa;
use super::{LANES, sum_lanes};
use half::f16;

/// An element of keys and values.
pub trait Element: Copy + Sync + 'static {
    /// Widened without loss.
    #[doc(hidden)]
    fn wide(self) -> f32;

    /// 16 elements, widened, or those before the end with zeros after them.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW and VL. 16 elements can be read if `WHOLE`, else `left` or 16, whichever is less.
    #[cfg(target_arch = "x86_64")]
    #[doc(hidden)]
    unsafe fn load_16<const WHOLE: bool>(at: *const Self, left: usize) -> std::arch::x86_64::__m512;

    /// 8 elements, widened, or those before the end with zeros after them.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C. 8 elements can be read if `WHOLE`, else `left` or 8, whichever is less.
    #[cfg(target_arch = "x86_64")]
    #[doc(hidden)]
    unsafe fn load_8<const WHOLE: bool>(at: *const Self, left: usize) -> std::arch::x86_64::__m256;
}

impl Element for f32 {
    fn wide(self) -> f32 {
        self
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn load_16<const WHOLE: bool>(at: *const f32, left: usize) -> std::arch::x86_64::__m512 {
        // SAFETY: the caller's.
        unsafe { avx512::load_f32::<WHOLE>(at, left) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn load_8<const WHOLE: bool>(at: *const f32, left: usize) -> std::arch::x86_64::__m256 {
        // SAFETY: the caller's.
        unsafe { avx2::load_f32::<WHOLE>(at, left) }
    }
}

impl Element for f16 {
    fn wide(self) -> f32 {
        f16_to_f32(self.to_le_bytes())
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn load_16<const WHOLE: bool>(at: *const f16, left: usize) -> std::arch::x86_64::__m512 {
        // SAFETY: the caller's.
        unsafe { avx512::load_f16::<WHOLE>(at, left) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn load_8<const WHOLE: bool>(at: *const f16, left: usize) -> std::arch::x86_64::__m256 {
        // SAFETY: the caller's.
        unsafe { avx2::load_f16::<WHOLE>(at, left) }
    }
}

/// Keys whose scores are held at a time.
const TILE: usize = 64;

/// The softmax of one query over the tiles so far.
#[derive(Debug)]
pub struct Softmax<'a> {
    max: f32,
    sum: f32,
    /// The values so far, weighted by `e^(score - max)`.
    out: &'a mut [f32],
}

impl<'a> Softmax<'a> {
    /// Nothing attended yet; the result will be in `out` `[head_dim]`.
    pub fn new(out: &'a mut [f32]) -> Softmax<'a> {
        out.fill(0.0);
        Softmax { max: f32::NEG_INFINITY, sum: 0.0, out }
    }

    /// Divides by the sum: the result is in `out`. Zeros if there was no key.
    pub fn finish(self) {
        let factor = if self.sum == 0.0 { 0.0 } else { 1.0 / self.sum };
        self.out.iter_mut().for_each(|out| *out *= factor);
    }
}

/// Keys and values `[n, head_dim]` of one head.
#[derive(Clone, Copy, Debug)]
pub struct Cached<'a, E> {
    /// The keys.
    pub keys: &'a [E],
    /// The values.
    pub values: &'a [E],
}

/// Lets the query `q` `[head_dim]` attend to `cached`, with `scale * (q . key)` as score. Panics when lengths do not match.
pub fn attend<E: Element>(isa: Isa, q: &[f32], cached: Cached<'_, E>, scale: f32, state: &mut Softmax<'_>) {
    attend_group(isa, q, cached, None, scale, std::slice::from_mut(state));
}

/// As [`attend`] for the queries `q` `[states, head_dim]` that share keys and values, in one pass over them; the same
/// bits as one by one. Where nobody else needs them soon, `then` is what comes after them: keys and values are asked of
/// the memory ahead. Panics when lengths do not match.
pub fn attend_group<E: Element>(
    isa: Isa,
    q: &[f32],
    cached: Cached<'_, E>,
    then: Option<Cached<'_, E>>,
    scale: f32,
    states: &mut [Softmax<'_>],
) {
    let Some(first) = states.first() else {
        assert!(q.is_empty(), "queries without a state");
        return;
    };
    let Cached { keys, values } = cached;
    let head_dim = first.out.len();
    assert!(head_dim > 0 && q.len() == states.len() * head_dim, "queries of {} states", states.len());
    assert!(states.iter().all(|state| state.out.len() == head_dim), "one length of heads");
    assert!(keys.len() == values.len() && keys.len().is_multiple_of(head_dim), "keys and values of whole heads");
    for start in (0..keys.len()).step_by(TILE * head_dim) {
        let end = keys.len().min(start + TILE * head_dim);
        // What comes after this tile: the rest, or what is behind all.
        let rest = Cached { keys: &keys[end..], values: &values[end..] };
        let ahead = then.map(|then| if end < keys.len() { rest } else { then });
        let tile = Tile { keys: &keys[start..end], values: &values[start..end], ahead };
        attend_tile(isa, q, tile, scale, states);
    }
}

/// Up to [`TILE`] keys and values, and what comes next, if that is to be asked for.
#[derive(Clone, Copy)]
struct Tile<'a, E> {
    keys: &'a [E],
    values: &'a [E],
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    ahead: Option<Cached<'a, E>>,
}

#[cfg(target_arch = "x86_64")]
impl<E> Tile<'_, E> {
    /// Asks for the `len` keys and values that are as far ahead as those from element `from` on are from the tile's start.
    #[inline(always)]
    fn ask_ahead(&self, from: usize, len: usize) {
        if let Some(ahead) = &self.ahead {
            for elements in [ahead.keys, ahead.values] {
                let elements = elements.get(from..).unwrap_or_default();
                let bytes = elements.len().min(len) * size_of::<E>();
                super::x86::prefetch(elements.as_ptr().cast(), bytes);
            }
        }
    }
}

fn attend_tile<E: Element>(isa: Isa, q: &[f32], tile: Tile<'_, E>, scale: f32, states: &mut [Softmax<'_>]) {
    #[cfg(target_arch = "x86_64")]
    if isa.has(super::isa::Sets::AVX512) {
        // SAFETY: the token is proof of the instruction sets.
        return unsafe { avx512::attend(q, tile, scale, states) };
    }
    #[cfg(target_arch = "x86_64")]
    if isa.has(super::isa::Sets::AVX2) {
        // SAFETY: as above.
        return unsafe { avx2::attend(q, tile, scale, states) };
    }
    let _ = isa;
    let head_dim = q.len() / states.len();
    for (q, state) in q.chunks_exact(head_dim).zip(states.iter_mut()) {
        let mut scores = [f32::NEG_INFINITY; TILE];
        for (score, key) in scores.iter_mut().zip(tile.keys.chunks_exact(head_dim)) {
            *score = dot(q, key) * scale;
        }
        if weigh(&mut scores, state) {
            for (&weight, value) in scores.iter().zip(tile.values.chunks_exact(head_dim)) {
                state.out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value.wide());
            }
        }
    }
}

/// Turns the scores of a tile (negative infinity where there is no key) into weights, and brings the state to the new
/// maximum. False if there is nothing to add.
#[inline(always)]
fn weigh(scores: &mut [f32; TILE], state: &mut Softmax<'_>) -> bool {
    let max = match largest(scores) {
        max if max > state.max || max.is_nan() => max,
        _ => state.max,
    };
    if max == f32::NEG_INFINITY {
        return false;
    }
    let rescale = exp(state.max - max);
    let mut lanes = [0.0; LANES];
    for scores in scores.as_chunks_mut::<LANES>().0 {
        for (lane, score) in lanes.iter_mut().zip(scores) {
            *score = exp(*score - max);
            *lane += *score;
        }
    }
    state.max = max;
    state.sum = state.sum * rescale + sum_lanes(lanes);
    state.out.iter_mut().for_each(|out| *out *= rescale);
    true
}

/// The largest score; what is no number is larger than all.
#[inline(always)]
fn largest(scores: &[f32; TILE]) -> f32 {
    // By integers in the same order, which compilers bring into vectors.
    let ordered = |bits: i32| bits ^ ((bits >> 31) & i32::MAX);
    let (mut maxima, mut nan) = ([i32::MIN; LANES], [false; LANES]);
    for scores in scores.as_chunks::<LANES>().0 {
        for ((max, nan), score) in maxima.iter_mut().zip(&mut nan).zip(scores) {
            *max = ordered(score.to_bits() as i32).max(*max);
            *nan |= score.is_nan();
        }
    }
    let max = maxima.iter().fold(i32::MIN, |a, &b| a.max(b));
    if nan.iter().fold(false, |a, &b| a | b) { f32::NAN } else { f32::from_bits(ordered(max) as u32) }
}

fn dot<E: Element>(a: &[f32], b: &[E]) -> f32 {
    let mut lanes = [0.0; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b.wide();
        }
    }
    sum_lanes(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{Random, each_isa};

    fn attended<E: Element>(isa: Isa, q: &[f32], keys: &[E], values: &[E], heads: usize, tile: usize) -> Vec<f32> {
        let head_dim = q.len() / heads;
        let mut out = vec![f32::NAN; q.len()];
        let mut states: Vec<Softmax<'_>> = out.chunks_exact_mut(head_dim).map(Softmax::new).collect();
        for (keys, values) in keys.chunks(tile * head_dim).zip(values.chunks(tile * head_dim)) {
            // What is asked for ahead changes nothing.
            let then = (tile == 40).then_some(Cached { keys, values });
            attend_group(isa, q, Cached { keys, values }, then, 0.3, &mut states);
        }
        states.into_iter().for_each(Softmax::finish);
        out
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
                for n in [1, 2, 15, 16, 17, 63, 64, 65, 130, 300] {
                    let q: Vec<f32> = random.floats(7 * head_dim).iter().map(|x| x * 4.0).collect();
                    let (keys, values) = (random.floats(n * head_dim), random.floats(n * head_dim));
                    for tile in [64, 128, 40] {
                        let together = attended(isa, &q, &keys, &values, 7, tile);
                        for (q, together) in q.chunks_exact(head_dim).zip(together.chunks_exact(head_dim)) {
                            assert_eq!(attended(isa, q, &keys, &values, 1, tile), together, "{isa} {head_dim} {n}");
                            for (&out, truth) in together.iter().zip(oracle(q, &keys, &values)) {
                                // Weights are off by the error of a score, |score| <= 0.3 * 4 * 128 with 12 roundings.
                                let error = (f64::from(out) - truth).abs();
                                assert!(error < 2e-5, "{isa} {head_dim} {n}: {out} for {truth}");
                            }
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
                let expected = attended(isa, &q, &wide(&keys), &wide(&values), 5, 64);
                assert_eq!(attended(isa, &q, &keys, &values, 5, 64), expected, "{isa} {head_dim} {n}");
            }
        }
    }

    #[test]
    fn gives_the_same_bits_by_avx2_and_by_avx512() {
        let mut random = Random::new(12);
        let [Some(avx2), Some(avx512)] = ["avx2", "avx512"].map(Isa::named) else { return };
        for (head_dim, n) in [(20, 70), (64, 130), (96, 17), (128, 64)] {
            let (q, cache) = (random.floats(3 * head_dim), random.floats(n * head_dim));
            let by = |isa: Isa| attended(isa, &q, &cache, &cache, 3, 64);
            assert_eq!(by(avx2), by(avx512), "{head_dim} {n}");
        }
    }

    #[test]
    fn passes_what_is_no_number_on_and_accepts_nothing() {
        for isa in each_isa() {
            let mut keys = vec![0.5; 70 * 16];
            keys[68 * 16] = f32::NAN;
            assert!(attended(isa, &[1.0; 16], &keys, &[1.0; 70 * 16], 1, 64).iter().all(|x| x.is_nan()), "{isa}");
            assert_eq!(attended::<f32>(isa, &[1.0; 16], &[], &[], 1, 64), [0.0; 16]);
            let far = attended(isa, &[300.0; 16], &[30.0; 16], &[2.0; 16], 1, 64);
            assert_eq!(far, [2.0; 16]);
        }
    }
}
