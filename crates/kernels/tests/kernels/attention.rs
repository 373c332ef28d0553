//! Attention to floats, beside double precision and by every instruction set.

use super::Isa;
use super::testing::{Random, each_isa};
use half::f16;
use model_factory_kernels::{Element, KvElement, KvTile, Query, Scoring, Slope, TILE, attend, put_key, put_value};
use std::ops::Range;

/// Keys and values `[n, head_dim]` as tiles; positions that no query sees are NaN.
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

const SCORING: Scoring = Scoring { scale: 0.3, cap: None, first: 0 };

/// The queries `q` `[heads, head_dim]` attend to the keys from `first` on.
pub(super) fn attended<E: KvElement>(
    isa: Isa,
    q: &[f32],
    tiles: &[[Vec<E>; 2]],
    keys: Range<usize>,
    heads: usize,
) -> Vec<f32> {
    attended_by(SCORING, isa, q, tiles, keys, heads)
}

fn attended_by<E: KvElement>(
    scoring: Scoring,
    isa: Isa,
    q: &[f32],
    tiles: &[[Vec<E>; 2]],
    keys: Range<usize>,
    heads: usize,
) -> Vec<f32> {
    let head_dim = q.len() / heads;
    let mut out = vec![f32::NAN; q.len()];
    let of = |q, out| Query::new(q, out);
    let mut queries: Vec<Query<'_>> =
        q.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)).map(|(q, out)| of(q, out)).collect();
    for (i, [tile_keys, values]) in tiles.iter().enumerate() {
        let seen = keys.start.saturating_sub(i * TILE).min(TILE)..keys.end.saturating_sub(i * TILE).min(TILE);
        let tile = KvTile { keys: &tile_keys[..], values };
        // Prefetches change nothing.
        attend(isa, &mut queries, tile, seen, (heads % 2 == 1).then_some(tile), scoring);
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
                let seen = range.start.saturating_sub(i * TILE).min(TILE)..range.end.saturating_sub(i * TILE).min(TILE);
                attend(isa, std::slice::from_mut(&mut query), KvTile { keys, values }, seen, None, SCORING);
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
                // The bound for one pass, with two roundings more for each part.
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

/// Attention by its definition, in f64.
pub(super) fn oracle(q: &[f32], keys: &[f32], values: &[f32]) -> Vec<f64> {
    capped_oracle(q, keys, values, |score| score)
}

fn capped_oracle(q: &[f32], keys: &[f32], values: &[f32], cap: impl Fn(f64) -> f64) -> Vec<f64> {
    scored_oracle(q, keys, values, |_, score| cap(score))
}

fn scored_oracle(q: &[f32], keys: &[f32], values: &[f32], of: impl Fn(usize, f64) -> f64) -> Vec<f64> {
    let product = |key: &[f32]| 0.3 * q.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum::<f64>();
    let scores: Vec<f64> = keys.chunks_exact(q.len()).enumerate().map(|(i, key)| of(i, product(key))).collect();
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
fn a_sink_takes_weight_and_adds_nothing() {
    let mut random = Random::new(16);
    let (head_dim, n) = (20, 130);
    let (q, keys, values) = (random.floats(head_dim), random.floats(n * head_dim), random.floats(n * head_dim));
    let tiles = tiles(&keys, &values, head_dim, f32::NAN);
    for sink in [-20.0, 0.3, 7.0, 200.0] {
        let scores = keys.chunks_exact(head_dim).map(|key| 0.3 * q.iter().zip(key).map(|(q, k)| q * k).sum::<f32>());
        let sum: f64 = scores.map(|score| f64::from(score - sink).exp()).sum();
        let truth = oracle(&q, &keys, &values).into_iter().map(|out| out * sum / (sum + 1.0));
        let mut out = vec![f32::NAN; head_dim];
        let mut query = Query::new(&q, &mut out);
        for (i, [keys, values]) in tiles.iter().enumerate() {
            let tile = KvTile { keys, values };
            attend(Isa::detect(), std::slice::from_mut(&mut query), tile, 0..TILE.min(n - i * TILE), None, SCORING);
        }
        query.sink(sink);
        query.finish();
        for (out, truth) in out.iter().zip(truth) {
            assert!((f64::from(*out) - truth).abs() < 2e-5, "{sink}: {out} for {truth}");
        }
    }
}

/// Slopes of ALiBi, of several queries of one call at different positions; positions before the first tile are 640. A bias of
/// the same numbers gives the same bits.
#[test]
fn distances_are_taken_from_scores() {
    let mut random = Random::new(17);
    for (head_dim, n) in [(20, 130), (64, 200)] {
        let (q, keys, values) = (random.floats(3 * head_dim), random.floats(n * head_dim), random.floats(n * head_dim));
        let tiles = tiles(&keys, &values, head_dim, f32::NAN);
        let slopes = [0.5, 0.044_194_173, 0.003_906_25];
        let fall = |slope: f32| (0..640 + n).map(|key| -(slope * (640 + n - 1 - key) as f32)).collect::<Vec<_>>();
        let biases = slopes.map(fall);
        let by = |isa, biased| {
            let mut out = vec![f32::NAN; q.len()];
            let heads =
                q.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)).zip(slopes.into_iter().zip(&biases));
            let mut queries: Vec<Query<'_>> = heads
                .map(|((q, out), (slope, bias))| match biased {
                    true => Query::new(q, out).biased(Some(&bias[..])),
                    false => Query::new(q, out).sloped(Some(Slope { slope, position: 640 + n - 1 })),
                })
                .collect();
            for (i, [keys, values]) in tiles.iter().enumerate() {
                let scoring = Scoring { first: 640 + i * TILE, ..SCORING };
                attend(isa, &mut queries, KvTile { keys, values }, 0..TILE.min(n - i * TILE), None, scoring);
            }
            queries.into_iter().for_each(Query::finish);
            out
        };
        for isa in each_isa() {
            assert_eq!(by(isa, false), by(isa, true), "{isa} {head_dim}");
            for ((q, out), slope) in q.chunks_exact(head_dim).zip(by(isa, false).chunks_exact(head_dim)).zip(slopes) {
                let truth =
                    scored_oracle(q, &keys, &values, |key, score| score - f64::from(slope) * (n - 1 - key) as f64);
                for (out, truth) in out.iter().zip(truth) {
                    // The bound without slopes: a rounding of a score of up to 100 is 4e-6, of the largest weights less.
                    assert!((f64::from(*out) - truth).abs() < 2e-5, "{isa} {head_dim} {slope}: {out} for {truth}");
                }
            }
        }
        if let [Some(avx2), Some(avx512)] = ["avx2", "avx512"].map(Isa::named) {
            assert_eq!(by(avx2, false), by(avx512, false), "{head_dim}");
        }
    }
}

