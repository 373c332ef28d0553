//! Products by tiles (Intel AMX): 16 rows of weights times 16 tokens, 64 bytes of each at a time.
//!
//! The left factor is rows of weights as they are stored. The right one is activations in groups of 16 tokens ([`Tiled`]), four bytes of
//! each token in turns: two BF16 or four int8. A sum follows from its row and its token, whatever else is in the tiles, so it has
//! the same bits with one token and with many.
//!
//! The tests have the same in plain Rust (`tiles/model.rs`): layouts and remainders are tested on every machine, and processors against it.

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // no other processors have tiles

use crate::dtypes::i8::{sum_of, without_zero};
use crate::input::Input;
use crate::input::tiled::Tiled;
use crate::scratch::{Scratch, room, swap_scratch};
use crate::{Call, memory};
use std::ops::Range;

/// Rows of a tile.
pub(crate) const ROWS: usize = 16;

/// Bytes of a row of a tile.
pub(crate) const ROW: usize = 64;

/// Bytes of a tile.
pub(crate) const TILE: usize = ROWS * ROW;

/// A tile of sums as bits: `[row of weights][token]`.
pub(crate) type Sums = [[u32; ROWS]; ROWS];

/// With at most so many tokens weights are read where they are: to copy them would take longer than it saves.
const DIRECT: usize = 2 * ROWS;

/// Tiles of weights that are multiplied with all tokens before others are: each time the tokens come from the third-level cache.
pub(crate) const BAND: usize = 16;

/// Steps that these tiles are copied for at a time, at most: a megabyte, half of the second-level cache of the processors that have tiles.
const STEPS: usize = 64;

/// Tokens whose sums are kept where rows have more steps.
const TOKENS: usize = 512;

/// One or two tiles of weights.
#[derive(Clone, Copy)]
pub(crate) struct Weights {
    /// Where they begin.
    pub(crate) tiles: [*const u8; 2],
    pub(crate) count: usize,
    /// Bytes from one row to the next.
    pub(crate) stride: usize,
    /// Bytes from one step to the next.
    pub(crate) advance: usize,
    /// Where prefetching begins with two groups of tokens: 256 bytes a step.
    pub(crate) ahead: *const u8,
}

/// A processor's tiles, or their model.
pub(crate) trait Tiles: Sized {
    /// Ready for groups of so many tokens, at most [`ROWS`]; 0 if there is no second group.
    ///
    /// # Safety
    /// The processor has what the implementation needs.
    unsafe fn new(tokens: [usize; 2]) -> Self;

    /// Sums over `steps` of 64 bytes, at least one: of the first tile and the first group, of the first and the second, of the second and the
    /// first, of the second and the second. If it does not begin them, they go on from what they are.
    ///
    /// # Safety
    /// The tiles and the groups have so many steps.
    unsafe fn multiply<P: Product>(
        &self,
        weights: Weights,
        tokens: [*const u8; 2],
        steps: usize,
        begins: bool,
        sums: &mut [Sums; 4],
    );

    /// Of each token the sums of all rows.
    ///
    /// # Safety
    /// The processor has what the implementation needs.
    unsafe fn by_token(sums: &Sums) -> Sums;
}

/// What tiles multiply.
pub(crate) trait Product {
    /// Whether it is int8, else BF16.
    const INT8: bool;

    /// Whether outputs need the sum of each row of weights.
    fn needs_sums(input: &Input) -> bool;

    /// The outputs of a token, of its sums.
    fn outputs(sums: &[u32; ROWS], rows: OfRows<'_>, input: &Input, token: usize) -> [f32; ROWS];
}

/// What outputs need of the rows of a tile.
#[derive(Clone, Copy)]
pub(crate) struct OfRows<'a> {
    /// The sum of each row of weights.
    sums: &'a [i32; ROWS],
    /// What its products are multiplied by.
    scales: &'a [f32; ROWS],
}

/// BF16: of each step 16 products of even elements in a chain of fused multiplications and additions, likewise of odd ones; both are
/// added, and what that gives to the sum. Subnormal numbers are zeros, before and after each operation.
pub(crate) struct Bf16;

impl Product for Bf16 {
    const INT8: bool = false;

    fn needs_sums(_: &Input) -> bool {
        false
    }

    #[inline(always)]
    fn outputs(sums: &[u32; ROWS], _: OfRows<'_>, _: &Input, _: usize) -> [f32; ROWS] {
        sums.map(f32::from_bits)
    }
}

/// Int8: exact in 32 bits.
pub(crate) struct Int8;

impl Product for Int8 {
    const INT8: bool = true;

    fn needs_sums(input: &Input) -> bool {
        (0..input.tokens()).any(|token| input.int8_scale(token).1 != 0)
    }

