//! Products with many tokens for block dtypes: 16 weight rows unpacked once into bytes, then multiplied with all tokens.
//!
//! A panel holds 16 rows so that one vector register has four consecutive elements of each row, and one `vpdpbusd` with
//! four activations of a token, repeated in all lanes, advances 16 outputs. A lane is a row: each output's sum runs
//! through the same operations as in the dtype's product with one token, where a lane is a block.

#![allow(unsafe_code)]

use super::avx512::{load, load_floats, store, store_floats, store_some, transpose};
use super::input::{BLOCK, Packed};
use super::order::{GROUP, Order};
use super::x86::{four_words, prefetch, room, with_scratch};
use super::{Input, LANES, Output};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Rows in a panel.
pub(super) const ROWS: usize = 16;

/// One scale a block, and bytes with an offset of 128 (Q4_0, Q5_0, Q8_0).
pub(super) const SCALES: u8 = 0;
/// One scale and one minimum a block, and unsigned bytes (Q4_K, Q5_K).
pub(super) const SCALES_AND_MINS: u8 = 1;
/// An integer scale each 16 elements, one factor for all of a block, and bytes with an offset of 128 (Q6_K).
pub(super) const HALF_SCALES: u8 = 2;

/// An integer scale and an integer minimum each 16 elements, two factors for all of a block, and unsigned bytes (Q2_K):
/// both scales and their factor, then both minima and theirs.
pub(super) const HALF_SCALES_AND_MINS: u8 = 3;

/// The memory of one panel, to be filled by the dtype.
pub(super) struct Panel<'a> {
    order: Order,
    /// Where the bytes of the next panel begin.
    next: *const u8,
    /// Whether half of the next panel's bytes are asked for while this one is multiplied.
    halved: bool,
    /// `[blocks, 8, 16 rows, 4]`
    bytes: &'a mut [[[u8; 64]; 8]],
    /// `[blocks, floats a block, 16 rows]`
    floats: &'a mut [[f32; ROWS]],
}

impl Panel<'_> {
    /// Asks for as much of the next panel's rows, in the time in which the `i`-th `len` bytes of this one are unpacked, or
    /// for half as much, of the first half.
    #[inline]
    pub(super) fn ask_ahead(&self, i: usize, len: usize) {
        if self.halved {
            prefetch(self.next.wrapping_add(i * (len / 2)), len / 2);
        } else {
            prefetch(self.next.wrapping_add(i * len), len);
        }
    }

    /// Puts in elements `64 * i ..` of all rows.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn put(&mut self, i: usize, rows: &[__m512i; ROWS]) {
        let columns = transpose(rows);
        for (b, columns) in [2 * i, 2 * i + 1].into_iter().zip(columns.as_chunks::<8>().0) {
            self.put_columns(b, columns);
        }
    }

    /// Puts in block `b`: column `c` has elements `4 * c ..` of all rows.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn put_columns(&mut self, b: usize, columns: &[__m512i; 8]) {
        if let Some(place) = self.order.place(b) {
            for (bytes, &column) in self.bytes[place].iter_mut().zip(columns) {
                store(bytes, column);
            }
        }
    }

    /// Puts in `N` floats of block `b`, each a vector of 16 rows.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn put_floats<const N: usize>(&mut self, b: usize, rows: [__m512; N]) {
        if let Some(place) = self.order.place(b) {
            for (floats, row) in self.floats[place * N..][..N].iter_mut().zip(rows) {
                store_floats(floats, row);
            }
        }
    }
}

/// The 64 bytes at `at` of a super-block of 16 rows, transposed.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn columns<const BYTES: usize>(blocks: &[&[u8; BYTES]; ROWS], at: usize) -> [__m512i; 16] {
    let mut rows = [_mm512_setzero_si512(); ROWS];
    for (row, block) in rows.iter_mut().zip(blocks) {
        *row = block[at..].first_chunk().map_or(*row, |bytes| load(bytes));
    }
    transpose(&rows)
}

