//! Tiles of floats: every key and value is widened without loss, in a register or for many queries before.

#![allow(clippy::needless_range_loop)] // queries, keys and vectors are indices of several arrays

use super::Attention;
use super::ahead::Ahead;
use super::passes::{Attend, COLUMNS};
use super::{Compiled, Element, KvElement, Query, TILE};
use std::ops::Range;

impl<E: Element + Compiled> KvElement for E {
    const INTEGERS: bool = false;
    const WIDENS: bool = size_of::<E>() < size_of::<f32>();

    fn tile_len(head_dim: usize) -> usize {
        TILE * head_dim
    }

    fn used_keys(head_dim: usize, positions: usize) -> impl Iterator<Item = Range<usize>> {
        (0..head_dim).map(move |row| row * TILE..row * TILE + positions)
    }

    fn used_values(head_dim: usize, positions: usize) -> impl Iterator<Item = Range<usize>> {
        std::iter::once(0..positions * head_dim)
    }

    fn values_of_keys(keys: &[E], head_dim: usize, values: &mut [E], value_dim: usize) {
        assert!(keys.len() == TILE * head_dim && values.len() == TILE * value_dim && value_dim <= head_dim);
        // By squares, so that what is written stays in the cache until its line is full.
        const SIDE: usize = 16;
        for first in (0..value_dim).step_by(SIDE) {
            let side = SIDE.min(value_dim - first);
            for position in 0..TILE {
                let to = &mut values[position * value_dim + first..][..side];
                to.iter_mut()
                    .zip(keys[first * TILE + position..].iter().step_by(TILE))
                    .for_each(|(to, key)| *to = *key);
            }
        }
    }

    fn products(q: &[f32], keys: &[E]) -> [f32; TILE] {
        let mut products = [0.0; TILE];
        for (q, keys) in q.iter().zip(keys.as_chunks::<TILE>().0) {
            products.iter_mut().zip(keys).for_each(|(product, key)| *product += q * key.wide());
        }
        products
    }

    fn add(weights: &[f32; TILE], values: &[E], seen: &Range<usize>, out: &mut [f32]) {
        let values = values.chunks_exact(out.len());
        for (&weight, value) in weights.iter().zip(values).take(seen.end).skip(seen.start) {
            out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value.wide());
        }
    }

    #[inline(always)]
    unsafe fn widened<S: Attend>(simd: S, at: *const E) -> S::Floats {
        // SAFETY: the caller guarantees it.
        unsafe { E::load::<S, true>(simd, at, S::LANES) }
    }

    #[inline(always)]
    fn steps<S: Attend>(head_dim: usize) -> [usize; 2] {
        let vectors = head_dim.div_ceil(S::LANES);
        let whole = head_dim / (COLUMNS * S::LANES);
        [head_dim, (whole + vectors - whole * COLUMNS) * TILE]
    }

    #[inline(always)]
    fn dots<S: Attend, const Q: usize, const N: usize>(
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

    #[inline(always)]
    fn add_values<S: Attend, const WHOLE: bool, const Q: usize>(
        simd: S,
        queries: &mut [Query<'_>],
        attention: &Attention<'_, E>,
        weights: &[[f32; TILE]; Q],
        rescale: &[f32; Q],
        mut ahead: Ahead,
    ) {
        let head_dim = queries[0].out.len();
        let mut at = 0;
        while at < head_dim {
            if head_dim - at >= COLUMNS * S::LANES {
                add_columns::<S, E, true, Q, COLUMNS>(simd, queries, attention, weights, rescale, at, ahead);
                at += COLUMNS * S::LANES;
            } else {
                add_columns::<S, E, WHOLE, Q, 1>(simd, queries, attention, weights, rescale, at, ahead);
                at += S::LANES;
            }
            ahead = ahead.after(TILE);
        }
    }
}

/// Like [`KvElement::add_values`], for the `WIDE` vectors from element `at` on.
#[inline(always)]
fn add_columns<S: Attend, E: Element, const WHOLE: bool, const Q: usize, const WIDE: usize>(
    simd: S,
    queries: &mut [Query<'_>],
    attention: &Attention<'_, E>,
    weights: &[[f32; TILE]; Q],
    rescale: &[f32; Q],
    at: usize,
    ahead: Ahead,
) {
    // These are copied: through a reference they would be loaded again in each step.
    let (values, seen) = (attention.tile.values, attention.seen.clone());
    let head_dim = queries[0].out.len();
    let left = head_dim - at;
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