    #[inline(always)]
    fn outputs(sums: &[u32; ROWS], rows: OfRows<'_>, input: &Input, token: usize) -> [f32; ROWS] {
        let (scale, zero) = input.int8_scale(token);
        let mut outputs = [0.0; ROWS];
        for r in 0..ROWS {
            outputs[r] = without_zero(sums[r] as i32, zero, rows.sums[r]) as f32 * scale * rows.scales[r];
        }
        outputs
    }
}

/// Rows times tokens.
///
/// # Safety
/// The processor has what `T` needs.
#[inline(always)]
pub(crate) unsafe fn multiply<T: Tiles, P: Product>(call: &mut Call<'_>) {
    // Memory is taken from the thread and put back: a closure that computed there would be compiled without the instruction sets.
    let mut scratch = Scratch::default();
    swap_scratch(&mut scratch);
    // SAFETY: the caller guarantees it.
    let done = unsafe { multiply_in::<T, P>(&mut scratch, call) };
    swap_scratch(&mut scratch);
    call.note(done);
}

/// Like [`multiply`], with memory for what is copied and for sums.
///
/// # Safety
/// The processor has what `T` needs.
#[inline(always)]
unsafe fn multiply_in<T: Tiles, P: Product>(scratch: &mut Scratch, call: &mut Call<'_>) -> memory::Result<()> {
    let (weight, input) = (call.weight, call.input);
    let row_bytes = weight.len() / call.rows();
    let steps = row_bytes.div_ceil(ROW);
    let direct = input.tokens() <= DIRECT && row_bytes.is_multiple_of(ROW);
    let (band, blocks) = if direct { (usize::MAX, 1) } else { (BAND, steps.div_ceil(STEPS)) };
    let all_rows = call.rows().next_multiple_of(ROWS);
    let sums_of_rows = room(&mut scratch.ints, all_rows)?;
    sums_of_rows.fill(0);
    if P::needs_sums(input) {
        sums_of_rows.iter_mut().zip(weight.chunks_exact(row_bytes)).for_each(|(sum, row)| *sum = sum_of(row));
    }
    let scales = room(&mut scratch.floats, all_rows)?;
    scales.fill(1.0);
    if P::INT8 {
        call.take_row_scales(scales);
    }
    for first_row in (0..call.rows()).step_by(band.saturating_mul(ROWS)) {
        let rows = (call.rows() - first_row).min(band.saturating_mul(ROWS));
        let band = Band {
            weight: &weight[first_row * row_bytes..][..rows * row_bytes],
            row_bytes,
            first_row,
            tiles: rows.div_ceil(ROWS),
            in_place: if direct { rows / ROWS } else { 0 },
            most: steps.div_ceil(blocks),
        };
        let copied = (band.tiles - band.in_place) * band.most * TILE;
        let at_once =
            if blocks > 1 { input.tokens().min(TOKENS).div_ceil(2 * ROWS) * band.tiles.div_ceil(2) } else { 1 };
        let (copied, sums) = room(&mut scratch.bytes, copied + at_once * size_of::<[Sums; 4]>())?.split_at_mut(copied);
        let of_rows = (&sums_of_rows[first_row..], &scales[first_row..]);
        for tokens in (0..input.tokens()).step_by(TOKENS) {
            let groups = tokens / ROWS..input.tokens().min(tokens + TOKENS).div_ceil(ROWS);
            for first in (0..steps).step_by(band.most) {
                band.copy(first, copied);
                // SAFETY: the caller guarantees it.
                unsafe {
                    band.multiply::<T, P>(
                        first..steps.min(first + band.most),
                        groups.clone(),
                        copied,
                        of_rows,
                        sums,
                        call,
                    )
                };
            }
        }
    }
    Ok(())
}

/// Rows of weights, in tiles.
struct Band<'a> {
    weight: &'a [u8],
    row_bytes: usize,
    first_row: usize,
    tiles: usize,
    /// How many of the tiles are read where they are; the others are copied.
    in_place: usize,
    /// Steps that are copied at a time, at most.
    most: usize,
}