/// Fills a panel with rows of blocks of 32 that begin with their scale, four blocks at a time, whose bytes are `FOUR`;
/// `put(fours, i, panel)` puts in the elements of the `i`-th four blocks of all rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn unpack_blocks<const BYTES: usize, const FOUR: usize>(
    rows: &[u8],
    inputs: usize,
    panel: &mut Panel<'_>,
    put: impl Fn(&[&[u8; FOUR]; ROWS], usize, &mut Panel<'_>),
) {
    const { assert!(FOUR == 4 * BYTES) };
    let blocks = inputs / BLOCK;
    let row_bytes = blocks * BYTES;
    let (zeros, mut padded) = ([0; FOUR], [[0; FOUR]; ROWS]);
    for i in 0..blocks.div_ceil(4) {
        panel.ask_ahead(i, ROWS * FOUR);
        let mut fours = [&zeros; ROWS];
        if 4 * (i + 1) <= blocks {
            for (r, four) in fours.iter_mut().enumerate() {
                // Rows that are not there are zeros.
                *four = rows.get(r * row_bytes + i * FOUR..).and_then(|bytes| bytes.first_chunk()).unwrap_or(&zeros);
            }
        } else {
            for ((row, padded), four) in rows.chunks_exact(row_bytes).zip(&mut padded).zip(&mut fours) {
                let rest = &row[i * FOUR..];
                padded[..rest.len()].copy_from_slice(rest);
                *four = padded;
            }
        }
        put(&fours, i, panel);
        for j in 0..4 {
            let scales = |first: usize| four_words(|r| [fours[first + r][j * BYTES], fours[first + r][j * BYTES + 1]]);
            let scales = _mm256_setr_epi64x(scales(0), scales(4), scales(8), scales(12));
            panel.put_floats(4 * i + j, [_mm512_cvtph_ps(scales)]);
        }
    }
}

/// The floats that a kind has for each block.
const fn floats_a_block(kind: u8) -> usize {
    [1, 2, 3, 6][kind as usize]
}

/// Multiplies rows with tokens; `unpack(rows, panel)` fills a panel with up to 16 rows of stored bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn matmul<const KIND: u8>(
    weight: &[u8],
    input: &Input,
    output: &mut Output<'_>,
    unpack: impl Fn(&[u8], &mut Panel<'_>),
) {
    let order = Order::new(input.inputs() / BLOCK);
    let row_bytes = weight.len() / output.rows();
    let (bytes_each, floats_each) = (order.blocks * BLOCK * ROWS, order.blocks * floats_a_block(KIND) * ROWS);
    // With at most a group of tokens memory is the bound: each panel is multiplied before the next is unpacked, and the
    // next one's bytes are asked for half in the one time, half in the other. With more, all panels are unpacked first, and
    // each group of tokens passes all of them.
    let few = input.tokens() <= GROUP;
    let panels = if few { 1 } else { output.rows().div_ceil(ROWS) };
    let done = with_scratch(|scratch| {
        let bytes = room(&mut scratch.bytes, panels * bytes_each)?;
        let floats = room(&mut scratch.floats, panels * floats_each)?;
        for (i, part) in weight.chunks(panels * ROWS * row_bytes).enumerate() {
            let places = bytes.chunks_exact_mut(bytes_each).zip(floats.chunks_exact_mut(floats_each));
            for (rows, (bytes, floats)) in part.chunks(ROWS * row_bytes).zip(places) {
                let mut panel = Panel {
                    order,
                    next: rows.as_ptr_range().end,
                    halved: few,
                    bytes: bytes.as_chunks_mut().0.as_chunks_mut().0,
                    floats: floats.as_chunks_mut().0,
                };
                unpack(rows, &mut panel);
            }
            let first_row = i * panels * ROWS;
            for token in (0..input.tokens()).step_by(GROUP) {
                let x = input.packed(token / GROUP);
                let (next, ask) = (part.as_ptr_range().end, if few { part.len() / 2 } else { 0 });
                let tiles = Tiles { order, bytes, floats, first_row, x, next: next.wrapping_add(ask), ask };
                match tiles.x.tokens {
                    1 => tiles.multiply::<KIND, 1>(token, output),
                    2 => tiles.multiply::<KIND, 2>(token, output),
                    3 => tiles.multiply::<KIND, 3>(token, output),
                    4 => tiles.multiply::<KIND, 4>(token, output),
                    5 => tiles.multiply::<KIND, 5>(token, output),
                    6 => tiles.multiply::<KIND, 6>(token, output),
                    7 => tiles.multiply::<KIND, 7>(token, output),
                    _ => tiles.multiply::<KIND, GROUP>(token, output),
                }
            }
        }
        Ok(())
    });
    output.note(done);
}