/// Scores of up to 20 are capped at 5 and at 50: a missing cap, or one applied to positions that are not seen, shows.
#[test]
fn caps_scores() {
    let mut random = Random::new(15);
    for (head_dim, keys) in [(20, 3..70), (64, 0..130), (96, 64..81)] {
        let n = keys.end;
        let q: Vec<f32> = random.floats(3 * head_dim).iter().map(|x| x * 4.0).collect();
        let (cached, values) = (random.floats(n * head_dim), random.floats(n * head_dim));
        let tiles = tiles(&cached, &values, head_dim, f32::NAN);
        for cap in [5.0, 50.0] {
            let scoring = Scoring { cap: Some(cap), ..SCORING };
            let by = |isa| attended_by(scoring, isa, &q, &tiles, keys.clone(), 3);
            for isa in each_isa() {
                let outs = by(isa);
                for (q, outs) in q.chunks_exact(head_dim).zip(outs.chunks_exact(head_dim)) {
                    let cap = |score: f64| f64::from(cap) * (score / f64::from(cap)).tanh();
                    let from = keys.start * head_dim;
                    let truth = capped_oracle(q, &cached[from..], &values[from..], cap);
                    for (out, truth) in outs.iter().zip(truth) {
                        // The bound without a cap, which makes differences of scores smaller.
                        assert!((f64::from(*out) - truth).abs() < 2e-5, "{isa} {head_dim} {cap}", cap = cap(1e9));
                    }
                }
            }
            if let [Some(avx2), Some(avx512)] = ["avx2", "avx512"].map(Isa::named) {
                assert_eq!(by(avx2), by(avx512), "{head_dim} {cap}");
            }
        }
    }
}

