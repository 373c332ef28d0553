//! Attention to caches in Q8_0: what is kept, and its products.

use super::Isa;
use super::attention::{attended, oracle};
use super::testing::{Random, each_isa};
use half::f16;
use model_factory_kernels::{KvElement, TILE, put_key, put_value};

const HEAD_DIMS: [usize; 10] = [1, 8, 20, 31, 32, 33, 64, 80, 96, 128];

/// The values of heads in blocks, as llama.cpp's Q8_0 is defined: a scale of the largest magnitude / 127 in F16, and the
/// nearest multiples of it.
fn rounded(heads: &[f32], head_dim: usize) -> Vec<f32> {
    let mut rounded = Vec::new();
    for block in heads.chunks(head_dim).flat_map(|head| head.chunks(32)) {
        let largest = block.iter().fold(0.0, |a: f32, x| a.max(x.abs()));
        let scale = f16::from_f32(largest / 127.0).to_f32();
        rounded.extend(block.iter().map(|x| (x / scale).round_ties_even() * scale));
    }
    rounded
}

/// Keys and values `[n, head_dim]` as tiles; bytes that no query sees are all ones, and such a scale is NaN.
fn tiles(keys: &[f32], values: &[f32], head_dim: usize) -> Vec<[Vec<u8>; 2]> {
    let heads = keys.chunks_exact(head_dim).zip(values.chunks_exact(head_dim)).enumerate();
    let mut tiles = vec![[(); 2].map(|()| vec![0xff; u8::tile_len(head_dim)]); heads.len().div_ceil(TILE)];
    for (i, (key, value)) in heads {
        let [keys, values] = &mut tiles[i / TILE];
        assert!(put_key(keys, i % TILE, key) && put_value(values, i % TILE, value));
    }
    tiles
}

#[test]
fn agrees_with_the_oracle_and_with_single_queries() {
    let mut random = Random::new(31);
    let mut worst = 0f64;
    for isa in each_isa() {
        for head_dim in HEAD_DIMS {
            for (first, n) in [(0, 1), (1, 2), (0, 15), (3, 16), (62, 63), (0, 64), (63, 65), (64, 130), (70, 300)] {
                let q: Vec<f32> = random.floats(7 * head_dim).iter().map(|x| x * 4.0).collect();
                let (keys, values) = (random.floats(n * head_dim), random.floats(n * head_dim));
                let tiles = tiles(&keys, &values, head_dim);
                let together = attended(isa, &q, &tiles, first..n, 7);
                let [keys, values] = [&keys, &values].map(|x| rounded(&x[first * head_dim..], head_dim));
                for (q, together) in q.chunks_exact(head_dim).zip(together.chunks_exact(head_dim)) {
                    assert_eq!(attended(isa, q, &tiles, first..n, 1), together, "{isa} {head_dim} {first}..{n}");
                    for (&out, truth) in together.iter().zip(oracle(q, &keys, &values)) {
                        // An element of a query is off by up to 4 / 2^16, evenly, 3.5e-5 in the mean square; 128 of
                        // them times keys of 0.58 make 2.3e-4, and a score is 0.3 of it: 7e-5. A weight is off by
                        // up to 2^-16 of the largest, 64 of them by 4e-5. Six times both together. Bytes are off by
                        // up to 4e-3.
                        let error = (f64::from(out) - truth).abs();
                        assert!(error < 5e-4, "{isa} {head_dim} {first}..{n}: {out} for {truth}");
                        worst = worst.max(error);
                    }
                }
            }
        }
    }
    assert!(worst > 2e-5, "words round what floats do not: {worst}");
}

#[test]
fn gives_the_same_bits_by_every_vector_instruction_set() {
    let mut random = Random::new(32);
    let vectors: Vec<Isa> = each_isa().into_iter().filter(|isa| isa.name() != "portable").collect();
    for (head_dim, n) in [(20, 70), (33, 17), (64, 130), (96, 17), (128, 64)] {
        let (q, cache) = (random.floats(3 * head_dim), random.floats(n * head_dim));
        let tiles = tiles(&cache, &cache, head_dim);
        let bits = vectors.iter().map(|isa| attended(*isa, &q, &tiles, 0..n, 3));
        let bits: Vec<_> = bits.collect();
        assert!(bits.windows(2).all(|pair| pair[0] == pair[1]), "{head_dim} {n}");
    }
}

#[test]
fn blocks_hold_what_a_scale_can_say_and_nothing_else() {
    // 127 times the largest F16, and the least that is rounded beyond it.
    let (most, beyond) = (127.0 * 65504.0, 127.0 * 65520.0);
    for put in [put_key, put_value] {
        for (x, held) in [(most, true), (-most, true), (beyond, false), (f32::NAN, false), (f32::NEG_INFINITY, false)] {
            let mut head = [1.0; 40];
            head[37] = x;
            assert_eq!(put(&mut vec![0; u8::tile_len(40)], 5, &head), held, "{x}");
        }
    }
    // Numbers for which no scale is small enough become zeros, and zeros stay.
    for small in [0.0, 1e-7, -1e-40] {
        let tiles = tiles(&[1.0; 32], &[small; 32], 32);
        for isa in each_isa() {
            assert_eq!(attended(isa, &[1.0; 32], &tiles, 0..1, 1), [0.0; 32], "{isa} {small}");
        }
    }
}

#[test]
fn passes_on_what_is_not_finite_in_a_query_and_accepts_extremes() {
    let tiles = tiles(&[0.5; 70 * 16], &[1.0; 70 * 16], 16);
    for isa in each_isa() {
        for x in [f32::NAN, f32::INFINITY] {
            let mut q = [1.0; 16];
            q[3] = x;
            assert!(attended(isa, &q, &tiles, 0..70, 1).iter().all(|x| x.is_nan()), "{isa}");
        }
        for x in [0.0, 1e-40, 1e30] {
            for out in attended(isa, &[x; 16], &tiles, 0..70, 1) {
                // The values are equal: at most half a word's error for each of 64 weights, and the error of the scale, 2^-12.
                assert!((out - 1.0).abs() < 1.5e-3, "{isa} {x}: {out}");
            }
        }
        assert_eq!(attended(isa, &[1.0; 16], &tiles, 5..5, 1), [0.0; 16]);
    }
}
