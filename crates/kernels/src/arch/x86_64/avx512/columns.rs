//! Integers by columns with one token by AVX-512 VNNI: lanes are outputs, and each byte of a double word is an input.

#![allow(clippy::needless_range_loop)] // vectors and planes are indices of several arrays

use super::{load, load_floats, store_floats};
use crate::arch::generic::prefetch::prefetch;
use crate::input::Q8;
use crate::memory;
use crate::ops::columns::{TILE, Token};
use crate::order::BLOCK;
use crate::scratch::{Scratch, room};
use crate::{Columns, LANES, Words};
use std::arch::x86_64::*;

/// Vectors of a tile.
const VECTORS: usize = TILE / 16;

/// Blocks that are prefetched ahead in the first tile; others are prefetched while the tile before is multiplied.
const AHEAD: usize = 4;

/// Words of 4 bits of [`Words::OfInputs`] and of [`Words::OfOutputs`], and of 8 bits.
const NIBBLES: u8 = 0;
const IN_TURNS: u8 = 1;
const BYTES: u8 = 2;

/// The outputs of whole tiles from `token.first` on, in the order of tiles.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) fn one_token(
    scratch: &mut Scratch,
    columns: &Columns<'_>,
    bits: usize,
    x: [Q8<'_>; 2],
    token: Token<'_>,
    y: &mut [f32],
) -> memory::Result<()> {
    match (columns.of, bits) {
        (Words::OfOutputs, _) => tiles::<IN_TURNS>(scratch, columns, x, token, y),
        (Words::OfInputs, 4) => tiles::<NIBBLES>(scratch, columns, x, token, y),
        (Words::OfInputs, _) => tiles::<BYTES>(scratch, columns, x, token, y),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tiles<const LAYOUT: u8>(
    Scratch { bytes, ints, .. }: &mut Scratch,
    columns: &Columns<'_>,
    x: [Q8<'_>; 2],
    token: Token<'_>,
    y: &mut [f32],
) -> memory::Result<()> {
    let blocks = x[0].scales.len();
    // Rows of words of a block, and bytes of a row and of a tile in it.
    let (rows, row_bytes, tile_bytes) = match LAYOUT {
        NIBBLES => (4, 4 * columns.width, 4 * TILE),
        BYTES => (8, 4 * columns.width, 4 * TILE),
        _ => (BLOCK, columns.width / 2, TILE / 2),
    };
    let first = token.first * row_bytes / columns.width;
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
    assert!(first + count / TILE * tile_bytes <= row_bytes && token.scales.len() == blocks / token.each * count);
    let low = _mm512_set1_epi8(15);
    for (tile, y) in y.as_chunks_mut::<TILE>().0.iter_mut().enumerate() {
        let mut lanes = [[[_mm512_setzero_ps(); 2]; VECTORS]; LANES];
        for b in 0..blocks {
            // SAFETY: the rows of the block have the tile, by the lengths above.
            let block = unsafe { columns.words.as_ptr().add(b * rows * row_bytes + first + tile * tile_bytes) };
            let next = if tile == 0 { block.wrapping_add(AHEAD * rows * row_bytes) } else { block.wrapping_add(tile_bytes) };
            for row in 0..rows {
                prefetch(next.wrapping_add(row * row_bytes), tile_bytes);
                if tile == 0 {
                    prefetch(block.wrapping_add(row * row_bytes + tile_bytes), tile_bytes);
                }
            }
            let words = |row: usize, v: usize| {
                // SAFETY: the reason above holds here too.
                load(unsafe { &*block.add(row * row_bytes + 64 * v).cast() })
            };
            let mut dots = [[_mm512_setzero_si512(); 2]; VECTORS];
            for v in 0..VECTORS {
                for p in 0..2 {
                    dots[v][p] = _mm512_set1_epi32(x_offsets[b][p]);
                }
            }
            let add = |dots: &mut [__m512i; 2], bytes: __m512i, q: usize| {
                for p in 0..2 {
                    let x = _mm512_set1_epi32(i32::from_le_bytes(x_bytes[b][p][q]));
                    dots[p] = _mm512_dpbusd_epi32(dots[p], bytes, x);
                }
            };
            match LAYOUT {
                NIBBLES => {
                    for row in 0..4 {
                        for v in 0..VECTORS {
                            let words = words(row, v);
                            add(&mut dots[v], _mm512_and_si512(words, low), 2 * row);
                            add(&mut dots[v], _mm512_and_si512(_mm512_srli_epi16::<4>(words), low), 2 * row + 1);
                        }
                    }
                }
                BYTES => {
                    for row in 0..8 {
                        for v in 0..VECTORS {
                            add(&mut dots[v], words(row, v), row);
                        }
                    }
                }
                _ => {
                    for q in 0..8 {
                        let four = [words(4 * q, 0), words(4 * q + 1, 0), words(4 * q + 2, 0), words(4 * q + 3, 0)];
                        let high = four.map(|words| _mm512_and_si512(_mm512_srli_epi16::<4>(words), low));
                        for (h, bytes) in [four.map(|words| _mm512_and_si512(words, low)), high].into_iter().enumerate() {
                            for (r, bytes) in in_fours(bytes).into_iter().enumerate() {
                                add(&mut dots[2 * r + h], bytes, q);
                            }
                        }
                    }
                }
            }
            let scales = &token.scales[b / token.each * count + tile * TILE..][..TILE].as_chunks::<16>().0;
            for v in 0..VECTORS {
                let scales = load_floats(&scales[v]);
                for p in 0..2 {
                    let by = _mm512_mul_ps(scales, _mm512_set1_ps(x[p].scales[b]));
                    let lane = &mut lanes[b % LANES][v][p];
                    *lane = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[v][p]), by, *lane);
                }
            }
        }
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                for v in 0..VECTORS {
                    for p in 0..2 {
                        lanes[i][v][p] = _mm512_add_ps(lanes[i][v][p], lanes[i + half][v][p]);
                    }
                }
            }
        }
        for (v, y) in y.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            store_floats(y, _mm512_add_ps(lanes[0][v][0], lanes[0][v][1]));
        }
    }
    Ok(())
}

/// Byte `i` of double word `j` of four vectors as four vectors of double words with a byte of each: vector `i % 4` of each four
/// double words has their first to last bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn in_fours([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab, cd) = (_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d));
    let (ab_high, cd_high) = (_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d));
    [
        _mm512_unpacklo_epi16(ab, cd),
        _mm512_unpackhi_epi16(ab, cd),
        _mm512_unpacklo_epi16(ab_high, cd_high),
        _mm512_unpackhi_epi16(ab_high, cd_high),
    ]
}