#[test]
fn halves_give_the_bits_of_the_floats_they_stand_for() {
    let mut random = Random::new(13);
    for isa in each_isa() {
        for (head_dim, n, heads) in [(1, 3, 17), (20, 70, 5), (64, 130, 20), (80, 17, 16), (128, 64, 19), (192, 64, 17)]
        {
            let q = random.floats(heads * head_dim);
            let rounded = |x: Vec<f32>| -> Vec<f16> { x.into_iter().map(f16::from_f32).collect() };
            let (keys, values) = (rounded(random.floats(n * head_dim)), rounded(random.floats(n * head_dim)));
            let wide = |x: &[f16]| -> Vec<f32> { x.iter().map(|x| x.to_f32()).collect() };
            let floats = tiles(&wide(&keys), &wide(&values), head_dim, f32::NAN);
            let halves = tiles(&keys, &values, head_dim, f16::NAN);
            let expected = attended(isa, &q, &floats, 0..n, heads);
            assert_eq!(attended(isa, &q, &halves, 0..n, heads), expected, "{isa} {head_dim} {n} {heads}");
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

/// Values that are the first elements of keys have the bits of the same values apart, and shorter ones those of longer ones.
#[test]
fn values_may_be_the_first_elements_of_keys() {
    fn check<E: KvElement + Default>(put: impl Fn(&mut [E], usize, &[f32], bool)) {
        let (mut random, n) = (Random::new(44), 50);
        for (dim, value_dim) in [(48, 32), (80, 64), (576, 512)] {
            let (q, cache) = (random.floats(3 * dim), random.floats(n * dim));
            let tile = |elements: usize, is_key| {
                let mut tile = vec![E::default(); E::tile_len(elements)];
                let heads = cache.chunks_exact(dim).enumerate();
                heads.for_each(|(position, head)| put(&mut tile, position, &head[..elements], is_key));
                tile
            };
            let (keys, apart) = (tile(dim, true), tile(value_dim, false));
            let mut values = vec![E::default(); apart.len()];
            E::values_of_keys(&keys, dim, &mut values, value_dim);
            for isa in each_isa() {
                let attended = |values: &[E], len: usize| {
                    let mut out = vec![f32::NAN; 3 * len];
                    let queries = q.chunks_exact(dim).zip(out.chunks_exact_mut(len));
                    let mut queries: Vec<Query<'_>> = queries.map(|(q, out)| Query::new(q, out)).collect();
                    attend(isa, &mut queries, KvTile { keys: &keys, values }, 0..n, None, SCORING);
                    queries.into_iter().for_each(Query::finish);
                    out.chunks_exact(len).flat_map(|out| out[..value_dim].to_vec()).collect::<Vec<f32>>()
                };
                let whole = attended(&tile(dim, false), dim);
                assert!(attended(&values, value_dim) == whole && attended(&apart, value_dim) == whole, "{isa} {dim}");
            }
        }
    }
    fn floats<E: KvElement + Default>(convert: impl Fn(f32) -> E) {
        check(|tile: &mut [E], position, head, is_key| {
            for (d, &x) in head.iter().enumerate() {
                tile[if is_key { d * TILE + position } else { position * head.len() + d }] = convert(x);
            }
        });
    }
    floats(|x| x);
    floats(f16::from_f32);
    check(|tile: &mut [u8], position, head, is_key| {
        assert!(if is_key { put_key(tile, position, head) } else { put_value(tile, position, head) });
    });
}
