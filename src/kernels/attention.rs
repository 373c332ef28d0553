//! Attention over a tile of keys and values, as a running softmax: no score outlives its tile.
//!
//! Tiles are cut at fixed positions by the caller. For one query the order of all operations depends on the tiles alone,
//! so it does not matter which call computes a query, or with which others.

#![allow(unsafe_code)]

use super::exp::exp;
use super::isa::Isa;
use super::{LANES, multiply_add, sum_lanes};

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

/// Lets the query `q` `[head_dim]` attend to the `n` `keys` and `values`, both `[n, head_dim]`, with `scale * (q . key)`
/// as score. Panics when lengths do not match.
pub fn attend(isa: Isa, q: &[f32], keys: &[f32], values: &[f32], scale: f32, state: &mut Softmax<'_>) {
    attend_group(isa, q, keys, values, scale, std::slice::from_mut(state));
}

/// As [`attend`] for the queries `q` `[states, head_dim]` that share keys and values, in one pass over them; the same
/// bits as one by one. Panics when lengths do not match.
pub fn attend_group(isa: Isa, q: &[f32], keys: &[f32], values: &[f32], scale: f32, states: &mut [Softmax<'_>]) {
    let Some(first) = states.first() else {
        assert!(q.is_empty(), "queries without a state");
        return;
    };
    let head_dim = first.out.len();
    assert!(head_dim > 0 && q.len() == states.len() * head_dim, "queries of {} states", states.len());
    assert!(states.iter().all(|state| state.out.len() == head_dim), "one length of heads");
    assert!(keys.len() == values.len() && keys.len().is_multiple_of(head_dim), "keys and values of whole heads");
    attend_checked(isa, q, keys, values, scale, states);
}

fn attend_checked(isa: Isa, q: &[f32], keys: &[f32], values: &[f32], scale: f32, states: &mut [Softmax<'_>]) {
    #[cfg(target_arch = "x86_64")]
    {
        use super::isa::Sets;
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        fn avx512(q: &[f32], keys: &[f32], values: &[f32], scale: f32, states: &mut [Softmax<'_>]) {
            attend_body::<true>(q, keys, values, scale, states);
        }
        if isa.has(Sets::AVX512) {
            // SAFETY: the token is proof of the instruction sets that the function is compiled for.
            return unsafe { avx512(q, keys, values, scale, states) };
        }
    }
    attend_body::<false>(q, keys, values, scale, states);
}

#[inline(always)]
fn attend_body<const FUSED: bool>(q: &[f32], keys: &[f32], values: &[f32], scale: f32, states: &mut [Softmax<'_>]) {
    let head_dim = q.len() / states.len();
    for (keys, values) in keys.chunks(TILE * head_dim).zip(values.chunks(TILE * head_dim)) {
        for (q, state) in q.chunks_exact(head_dim).zip(states.iter_mut()) {
            attend_tile::<FUSED>(q, keys, values, scale, state);
        }
    }
}

#[inline(always)]
fn attend_tile<const FUSED: bool>(q: &[f32], keys: &[f32], values: &[f32], scale: f32, state: &mut Softmax<'_>) {
    let head_dim = q.len();
    let n = keys.len() / head_dim;
    let mut scores = [f32::NEG_INFINITY; TILE];
    for (score, key) in scores.iter_mut().zip(keys.chunks_exact(head_dim)) {
        *score = dot::<FUSED>(q, key) * scale;
    }
    let mut max = state.max;
    for &score in &scores[..n] {
        // A NaN becomes the maximum and then everything.
        max = if score > max || score.is_nan() { score } else { max };
    }
    if max == f32::NEG_INFINITY {
        return;
    }
    let rescale = exp(state.max - max);
    for score in &mut scores {
        *score = exp(*score - max);
    }
    state.max = max;
    let mut lanes = [0.0; LANES];
    for scores in scores.as_chunks::<LANES>().0 {
        for (lane, score) in lanes.iter_mut().zip(scores) {
            *lane += score;
        }
    }
    state.sum = state.sum * rescale + sum_lanes(lanes);
    state.out.iter_mut().for_each(|out| *out *= rescale);
    for (&score, value) in scores.iter().zip(values.chunks_exact(head_dim)) {
        for (out, &value) in state.out.iter_mut().zip(value) {
            *out = multiply_add::<FUSED>(score, value, *out);
        }
    }
}

#[inline(always)]
fn dot<const FUSED: bool>(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for i in 0..LANES {
            lanes[i] = multiply_add::<FUSED>(a[i], b[i], lanes[i]);
        }
    }
    for (i, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[i] = multiply_add::<FUSED>(a, b, lanes[i]);
    }
    sum_lanes(lanes)
}