impl Band<'_> {
    /// Copies the steps from `first` on of the tiles that are not read where they are.
    #[inline(always)]
    fn copy(&self, first: usize, copied: &mut [u8]) {
        let tiles = self.weight.chunks(ROWS * self.row_bytes).skip(self.in_place);
        for (rows, copied) in tiles.zip(copied.chunks_exact_mut(self.most * TILE)) {
            copy(rows, self.row_bytes, first, copied);
        }
    }

    /// The tile of weights `tile`, and the next one if there is one that lies as the first does, and `two` are wanted.
    #[inline(always)]
    fn tiles(&self, tile: usize, two: bool, copied: &[u8]) -> Weights {
        let is_in_place = tile < self.in_place;
        let end = if is_in_place { self.in_place } else { self.tiles };
        let (from, tile, stride, advance, bytes) = match is_in_place {
            true => (self.weight, tile, self.row_bytes, ROW, ROWS * self.row_bytes),
            false => (copied, tile - self.in_place, ROW, TILE, self.most * TILE),
        };
        let count = (1 + usize::from(two)).min(end - if is_in_place { tile } else { tile + self.in_place });
        let place = |tile: usize| from[tile * bytes..][..bytes].as_ptr();
        Weights { tiles: [place(tile), place(tile + count - 1)], count, stride, advance, ahead: std::ptr::null() }
    }

    /// Some steps of all tiles with groups of tokens; after the last step the outputs, by the sums of rows and their scales.
    ///
    /// # Safety
    /// The processor has what `T` needs.
    #[inline(always)]
    unsafe fn multiply<T: Tiles, P: Product>(
        &self,
        steps: Range<usize>,
        groups: Range<usize>,
        copied: &[u8],
        (sums_of_rows, scales): (&[i32], &[f32]),
        sums: &mut [u8],
        call: &mut Call<'_>,
    ) {
        let input = call.input;
        let all_steps = self.row_bytes.div_ceil(ROW);
        let sums: &mut [[Sums; 4]] = bytemuck::cast_slice_mut(sums);
        let mut next = 0;
        for first in groups.clone().step_by(2) {
            let two = [0, 1].map(|i| match first + i < groups.end {
                true => input.tiled(first + i),
                false => Tiled { tokens: 0, bytes: &[] },
            });
            assert!(two.iter().all(|group| group.bytes.len() == group.tokens * all_steps * ROW));
            let tokens = two.map(|group| group.bytes[group.tokens * steps.start * ROW..].as_ptr());
            // SAFETY: the caller guarantees it.
            let registers = unsafe { T::new(two.map(|group| group.tokens)) };
            let mut tile = 0;
            while tile < self.tiles {
                // With one group the memory is the bound, which serves fewer rows at once faster.
                let mut weights = self.tiles(tile, two[1].tokens > 0 || tile >= self.in_place, copied);
                // A quarter of these steps of a group after these two.
                let quarter = tile / 2;
                let group = (2 + quarter / 4) * ROWS * all_steps * ROW;
                weights.ahead = tokens[0].wrapping_add(group + quarter % 4 * steps.len() * (TILE / 4));
                let sums = &mut sums[next];
                if steps.len() < all_steps {
                    next += 1;
                }
                // SAFETY: tiles and groups have as many steps.
                unsafe { registers.multiply::<P>(weights, tokens, steps.len(), steps.start == 0, sums) };
                for (i, sums) in
                    sums.iter().enumerate().take(if steps.end == all_steps { 2 * weights.count } else { 0 })
                {
                    let (row, group) = ((tile + i / 2) * ROWS, i % 2);
                    if two[group].tokens == 0 {
                        continue;
                    }
                    let of_rows = OfRows {
                        sums: &sums_of_rows.as_chunks().0[row / ROWS],
                        scales: &scales.as_chunks().0[row / ROWS],
                    };
                    let rows = ROWS.min(self.weight.len() / self.row_bytes - row);
                    let first_token = (first + group) * ROWS;
                    // SAFETY: the caller guarantees it.
                    let by_token = unsafe { T::by_token(sums) };
                    let (to, stride) = call.tile([first_token, two[group].tokens], [self.first_row + row, rows]);
                    // Loops, as closures could be compiled without the instruction sets.
                    for (t, sums) in by_token.iter().enumerate().take(two[group].tokens) {
                        let outputs = P::outputs(sums, of_rows, input, first_token + t);
                        let to = &mut to[t * stride..][..rows];
                        match to.as_mut_array() {
                            Some(to) => *to = outputs,
                            None => put_some(to, &outputs),
                        }
                    }
                }
                tile += weights.count;
            }
        }
    }
}

/// Outputs of a tile that has fewer rows. By itself, so that those of whole tiles are stored at once.
#[cold]
#[inline(never)]
fn put_some(to: &mut [f32], outputs: &[f32; ROWS]) {
    to.copy_from_slice(&outputs[..to.len()]);
}

/// Copies up to 16 rows to a tile for each step from `first` on, with zeros after the end of rows and for those that are missing.
#[inline(always)]
fn copy(rows: &[u8], row_bytes: usize, first: usize, tiles: &mut [u8]) {
    let tiles = tiles.as_chunks_mut::<ROW>().0.as_chunks_mut::<ROWS>().0;
    for r in 0..ROWS {
        let row = rows.get(r * row_bytes..(r + 1) * row_bytes).unwrap_or_default();
        let (whole, rest) = row[(first * ROW).min(row.len())..].as_chunks::<ROW>();
        for (tile, bytes) in tiles.iter_mut().zip(whole) {
            tile[r] = *bytes;
        }
        for (step, tile) in tiles.iter_mut().enumerate().skip(whole.len()) {
            tile[r] = [0; ROW];
            if step == whole.len() {
                tile[r][..rest.len()].copy_from_slice(rest);
            }
        }
    }
}

#[cfg(test)]
mod model;
