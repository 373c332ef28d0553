//! Integers by columns with one token by AVX-512 VNNI: lanes are outputs, and each byte of a double word is an input.

#![allow(clippy::needless_range_loop)] // vectors and planes are indices of several arrays

use super::{load, load_floats, store_floats};
use crate::arch::generic::prefetch::{prefetch, prefetch_near};
use crate::arch::x86_64::prefetch::Reading;
use crate::input::Q8;
use crate::memory;
use crate::ops::columns::TILE;
use crate::order::BLOCK;
use crate::scratch::{Scratch, room};
use crate::{Columns, LANES};
use model_factory_dtypes::PackedDim;
use std::arch::x86_64::*;

/// Vectors of a tile.
const VECTORS: usize = TILE / 16;

/// Words of 4 bits of [`PackedDim::Inputs`] and of [`PackedDim::Outputs`], and of 8 bits.
const NIBBLES: u8 = 0;
const IN_TURNS: u8 = 1;
const BYTES: u8 = 2;

/// Outputs of a task at most. Where the next block of 32 inputs is prefetched into the first-level cache both must fit it.
pub(crate) fn most_outputs(bits: usize) -> usize {
    match Reading::of_this_processor() {
        Reading::OneStream => 4096 / bits,
        Reading::FourStreams => usize::MAX,
    }
}