/// Panels that follow each other, and the tokens that they are multiplied with.
struct Tiles<'a> {
    order: Order,
    bytes: &'a [u8],
    floats: &'a [f32],
    first_row: usize,
    x: Packed<'a>,
    /// What is asked for while the panel is multiplied: `ask` bytes, none where there are several panels.
    next: *const u8,
    ask: usize,
}

impl Tiles<'_> {
    /// All panels times the `T` tokens, the first of which is `token`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn multiply<const KIND: u8, const T: usize>(&self, token: usize, output: &mut Output<'_>) {
        let blocks = self.order.blocks;
        let (bytes_each, floats_each) = (blocks * BLOCK * ROWS, blocks * floats_a_block(KIND) * ROWS);
        let panels = self.bytes.chunks_exact(bytes_each).zip(self.floats.chunks_exact(floats_each));
        for (i, (bytes, floats)) in panels.enumerate() {
            let sums = tile::<KIND, T>(bytes, floats, &self.order, &self.x, self.next, self.ask / LANES);
            let row = self.first_row + i * ROWS;
            let rows = ROWS.min(output.rows() - row);
            for (t, sums) in sums.into_iter().enumerate() {
                store_some(output.part(token + t, row, rows), sums);
            }
        }
    }
}

/// One panel times `T` tokens; with each lane `ask` bytes from `next` on are asked for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tile<const KIND: u8, const T: usize>(
    bytes: &[u8],
    floats: &[f32],
    order: &Order,
    x: &Packed<'_>,
    next: *const u8,
    ask: usize,
) -> [__m512; T] {
    let blocks = order.blocks;
    assert!(bytes.len() >= blocks * BLOCK * ROWS && floats.len() >= blocks * floats_a_block(KIND) * ROWS);
    assert!(x.bytes.len() >= blocks * T * BLOCK && x.floats.len() >= blocks * 2 * T && x.ints.len() >= blocks * 3 * T);
    let zero = _mm512_setzero_ps();
    // The sums of 1, 2, 4 and 8 lanes that wait for those to be added to; nothing is read that was not put in.
    let mut waiting = [const { MaybeUninit::<[__m512; T]>::uninit() }; 4];
    let mut place = 0;
    for i in 0..LANES {
        prefetch(next.wrapping_add(i * ask), ask);
        let mut sums = [zero; T];
        for _ in 0..order.count(i) {
            // SAFETY: the counts add up to `blocks`, and the lengths above are those of `blocks` blocks.
            unsafe { block::<KIND, T>(bytes, floats, place, x, &mut sums) };
            place += 1;
        }
        let ones = (i as u32).trailing_ones() as usize;
        for waiting in &waiting[..ones] {
            // SAFETY: the lane whose number has a 0 instead of this 1 and ones below was put there, and none since.
            let waiting = unsafe { waiting.assume_init_ref() };
            for t in 0..T {
                sums[t] = _mm512_add_ps(waiting[t], sums[t]);
            }
        }
        match waiting.get_mut(ones) {
            Some(waiting) => _ = waiting.write(sums),
            None => return sums,
        }
    }
    unreachable!("the last lane's number is all ones")
}

