//! Words by columns -> rows of words.

use super::{OUTPUTS, PLACES};
use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::isa::Sets;
use model_factory_dtypes::PackedDim;
use std::ops::Range;

/// Turns the columns `outputs` of rows of words for `width` outputs into rows.
pub(super) fn turn(isa: Isa, packed: PackedDim, matrix: (&[u8], usize), outputs: Range<usize>, rows: &mut [u8]) {
    #[cfg(target_arch = "aarch64")]
    {
        let _ = isa;
        vectors::turn(packed, matrix, outputs, rows);
    }
    #[cfg(not(target_arch = "aarch64"))]
    {
        #[cfg(target_arch = "x86_64")]
        if isa.has(Sets::AVX2) {
            // SAFETY: the token proves the instruction sets.
            return unsafe { vectors::turn(packed, matrix, outputs, rows) };
        }
        let _ = isa;
        turn_by(packed, matrix, outputs, rows, |rows| {
            let mut columns = [[0; 32]; 8];
            for (i, row) in rows.into_iter().enumerate() {
                let words = row.as_chunks::<4>().0;
                columns.iter_mut().zip(words).for_each(|(to, word)| to[4 * i..][..4].copy_from_slice(word));
            }
            columns
        });
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vectors {
    use super::{PackedDim, Range, turn_by};
    use crate::arch::generic::wide::{all, for_vectors, load, stored, transpose};

    for_vectors! {
        pub(super) fn turn(packed: PackedDim, matrix: (&[u8], usize), outputs: Range<usize>, rows: &mut [u8]) -> () {
            turn_by(packed, matrix, outputs, rows, |rows| {
                let (mut eight, mut columns) = ([all(0); 8], [[0; 32]; 8]);
                // No closures for arrays: they become functions, and vectors go through memory.
                for (eight, row) in eight.iter_mut().zip(rows) {
                    *eight = load(row);
                }
                for (column, eight) in columns.iter_mut().zip(transpose(eight)) {
                    *column = stored(eight);
                }
                columns
            });
        }
    }
}

/// Like [`turn`], where `transposed` has the columns of eight rows of eight words.
#[inline(always)]
fn turn_by(
    packed: PackedDim,
    (words, width): (&[u8], usize),
    outputs: Range<usize>,
    rows: &mut [u8],
    transposed: impl Fn([&[u8; 32]; 8]) -> [[u8; 32]; 8],
) {
    // Outputs of a tile, which are a few lines of memory of each row of words.
    const WIDE: usize = 64;
    let row_bytes = rows.len() / outputs.len();
    let mut tile = [[0; 4 * WIDE]; 8];
    for (first, rows) in outputs.clone().step_by(WIDE).zip(rows.chunks_mut(WIDE * row_bytes)) {
        let some = rows.len() / row_bytes;
        for at in (0..row_bytes).step_by(32) {
            let left = (row_bytes - at).min(32) / 4;
            for (k, tile) in tile[..left].iter_mut().enumerate().map(|(k, tile)| (at / 4 + k, tile)) {
                match packed {
                    PackedDim::Inputs => {
                        tile[..4 * some].copy_from_slice(&words[4 * (k * width + first)..][..4 * some]);
                    }
                    PackedDim::Outputs => {
                        let mut eight = [[0; WIDE / OUTPUTS]; 8];
                        for (i, to) in eight.iter_mut().enumerate() {
                            let from = &words[((8 * k + i) * width + first) / 2..][..some / 2];
                            let from = from.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
                            to.iter_mut().zip(from).for_each(|(to, word)| *to = word);
                        }
                        turn_nibbles(&mut eight);
                        let eight = PLACES.map(|place| {
                            let mut bytes = [0; 32];
                            let words = bytes.as_chunks_mut().0.iter_mut().zip(eight[place]);
                            words.for_each(|(to, word)| *to = word.to_le_bytes());
                            bytes
                        });
                        let eight = transposed(eight.each_ref());
                        tile.as_chunks_mut().0.iter_mut().zip(eight).for_each(|(to, words)| *to = words);
                    }
                }
            }
            for (r, rows) in rows.chunks_mut(8 * row_bytes).enumerate() {
                let eight = transposed(tile.each_ref().map(|row| &row.as_chunks().0[r]));
                for (row, turned) in rows.chunks_exact_mut(row_bytes).zip(&eight) {
                    match row[at..].first_chunk_mut() {
                        Some(whole) => *whole = *turned,
                        None => row[at..].copy_from_slice(&turned[..4 * left]),
                    }
                }
            }
        }
    }
}

/// Turns sets of eight words of eight nibbles: nibble `i` of word `j` becomes nibble `j` of word `i`.
#[inline(always)]
fn turn_nibbles<const SETS: usize>(words: &mut [[u32; SETS]; 8]) {
    for (apart, mask) in [(1, 0x0f0f_0f0f), (2, 0x00ff_00ff), (4, 0x0000_ffff_u32)] {
        let bits = 4 * apart;
        for i in (0..8).filter(|i| i & apart == 0) {
            let (before, after) = words.split_at_mut(i + apart);
            for (a, b) in before[i].iter_mut().zip(&mut after[0]) {
                (*a, *b) = (*a & mask | (*b & mask) << bits, *a >> bits & mask | *b & !mask);
            }
        }
    }
}
