//! Where kernels write, and how many rows a task should have.

use super::arch::generic::tiles;
use super::dtypes::scaled::CallScales;
use super::input::Q8;
use super::ops::vector::{Floats, for_each_float, scale_floats};
use super::order::{GROUP, TOKENS_WITHOUT_PANELS};
use super::scratch::{Scratch, with_scratch};
use super::{Form, Input, Isa, Kernel};
use crate::memory::{self, OutOfMemory};

/// One call of a kernel: rows of a weight times the activations of some tokens, and the outputs `[tokens, rows]`.
pub(super) struct Call<'a> {
    pub(super) weight: &'a [u8],
    /// The scales of all rows' blocks in order, of a dtype that has them apart.
    pub(super) scales: CallScales<'a>,
    pub(super) input: &'a Input,
    y: &'a mut [f32],
    rows: usize,
    /// What the products of each row, or of all, are still to be multiplied by.
    pub(super) row_scales: Option<Floats<'a>>,
    /// Memory that the kernel needed for its work and was refused.
    refused: Option<OutOfMemory>,
}

impl<'a> Call<'a> {
    /// Panics if `y` has another length than `[tokens, rows]`; a token may have several rows of the input.
    pub(super) fn new(
        weight: &'a [u8],
        scales: CallScales<'a>,
        input: &'a Input,
        rows: usize,
        y: &'a mut [f32],
    ) -> Call<'a> {
        let tokens = input.tokens() / input.form().rows_of_token();
        assert_eq!(y.len(), tokens * rows, "outputs of {tokens} tokens and {rows} rows");
        Call { weight, scales, input, y, rows, row_scales: None, refused: None }
    }

    /// Writes the scale of each row, if there are any, for a kernel that multiplies by them.
    #[inline(always)]
    pub(super) fn take_row_scales(&mut self, to: &mut [f32]) {
        if let Some(scales) = self.row_scales.take() {
            assert!(scales.len() == self.rows || scales.len() == 1, "{} scales of {} rows", scales.len(), self.rows);
            for_each_float(scales, |row, scale| if scales.len() == 1 { to.fill(scale) } else { to[row] = scale });
        }
    }

    /// Multiplies by the scales that the kernel has not taken.
    pub(super) fn scale_rows(&mut self, isa: Isa) {
        if let Some(scales) = self.row_scales.take() {
            self.y.chunks_exact_mut(self.rows).for_each(|y| scale_floats(isa, y, scales));
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the tokens are so few that they are multiplied one after the other: unpacking a panel would take longer. If they are,
    /// `multiply(scratch, weight, x, y)` is called for each, with the `P` rows of the input that it has.
    #[inline(always)]
    pub(super) fn few_tokens<const P: usize>(
        &mut self,
        multiply: impl Fn(&mut Scratch, &[u8], [Q8<'_>; P], &mut [f32]) -> memory::Result<()>,
    ) -> bool {
        let (weight, input) = (self.weight, self.input);
        let few = input.tokens() <= TOKENS_WITHOUT_PANELS;
        for token in 0..if few { input.tokens() / P } else { 0 } {
            let x = std::array::from_fn(|part| input.q8(P * token + part));
            let y = self.part(token, 0, self.rows);
            let done = with_scratch(|scratch| multiply(scratch, weight, x, y));
            self.note(done);
        }
        few
    }

    /// Takes how the kernel fared: without memory for its work it writes nothing.
    pub(super) fn note(&mut self, done: memory::Result<()>) {
        self.refused = self.refused.or(done.err());
    }

    /// How the kernel fared.
    pub(super) fn into_result(self) -> memory::Result<()> {
        self.refused.map_or(Ok(()), Err)
    }

    /// The outputs of `len` rows from `row` on, for `token`. Panics when there are not so many.
    #[inline]
    pub(super) fn part(&mut self, token: usize, row: usize, len: usize) -> &mut [f32] {
        self.tile([token, 1], [row, len]).0
    }

    /// The outputs from `row` of `token` to the last of `len` rows of the last of `tokens`, and how many lie from one token to the
    /// next. Panics when there are not so many.
    #[inline]
    pub(super) fn tile(&mut self, [token, tokens]: [usize; 2], [row, len]: [usize; 2]) -> (&mut [f32], usize) {
        assert!(tokens > 0 && row <= self.rows && len <= self.rows - row);
        (&mut self.y[token * self.rows + row..][..(tokens - 1) * self.rows + len], self.rows)
    }
}

impl Kernel {
    /// Rows of `inputs` elements that the next task computes while `left` bytes of weights of a region are not handed out
    /// yet; a multiple of the tiles of prompts. For one token and for a few there are many at first, because memory serves
    /// long runs of rows faster, and fewer and fewer, so that the threads end together. For a prompt there are as many as
    /// stay in the second-level cache while all tokens pass, since each task reads all activations: fewer in blocks, which
    /// grow when they are unpacked. Their rows are rounded up to a number of tiles, others to the nearest: twice as many long
    /// ones would not stay. Panics when `inputs` are no whole number of blocks.
    pub fn rows_per_task(&self, left: usize, inputs: usize, tokens: usize, threads: usize) -> usize {
        // `missing`: rows that may be missing to a tile which the task takes on.
        let (most, shares, tile, missing) = match self.form {
            _ if tokens == 1 && self.is_by_tiles() => (512 << 10, 2, tiles::ROWS, tiles::ROWS - 1),
            _ if tokens == 1 => (512 << 10, 2, 8, 7),
            _ if tokens <= GROUP => (512 << 10, 2, 32, 16),
            Form::Q8 | Form::Q16 => (128 << 10, 1, 32, 31),
            _ if self.is_by_tiles() => (tiles::BAND * tiles::ROWS * self.row_bytes(inputs), 1, 32, 16),
            _ => (384 << 10, 1, 32, 16),
        };
        let bytes = (left / (shares * threads)).min(most);
        let rows = bytes / self.row_bytes(inputs).max(1);
        ((rows + missing) / tile * tile).max(tile)
    }
}