/// Adds the block at `place` of 16 rows to the sums of `T` tokens.
///
/// # Safety
/// The panel and `x` have that block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn block<const KIND: u8, const T: usize>(
    bytes: &[u8],
    floats: &[f32],
    place: usize,
    x: &Packed<'_>,
    sums: &mut [__m512; T],
) {
    // SAFETY: the caller's: 16 rows of a block.
    let w = unsafe { &*bytes.as_ptr().add(place * BLOCK * ROWS).cast::<[[u8; 64]; 8]>() };
    // SAFETY: the caller's: the floats of a block for 16 rows.
    let w_floats = unsafe { &*floats.as_ptr().add(place * floats_a_block(KIND) * ROWS).cast::<[f32; ROWS]>() };
    let w_floats = |i: usize| {
        // SAFETY: `i < floats_a_block(KIND)`.
        load_floats(unsafe { &*std::ptr::from_ref(w_floats).add(i) })
    };
    // SAFETY: the caller's: a block of `T` tokens.
    let x_bytes = unsafe { &*x.bytes.as_ptr().add(place * T * BLOCK).cast::<[[[i8; 4]; 8]; T]>() };
    // SAFETY: the caller's.
    let [scales, x_sums] = unsafe { &*x.floats.as_ptr().add(place * 2 * T).cast::<[[f32; T]; 2]>() };
    // SAFETY: the caller's.
    let offsets = unsafe { &*x.ints.as_ptr().add(place * 3 * T).cast::<[[i32; T]; 3]>() };

    let products = |groups: std::ops::Range<usize>, mut sums: [__m512i; T]| {
        for group in groups {
            let w = load(&w[group]);
            for t in 0..T {
                let x = _mm512_set1_epi32(i32::from_le_bytes(x_bytes[t][group].map(|x| x as u8)));
                sums[t] = _mm512_dpbusd_epi32(sums[t], w, x);
            }
        }
        sums
    };
    if KIND == HALF_SCALES || KIND == HALF_SCALES_AND_MINS {
        let start = |half: usize, t: usize| {
            if KIND == HALF_SCALES { _mm512_set1_epi32(offsets[half][t]) } else { _mm512_setzero_si512() }
        };
        let first = products(0..4, std::array::from_fn(|t| start(1, t)));
        let second = products(4..8, std::array::from_fn(|t| start(2, t)));
        for t in 0..T {
            // |sum| <= 16 * 32 * 127 < 2^16 and |scale| <= 2^7: both products and their sum are exact in f32.
            let sum = _mm512_mul_ps(_mm512_cvtepi32_ps(first[t]), w_floats(0));
            let sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(second[t]), w_floats(1), sum);
            sums[t] = _mm512_fmadd_ps(sum, _mm512_mul_ps(w_floats(2), _mm512_set1_ps(scales[t])), sums[t]);
            if KIND == HALF_SCALES_AND_MINS {
                // The offsets are -128 times a sum; what follows is exact too.
                let x_sum = |half: usize| _mm512_cvtepi32_ps(_mm512_set1_epi32(offsets[half][t] >> 7));
                let less = _mm512_fmadd_ps(x_sum(2), w_floats(4), _mm512_mul_ps(x_sum(1), w_floats(3)));
                sums[t] = _mm512_fmadd_ps(less, _mm512_mul_ps(w_floats(5), _mm512_set1_ps(scales[t])), sums[t]);
            }
        }
        return;
    }
    let start = |t: usize| if KIND == SCALES { _mm512_set1_epi32(offsets[0][t]) } else { _mm512_setzero_si512() };
    let dots = products(0..8, std::array::from_fn(start));
    for t in 0..T {
        let factor = _mm512_mul_ps(w_floats(0), _mm512_set1_ps(scales[t]));
        sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t]), factor, sums[t]);
        if KIND == SCALES_AND_MINS {
            sums[t] = _mm512_fnmadd_ps(w_floats(1), _mm512_set1_ps(x_sums[t]), sums[t]);
        }
    }
}