/// The outputs of whole tiles from `first` on, in the order of tiles, as their `factors` are, `[groups, outputs]`: the scales, and if
/// there are any what activations are multiplied with and added.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn one_token(
    scratch: &mut Scratch,
    (columns, first): (&Columns<'_>, usize),
    bits: usize,
    x: [Q8<'_>; 2],
    factors: [&[f32]; 2],
    y: &mut [f32],
) -> memory::Result<()> {
    let all = (columns, first, factors);
    match (columns.packed, bits, factors[1].is_empty()) {
        (PackedDim::Outputs, ..) => tiles::<IN_TURNS, true>(scratch, all, x, y),
        (PackedDim::Inputs, 4, true) => tiles::<NIBBLES, false>(scratch, all, x, y),
        (PackedDim::Inputs, 4, false) => tiles::<NIBBLES, true>(scratch, all, x, y),
        (PackedDim::Inputs, _, true) => tiles::<BYTES, false>(scratch, all, x, y),
        (PackedDim::Inputs, _, false) => tiles::<BYTES, true>(scratch, all, x, y),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tiles<const LAYOUT: u8, const BASES: bool>(
    Scratch { bytes, floats, ints, .. }: &mut Scratch,
    (columns, first, [scales, bases]): (&Columns<'_>, usize, [&[f32]; 2]),
    x: [Q8<'_>; 2],
    y: &mut [f32],
) -> memory::Result<()> {
    let blocks = x[0].scales.len();
    // Rows of words of a block, and bytes of a row and of a tile in it.
    let (rows, row_bytes, tile_bytes) = match LAYOUT {
        NIBBLES => (4, 4 * columns.width, 4 * TILE),
        BYTES => (8, 4 * columns.width, 4 * TILE),
        _ => (BLOCK, columns.width / 2, TILE / 2),
    };
    let first = first * row_bytes / columns.width;
    // Of each block four activations a double word, and what the offset of integers adds too much.
    let x_bytes = room(bytes, 2 * blocks * BLOCK)?.as_chunks_mut::<4>().0.as_chunks_mut::<8>().0.as_chunks_mut::<2>().0;
    let x_offsets = room(ints, 2 * blocks)?.as_chunks_mut::<2>().0;
    for (b, (bytes, offsets)) in x_bytes.iter_mut().zip(&mut *x_offsets).enumerate() {
        for p in 0..2 {
            let block = &x[p].bytes[b * BLOCK..][..BLOCK];
            for (q, four) in bytes[p].iter_mut().enumerate() {
                let at = |i: usize| if LAYOUT == NIBBLES { q / 2 * 8 + 2 * i + q % 2 } else { 4 * q + i };
                *four = std::array::from_fn(|i| block[at(i)] as u8);
            }
            offsets[p] = x[p].offsets[b] >> if LAYOUT == BYTES { 0 } else { 4 };
        }
    }
    let count = y.len();
    assert!(count.is_multiple_of(TILE) && columns.words.len() >= blocks * rows * row_bytes);
    assert!(first + count / TILE * tile_bytes <= row_bytes);
    // From one group to the next, and blocks of a group.
    let (stride, each) = (scales.len() * columns.group / (blocks * BLOCK), columns.group / BLOCK);
    let near = Reading::of_this_processor() == Reading::OneStream;
    // The sums of each lane, `[lanes, outputs, planes]`. Blocks are read in the order of memory.
    let sums = room(floats, 2 * count * LANES)?;
    sums.fill(0.0);
    for b in 0..blocks {
        let lane = &mut sums[b % LANES * 2 * count..][..2 * count];
        for (tile, sums) in lane.as_chunks_mut::<16>().0.as_chunks_mut::<{ 2 * VECTORS }>().0.iter_mut().enumerate() {
            let bytes = columns.words.as_ptr().wrapping_add(b * rows * row_bytes + first + tile * tile_bytes);
            for row in rows..2 * rows {
                let ahead = bytes.wrapping_add(row * row_bytes);
                if near { prefetch_near(ahead, tile_bytes) } else { prefetch(ahead, tile_bytes) }
            }
            let words = |row: usize, v: usize| {
                // SAFETY: the rows of a block have the tile, by the lengths above, and 64 bytes for each of its vectors.
                load(unsafe { &*bytes.add(row * row_bytes + 64 * v).cast() })
            };
            // Macros: closures that are called in several places become functions, and vectors go through memory.
            macro_rules! add {
                ($dots:expr, $bytes:expr, $q:expr) => {
                    for p in 0..2 {
                        let x = _mm512_set1_epi32(i32::from_le_bytes(x_bytes[b][p][$q]));
                        $dots[p] = _mm512_dpbusd_epi32($dots[p], $bytes, x);
                    }
                };
            }
            let of_tile = b / each * stride + tile * TILE;
            let scales = scales[of_tile..][..TILE].as_chunks::<16>().0;
            let bases = if BASES { bases[of_tile..][..TILE].as_chunks::<16>().0 } else { &[] };
            macro_rules! add_scaled {
                ($v:expr, $dots:expr) => {
                    for p in 0..2 {
                        let by = _mm512_mul_ps(load_floats(&scales[$v]), _mm512_set1_ps(x[p].scales[b]));
                        let sums = &mut sums[2 * $v + p];
                        let mut sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps($dots[p]), by, load_floats(sums));
                        if BASES {
                            sum = _mm512_fmadd_ps(load_floats(&bases[$v]), _mm512_set1_ps(x[p].sums[b]), sum);
                        }
                        store_floats(sums, sum);
                    }
                };
            }
            let offsets = [_mm512_set1_epi32(x_offsets[b][0]), _mm512_set1_epi32(x_offsets[b][1])];
            // Few registers at a time: words of all vectors do not fit them.
            for half in 0..if LAYOUT == IN_TURNS { 2 } else { 0 } {
                let mut dots = [offsets; VECTORS / 2];
                for q in 0..rows / 4 {
                    let mut four = [_mm512_setzero_si512(); 4];
                    for i in 0..4 {
                        four[i] = words(4 * q + i, 0);
                    }
                    let fours = if half == 0 { in_fours::<false>(four) } else { in_fours::<true>(four) };
                    for r in 0..2 {
                        let [low, high] = nibbles(fours[r]);
                        add!(dots[2 * r], low, q);
                        add!(dots[2 * r + 1], high, q);
                    }
                }
                for v in 0..VECTORS / 2 {
                    add_scaled!(VECTORS / 2 * half + v, dots[v]);
                }
            }
            for v in 0..if LAYOUT == IN_TURNS { 0 } else { VECTORS } {
                let mut dots = offsets;
                for row in 0..rows {
                    if LAYOUT == BYTES {
                        add!(dots, words(row, v), row);
                        continue;
                    }
                    let [evens, odds] = nibbles(words(row, v));
                    add!(dots, evens, 2 * row);
                    add!(dots, odds, 2 * row + 1);
                }
                add_scaled!(v, dots);
            }
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        let (sums, others) = sums.split_at_mut(half * 2 * count);
        for (sum, other) in sums.as_chunks_mut::<16>().0.iter_mut().zip(others.as_chunks::<16>().0) {
            store_floats(sum, _mm512_add_ps(load_floats(sum), load_floats(other)));
        }
        half /= 2;
    }
    for (y, planes) in y.as_chunks_mut::<16>().0.iter_mut().zip(sums.as_chunks::<16>().0.as_chunks::<2>().0) {
        store_floats(y, _mm512_add_ps(load_floats(&planes[0]), load_floats(&planes[1])));
    }
    Ok(())
}

/// The low nibbles of bytes, and the high ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn nibbles(bytes: __m512i) -> [__m512i; 2] {
    let low = _mm512_set1_epi8(15);
    [_mm512_and_si512(bytes, low), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), low)]
}

/// Byte `i` of double word `j` of four vectors as two vectors of double words with a byte of each: those of the first or the last two
/// bytes `i` of each four.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn in_fours<const LAST: bool>([a, b, c, d]: [__m512i; 4]) -> [__m512i; 2] {
    let [ab, cd] = match LAST {
        false => [_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d)],
        true => [_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d)],
    };
    [_mm512_unpacklo_epi16(ab, cd), _mm512_unpackhi_epi16(ab, cd)]
}
