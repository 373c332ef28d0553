//! Attention compared with double precision: sizes of heads, both dtypes of the cache, windows, parts, pages.

use super::super::arguments::Attend;
use super::super::attention::{Attention, QueryTiles};
use super::super::buffer::Buffer;
use super::products::{Bench, buffer, bytes_of};
use super::testing::Random;

/// `PAGE` of `common.cuh`.
const PAGE: usize = 256;
const LAYERS: usize = 2;
const KV_HEADS: usize = 2;

/// Rows of one sequence, from `position` on, whose query heads share keys in groups of `group`.
#[derive(Clone, Copy, Debug)]
struct Case {
    dim: usize,
    halves: bool,
    group: usize,
    rows: usize,
    position: usize,
    window: usize,
    parts: usize,
    /// How keys and values differ.
    cached: Cached,
}

/// All kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cached {
    Alike,
    /// Scales of neighboring rows are as far apart as 2^40.
    FarApart,
    /// The key of position 0 is a sink's, and its value 0: other positions weigh two and a half of the least halves,
    /// 2^-24.
    Sink,
}

fn halved(x: f32) -> f32 {
    half::f16::from_f32(x).to_f32()
}

/// Compares the last layer's attention; `false` where nothing can be emulated.
fn compare(case: Case, capability: (u32, u32), random: &mut Random) -> bool {
    let Case { dim, halves, group, rows, position, window, parts, cached: kind } = case;
    let Some(bench) = Bench::new(capability, 256) else { return false };
    let (heads, len) = (group * KV_HEADS, position + rows);
    let attention = Attention::load(&bench.gpu, group, dim, halves).unwrap();
    let total = (heads + 2 * KV_HEADS) * dim;
    let mut qkv: Vec<f32> = random.floats(rows * total).iter().map(|x| x * 2.0).collect();
    // [keys or values, kv head, position, dim]; after the last position everything is NaN.
    let mut cached: Vec<f32> = random.floats(2 * KV_HEADS * len * dim);
    let (keys, values) = cached.split_at_mut(KV_HEADS * len * dim);
    match kind {
        Cached::Alike => {}
        Cached::FarApart => {
            for (index, row) in keys.chunks_exact_mut(dim).enumerate() {
                // All are below 1, so that scores stay below 32.
                row.iter_mut().for_each(|x| *x *= 2f32.powi(-(index as i32 * 7 % 41)));
            }
            // The largest values come late.
            for (index, row) in values.chunks_exact_mut(dim).enumerate() {
                row.iter_mut().for_each(|x| *x *= 2f32.powi(index as i32 * 7 % 41 - 20));
            }
        }
        Cached::Sink => {
            qkv.fill(1.0);
            keys.fill(0.0);
            values.iter_mut().for_each(|x| *x = x.abs());
            for head in 0..KV_HEADS {
                let first = head * len * dim;
                keys[first..first + dim].fill(15.72 / (dim as f32).sqrt());
                values[first..first + dim].fill(0.0);
            }
        }
    }
    let cached: Vec<f32> = cached.into_iter().map(|x| if halves { halved(x) } else { x }).collect();
    let pages: Vec<Buffer> = (0..len.div_ceil(PAGE))
        .map(|page| {
            let mut all = vec![f32::NAN; LAYERS * 2 * KV_HEADS * PAGE * dim];
            for (head, of_head) in cached.chunks_exact(len * dim).enumerate() {
                let own = &of_head[page * PAGE * dim..len.min((page + 1) * PAGE) * dim];
                let at = ((LAYERS - 1) * 2 * KV_HEADS + head) * PAGE * dim;
                all[at..at + own.len()].copy_from_slice(own);
            }
            let bytes = if halves {
                all.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect()
            } else {
                bytes_of(&all)
            };
            // It is as long as the engine's: nothing may be read after it.
            let page = Buffer::new(&bench.gpu, "a page", bytes.len()).unwrap();
            page.upload(0, &bytes).unwrap();
            page
        })
        .collect();
    // The table of pages begins with the pages of another sequence.
    let table: Vec<u8> =
        [0].into_iter().chain(pages.iter().map(|buffer| buffer.address)).flat_map(u64::to_le_bytes).collect();
    let (many, tile) = attention.tile(rows);
    let tiles: Vec<u8> = (0..rows)
        .step_by(tile.rows)
        .flat_map(|first| [first, tile.rows.min(rows - first), position + first, 1])
        .flat_map(|value| (value as i32).to_le_bytes())
        .collect();
    let [of_qkv, of_tiles, of_pages] = [&bytes_of(&qkv), &tiles, &table].map(|bytes| buffer(&bench.gpu, bytes));
    let room = |floats: usize| Buffer::new(&bench.gpu, "a test", 4 * floats).unwrap();
    let (out, partial) = (room(rows * heads * dim), room(rows * heads * parts * (dim + 2)));
    let arrived = buffer(&bench.gpu, &vec![0; 4 * rows * heads]);
    let scale = 1.0 / (dim as f32).sqrt();
    let given = Attend {
        qkv: of_qkv.address,
        out: out.address,
        pages: of_pages.address,
        partial: partial.address,
        arrived: arrived.address,
        heads: heads as i32,
        kv_heads: KV_HEADS as i32,
        layer: LAYERS as i32 - 1,
        window: window as i32,
        scale,
        ..Attend::default()
    };
    let mut queries = [QueryTiles::default(); 2];
    queries[usize::from(many)] = QueryTiles { address: of_tiles.address, count: tiles.len() / 16, parts };
    attention.launch(&bench.multiplier, queries, given).unwrap();
    let found = out.floats(rows * heads * dim).unwrap();

    let (keys, values) = cached.split_at(KV_HEADS * len * dim);
    let largest = f64::from(values.iter().fold(0.0f32, |most, x| most.max(x.abs()))).max(1.0);
    for (index, found) in found.chunks_exact(dim).enumerate() {
        let (row, head) = (index / heads, index % heads);
        let own = position + row;
        let first = if window == 0 { 0 } else { (own + 1).saturating_sub(window) };
        let query = &qkv[row * total + head * dim..][..dim];
        let at = |of: usize| (head / group * len + of) * dim;
        let score = |of: usize| -> f64 {
            let products = query.iter().zip(&keys[at(of)..][..dim]).map(|(q, k)| f64::from(*q) * f64::from(*k));
            products.sum::<f64>() * f64::from(scale)
        };
        let weights: Vec<f64> = (first..=own).map(|of| score(of).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for (i, found) in found.iter().enumerate() {
            let weighted = weights.iter().zip(first..).map(|(weight, of)| weight * f64::from(values[at(of) + i]));
            let expected = weighted.sum::<f64>() / sum;
            // Scores below 32 in F32 are off by 2e-6, and the weights by as large a part of them. Values as sums of two
            // halves are off by 2^-22 of themselves, or by less of the largest.
            let error = (f64::from(*found) - expected).abs() / largest;
            assert!(error <= 4e-6, "{case:?} row {row} head {head} element {i}: {found} for {expected}");
        }
    }
    if parts > 1 {
        // The next layer counts the blocks from 0 again.
        attention.launch(&bench.multiplier, queries, given).unwrap();
        assert_eq!(out.floats(rows * heads * dim).unwrap(), found, "{case:?} element by element, again");
    }
    true
}

#[test]
fn attention_beside_double_precision() {
    let mut random = Random::new(91);
    // Group, rows, position, window, parts: one to four queries a warp, a last tile of each number of queries;
    // sequences that end within, at and after the end of a page; parts without positions. Then more rows, in one tile
    // of queries and several, of heads that fill no tile or more than one.
    let cases = [
        (1, 1, 0, 0, 1),
        (4, 1, 255, 0, 4),
        (7, 1, 300, 100, 2),
        (8, 1, 517, 0, 16),
        (20, 1, 33, 20, 2),
        (2, 8, 250, 0, 1),
        (3, 6, 40, 16, 1),
        (1, 70, 0, 0, 1),
        (2, 13, 250, 0, 1),
        (4, 40, 230, 0, 2),
        (7, 20, 300, 33, 3),
        (71, 9, 5, 0, 1),
    ];
    let mut compared = 0;
    for dim in [18_usize, 64, 80, 100, 128, 256] {
        for halves in [true, false] {
            for (group, rows, position, window, parts) in cases {
                // The kernel for few rows computes many of heads that tensor cores do not take, in more tiles.
                if rows > 13 && (!dim.is_multiple_of(16) || dim > 128) {
                    continue;
                }
                let case = Case { dim, halves, group, rows, position, window, parts, cached: Cached::Alike };
                if !compare(case, (9, 0), &mut random) {
                    return;
                }
                compared += 1;
            }
        }
    }
    let case = Case {
        dim: 64,
        halves: false,
        group: 4,
        rows: 20,
        position: 100,
        window: 0,
        parts: 1,
        cached: Cached::FarApart,
    };
    for case in [
        case,
        Case { rows: 1, ..case },
        Case { position: 1500, cached: Cached::Sink, ..case },
        Case { position: 1500, cached: Cached::Sink, halves: true, parts: 2, ..case },
        // Attention is divided into as many parts as it ever is.
        Case { halves: true, rows: 1, position: 2999, cached: Cached::Alike, ..case },
        Case { halves: true, rows: 1, position: 2999, parts: 64, cached: Cached::Alike, ..case },
    ] {
        compare(case, (9, 0), &mut random);
        compared += 1;
    }
    // A GPU with less shared memory, without the kernel for many rows.
    let case = Case { dim: 256, group: 16, rows: 2, position: 70, cached: Cached::Alike, ..case };
    compare(case, (6, 1), &mut random);
    compare(Case { dim: 64, rows: 20, ..case }, (6, 1), &mut random);
    assert_eq!(compared, 6 * 2 * cases.len() - 3 * 2 * 3 + 6);
}
