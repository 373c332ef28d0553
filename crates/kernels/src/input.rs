//! Activations in f32 -> the form that a kernel reads.

mod columns;
pub(crate) mod int8;
pub(crate) mod quantize;
mod rows;
#[cfg(test)]
mod tests;
pub(crate) mod tiled;

pub use columns::ColumnsMut;

use super::isa::{Isa, Sets};
use super::order::{BLOCK, GROUP, Order, TOKENS_WITHOUT_PANELS};
use crate::memory::{self, Refusals};
use crate::threads::Pool;
use bytemuck::Pod;
use int8::{Extent, Int8Rule};
use rows::RowsMut;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

/// How a kernel reads activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// 32-bit floats as they are.
    #[default]
    F32,
    /// Rounded to the nearest BF16, ties to even.
    Bf16,
    /// Blocks of 32: signed bytes `round(x / scale)`, ties to even, with `scale = absmax / 127` in f32, and sums of the
    /// bytes. A block of zeros has scale 0.
    Q8,
    /// Two rows for each token: [`Form::Q8`], and [`Form::Q8`] of what its rounding leaves. Together they have the activations to
    /// within `absmax / 64516` of a block.
    Q16,
    /// Signed bytes with one scale and one zero point a row.
    Int8(Int8Rule),
}

impl Form {
    /// Whether a kernel that reads `self` reads `other`: rows of int8 are read alike, whatever rule made them, and of 16 bits the
    /// first row may do.
    pub fn is_read_as(self, other: Form) -> bool {
        self == other || matches!((self, other), (Form::Int8(_), Form::Int8(_)) | (Form::Q16, Form::Q8))
    }

    /// Whether rows are blocks of 32.
    pub(super) fn in_blocks(self) -> bool {
        matches!(self, Form::Q8 | Form::Q16)
    }

    /// Rows for each token.
    pub(super) const fn rows_of_token(self) -> usize {
        if matches!(self, Form::Q16) { 2 } else { 1 }
    }
}

/// A vector whose elements start on a cache line, of a type for which all bits are valid.
pub(super) struct Lines<T> {
    lines: Vec<Line>,
    element: PhantomData<T>,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);
// SAFETY: zeros are bytes.
unsafe impl bytemuck::Zeroable for Line {}
// SAFETY: 64 bytes, aligned to 64: no padding, and all bits are valid.
unsafe impl Pod for Line {}

impl<T> Default for Lines<T> {
    fn default() -> Lines<T> {
        Lines { lines: Vec::new(), element: PhantomData }
    }
}

impl<T: Pod> Lines<T> {
    const EACH: usize = 64 / size_of::<T>();

    /// Room for at least `len` elements; what they hold is unspecified.
    pub(super) fn grow(&mut self, len: usize) -> memory::Result<()> {
        memory::lengthen(&mut self.lines, len.div_ceil(Self::EACH), Line([0; 64]), "the input of a product")
    }

    pub(super) fn all(&self) -> &[T] {
        bytemuck::cast_slice(&self.lines)
    }

    pub(super) fn all_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }
}

/// The activations of some tokens `[tokens, inputs]` in the form that kernels read; of each token two rows in [`Form::Q16`], which
/// count as tokens here.
///
/// Rows are an odd number of cache lines apart, so that the same column of many rows falls into different sets of the
/// first-level cache. What lies between rows is unspecified. Memory is kept for the next rows in the same form.
#[derive(Default)]
pub struct Input {
    form: Form,
    tokens: usize,
    inputs: usize,
    layout: Layout,
    /// Whether the rows are arranged for tiles too.
    tiled: bool,
    buffers: Buffers,
}

/// How blocks of several tokens lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Layout {
    /// In rows, for a token at a time or portable code.
    #[default]
    Rows,
    /// In groups, for panels.
    Groups,
    /// In groups of an even number of tokens, of which the last may be none: of each two tokens eight bytes in turns, and floats
    /// of both twice.
    Pairs,
}

impl Layout {
    fn select(isa: Isa, form: Form, tokens: usize) -> Layout {
        match () {
            _ if !form.in_blocks() || tokens <= TOKENS_WITHOUT_PANELS => Layout::Rows,
            _ if isa.has(Sets::I8MM) => Layout::Pairs,
            _ if isa.has(Sets::AVX2) || isa.has(Sets::NEON) => Layout::Groups,
            _ => Layout::Rows,
        }
    }

    /// Of a group of so many tokens, how many there is room for.
    fn width(self, tokens: usize) -> usize {
        if self == Layout::Pairs { tokens.next_multiple_of(2) } else { tokens }
    }

    /// Floats of a token in a block of a group.
    fn floats(self) -> usize {
        if self == Layout::Pairs { 4 } else { 2 }
    }

    /// Where, among as many of each token of a group, the scales of a block or their sums are those of token `t`.
    fn float(self, t: usize) -> usize {
        if self == Layout::Pairs { t / 2 * 4 + t % 2 } else { t }
    }

    /// Where eight bytes of the `blocks` of a group of `width` tokens are: the `i`-th eight of token `t` in the block at `place`.
    fn eight(self, place: usize, width: usize, t: usize, i: usize) -> usize {
        match self {
            Layout::Pairs => (place * width + t / 2 * 2) * (BLOCK / 8) + 2 * i + t % 2,
            _ => (place * width + t) * (BLOCK / 8) + i,
        }
    }
}

/// The memory of a form. It is kept for the next rows of that form.
#[derive(Default)]
struct Buffers {
    /// `[tokens, inputs]` in f32: the rows of [`Form::F32`], or those that wait because a row cannot be quantized before all of it,
    /// or of all rows, is there.
    wide: Lines<f32>,
    /// `[tokens, inputs]` in BF16.
    halves: Lines<u16>,
    /// `[tokens, inputs]`; of groups as [`Packed`] has them, one group after the other.
    bytes: Lines<i8>,
    /// The scale of each row; or of each block scales `[tokens, blocks]`, then sums likewise; of groups as [`Packed`] has them.
    floats: Lines<f32>,
    /// Zero point and sum of each row; or of each block offsets `[tokens, blocks]`, then those of halves likewise; of groups as
    /// [`Packed`] has them.
    ints: Lines<i32>,
    /// Rows of BF16 or int8 once more, as [`tiled::Tiled`] has them, one group after the other.
    tiles: Lines<u8>,
}

/// One token's row of [`Form::Q8`], for kernels.
#[derive(Clone, Copy)]
pub(super) struct Q8<'a> {
    /// The bytes, from -127 to 127.
    pub(super) bytes: &'a [i8],
    /// The scale of each block.
    pub(super) scales: &'a [f32],
    /// `scale * sum of the bytes` of each block.
    pub(super) sums: &'a [f32],
    /// `-128 * sum of the bytes` of each block: what `vpdpbusd` adds too much when weights carry an offset of 128.
    pub(super) offsets: &'a [i32],
    /// `-128 * sum of the bytes` of each half block of 16.
    pub(super) half_offsets: &'a [i32],
}

/// One token's row of [`Form::Int8`], for kernels.
#[derive(Clone, Copy)]
pub(super) struct Int8Row<'a> {
    /// The integers.
    pub(super) bytes: &'a [i8],
    /// The same, up to a whole number of 64; what follows them is unspecified.
    pub(super) padded: &'a [[i8; 64]],
    /// What an integer less the zero point stands for.
    pub(super) scale: f32,
    /// The integer that stands for 0.
    pub(super) zero: i32,
    /// The sum of the integers.
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))]
    pub(super) sum: i32,
}

/// The tokens of one group in the order of panels, for kernels.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a> {
    /// How many they are.
    pub(super) tokens: usize,
    /// How many there is room for ([`Layout::width`]).
    pub(super) width: usize,
    layout: Layout,
    /// `[blocks, width, 32]`, or by pairs `[blocks, width / 2, 4, 2, 8]`.
    pub(super) bytes: &'a [i8],
    /// `[blocks, 2, width]`: scale and sum; or by pairs `[blocks, 2, width / 2, 2, 2]`, those of two tokens twice.
    pub(super) floats: &'a [f32],
    /// `[blocks, 3, width]`: offset of the block and of its halves.
    pub(super) ints: &'a [i32],
}

impl Packed<'_> {
    /// Scale and sum of the block at `place` of token `t` of the group.
    #[inline]
    pub(super) fn scale_and_sum(&self, place: usize, t: usize) -> [f32; 2] {
        let each = self.layout.floats() / 2 * self.width;
        let of_block = &self.floats[2 * place * each..][..2 * each];
        let at = self.layout.float(t);
        [of_block[at], of_block[each + at]]
    }
}

/// Elements from one row to the next: an odd number of lines.
fn stride(elements: usize, each: usize) -> usize {
    (elements.div_ceil(each) | 1) * each
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Input {{ {:?}, {} x {} }}", self.form, self.tokens, self.inputs)
    }
}

impl Input {
    /// No tokens; room comes with the first use.
    pub fn new() -> Input {
        Input::default()
    }

    /// Brings `x` `[tokens, inputs]` into `form` on this thread, for kernels that were selected for the same `isa`, which decides
    /// how blocks of several tokens lie.
    /// Panics if `x` is no whole number of rows, `inputs` is no multiple of 32 for blocks, or memory runs out.
    pub fn prepare(isa: Isa, form: Form, x: &[f32], inputs: usize) -> Input {
        let mut input = Input::new();
        let done = input.convert(&Pool::new(1), isa, form, x, inputs);
        done.unwrap_or_else(|refused| panic!("{refused}"));
        input
    }

    /// Makes room for the rows of `tokens` of `inputs`, which hold unspecified numbers until they are filled. Panics if `inputs` is
    /// 0, or no multiple of 32 for blocks. After an error it has no tokens.
    fn reset(&mut self, isa: Isa, form: Form, tokens: usize, inputs: usize) -> memory::Result<()> {
        assert!(inputs > 0, "a row has at least one element");
        if !self.form.is_read_as(form) {
            self.buffers = Buffers::default();
        }
        let tokens = tokens * form.rows_of_token();
        (self.form, self.tokens, self.inputs, self.tiled) = (form, 0, inputs, false);
        self.layout = Layout::select(isa, form, tokens);
        let to = &mut self.buffers;
        match form {
            Form::F32 => to.wide.grow(tokens * stride(inputs, 16))?,
            Form::Bf16 => to.halves.grow(tokens * stride(inputs, 32))?,
            Form::Int8(rule) => {
                to.bytes.grow(tokens * stride(inputs, 64))?;
                to.floats.grow(tokens)?;
                to.ints.grow(2 * tokens)?;
                if matches!(rule, Int8Rule::Tensor { .. }) {
                    to.wide.grow(tokens * stride(inputs, 16))?;
                }
            }
            Form::Q8 | Form::Q16 => {
                assert!(inputs.is_multiple_of(BLOCK), "{inputs} inputs are no whole number of blocks of {BLOCK}");
                let blocks = inputs / BLOCK;
                let (row, half_row) = (stride(blocks, 16), stride(2 * blocks, 16));
                let tokens = self.layout.width(tokens);
                let [bytes, floats, ints] = match self.layout {
                    Layout::Rows => [stride(inputs, 64), 2 * row, row + half_row],
                    layout => [inputs, layout.floats() * blocks, 3 * blocks],
                };
                to.bytes.grow(tokens * bytes)?;
                to.floats.grow(tokens * floats)?;
                to.ints.grow(tokens * ints)?;
            }
        }
        self.tokens = tokens;
        Ok(())
    }

    /// Brings the rows that `row` gives into `form`, on this thread.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn gather<'x>(
        &mut self,
        isa: Isa,
        form: Form,
        tokens: usize,
        inputs: usize,
        row: impl Fn(usize) -> &'x [f32],
    ) -> memory::Result<()> {
        self.reset(isa, form, tokens, inputs)?;
        let rows = RowsMut::new(self);
        // SAFETY: the row exists, and `rows` is the only view of it.
        (0..tokens).for_each(|token| unsafe { rows.prepare(isa, token, row(token), None) });
        self.arrange(None, isa)
    }

    /// Fills all of `tokens` rows in parallel: `fill(token, row)` writes a row of floats, which then is brought into
    /// `form`; `row` holds unspecified numbers at first. For [`Form::F32`] it is the input's own row: nothing is copied.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn fill(
        &mut self,
        pool: &Pool,
        isa: Isa,
        form: Form,
        tokens: usize,
        inputs: usize,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> memory::Result<()> {
        thread_local! {
            static ROW: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
        }
        self.reset(isa, form, tokens, inputs)?;
        let waits = matches!(form, Form::Int8(Int8Rule::Tensor { .. }));
        if waits || form == Form::F32 {
            let step = stride(inputs, 16);
            let rows = &mut self.buffers.wide.all_mut()[..tokens * step];
            pool.chunks(rows, step, |token, row| fill(token, &mut row[..inputs]));
            if waits {
                self.prepare_waiting(pool, isa);
            }
            return self.arrange(Some(pool), isa);
        }
        let refusals = Refusals::default();
        RowsMut::new(self).each(pool, |rows, token| {
            // Taken, not borrowed: `fill` may itself fill another input.
            let mut row = ROW.with_borrow_mut(std::mem::take);
            let room = memory::lengthen(&mut row, inputs, 0.0, "a row of an input");
            if room.is_ok() {
                fill(token, &mut row[..inputs]);
                // SAFETY: the row exists, and nothing else in `each` is at it or at its group.
                unsafe { rows.prepare(isa, token, &row[..inputs], None) };
            }
            refusals.note(room);
            ROW.set(row);
        });
        refusals.into_result()?;
        self.arrange(Some(pool), isa)
    }

    /// Brings the rows of `x` `[tokens, inputs]` into `form` in parallel. Panics if `x` is no whole number of rows, or
    /// `inputs` is no multiple of 32 for blocks.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn convert(&mut self, pool: &Pool, isa: Isa, form: Form, x: &[f32], inputs: usize) -> memory::Result<()> {
        assert!(inputs > 0 && x.len().is_multiple_of(inputs), "{} floats are no rows of {inputs}", x.len());
        let row = |token: usize| &x[token * inputs..][..inputs];
        let tokens = x.len() / inputs;
        if matches!(form, Form::F32 | Form::Int8(Int8Rule::Tensor { .. })) {
            return self.fill(pool, isa, form, tokens, inputs, |token, to| to.copy_from_slice(row(token)));
        }
        self.reset(isa, form, tokens, inputs)?;
        // SAFETY: the row exists, and nothing else in `each` is at it or at its group.
        RowsMut::new(self).each(pool, |rows, token| unsafe { rows.prepare(isa, token, row(token), None) });
        self.arrange(Some(pool), isa)
    }

    /// Fills the columns between neighbours of `bounds` in parallel: `fill(columns, part)` is called once for each, and puts
    /// all of them in. Panics if `bounds` does not ascend from 0 to `inputs`, or cuts blocks that lie in groups.
    ///
    /// # Errors
    /// Those of `fill`, and when memory runs out.
    #[allow(clippy::too_many_arguments)] // as many as there are
    pub fn fill_columns(
        &mut self,
        pool: &Pool,
        isa: Isa,
        form: Form,
        tokens: usize,
        inputs: usize,
        bounds: &[usize],
        fill: impl Fn(Range<usize>, &mut ColumnsMut<'_>) -> memory::Result<()> + Sync,
    ) -> memory::Result<()> {
        assert!(bounds.first() == Some(&0) && bounds.last() == Some(&inputs) && bounds.is_sorted());
        self.reset(isa, form, tokens, inputs)?;
        let at_once = form == Form::F32 || form == Form::Bf16 || self.layout != Layout::Rows;
        if !at_once {
            let room = self.buffers.wide.grow(tokens * stride(inputs, 16));
            room.inspect_err(|_| self.tokens = 0)?;
        }
        let (rows, refusals) = (RowsMut::new(self), Refusals::default());
        pool.run(bounds.len() - 1, &|i| {
            let columns = bounds[i]..bounds[i + 1];
            refusals.note(fill(columns.clone(), &mut ColumnsMut { rows: &rows, isa, columns }));
        });
        refusals.into_result()?;
        if !at_once {
            self.prepare_waiting(pool, isa);
        }
        self.arrange(Some(pool), isa)
    }

    /// Brings the rows that wait into the form.
    fn prepare_waiting(&mut self, pool: &Pool, isa: Isa) {
        let (tokens, inputs) = (self.tokens / self.form.rows_of_token(), self.inputs);
        let waiting = std::mem::take(&mut self.buffers.wide);
        let x = |token: usize| &waiting.all()[token * stride(inputs, 16)..][..inputs];
        let together = match self.form {
            Form::Int8(rule @ Int8Rule::Tensor { .. }) => {
                let extents = (0..tokens).map(|token| Extent::new(isa, x(token)));
                Some(rule.params(extents.fold(Extent::EMPTY, Extent::and)))
            }
            _ => None,
        };
        // SAFETY: the row exists, and nothing else in `each` is at it or at its group.
        RowsMut::new(self).each(pool, |rows, token| unsafe { rows.prepare(isa, token, x(token), together) });
        self.buffers.wide = waiting;
    }

    /// The int8 of row `token`. Panics for another form.
    #[inline]
    pub(super) fn int8(&self, token: usize) -> Int8Row<'_> {
        assert!(matches!(self.form, Form::Int8(_)) && token < self.tokens);
        let Buffers { bytes, floats, ints, .. } = &self.buffers;
        let row = &bytes.all()[token * stride(self.inputs, 64)..];
        Int8Row {
            bytes: &row[..self.inputs],
            padded: row[..self.inputs.next_multiple_of(64)].as_chunks().0,
            scale: floats.all()[token],
            zero: ints.all()[2 * token],
            sum: ints.all()[2 * token + 1],
        }
    }

    /// The scale of the int8 of row `token`, and the zero point. Panics for another form.
    #[inline(always)]
    pub(super) fn int8_scale(&self, token: usize) -> (f32, i32) {
        assert!(matches!(self.form, Form::Int8(_)) && token < self.tokens);
        (self.buffers.floats.all()[token], self.buffers.ints.all()[2 * token])
    }

    /// Rows: two for each token in [`Form::Q16`].
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Elements in a row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The form.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The floats of row `token`. Panics for another form.
    #[inline]
    pub(super) fn floats(&self, token: usize) -> &[f32] {
        assert!(matches!(self.form, Form::F32) && token < self.tokens);
        &self.buffers.wide.all()[token * stride(self.inputs, 16)..][..self.inputs]
    }

    /// The BF16 bits of row `token`. Panics for another form.
    #[inline]
    pub(super) fn halves(&self, token: usize) -> &[u16] {
        assert!(matches!(self.form, Form::Bf16) && token < self.tokens);
        &self.buffers.halves.all()[token * stride(self.inputs, 32)..][..self.inputs]
    }

    /// The blocks of row `token`. Panics for another form, or if they lie in groups.
    #[inline]
    pub(super) fn q8(&self, token: usize) -> Q8<'_> {
        assert!(self.form.in_blocks() && self.layout == Layout::Rows && token < self.tokens);
        let blocks = self.inputs / BLOCK;
        let (row, half_row) = (stride(blocks, 16), stride(2 * blocks, 16));
        let Buffers { bytes, floats, ints, .. } = &self.buffers;
        let (scales, sums) = floats.all().split_at(self.tokens * row);
        let (offsets, half_offsets) = ints.all().split_at(self.tokens * row);
        Q8 {
            bytes: &bytes.all()[token * stride(self.inputs, 64)..][..self.inputs],
            scales: &scales[token * row..][..blocks],
            sums: &sums[token * row..][..blocks],
            offsets: &offsets[token * row..][..blocks],
            half_offsets: &half_offsets[token * half_row..][..2 * blocks],
        }
    }

    /// Whether blocks lie in groups.
    #[cfg(test)]
    pub(super) fn is_grouped(&self) -> bool {
        self.layout != Layout::Rows
    }

    /// Bytes and scale of each block of `token`, wherever they lie. Panics for another form; what it gives does, past the
    /// last block.
    #[inline]
    pub(super) fn blocks(&self, token: usize) -> impl Fn(usize) -> ([i8; BLOCK], f32) {
        assert!(self.form.in_blocks() && token < self.tokens);
        let order = Order::new(self.inputs / BLOCK);
        let t = token % GROUP;
        let group = (self.layout != Layout::Rows).then(|| self.packed(token / GROUP));
        let (bytes, scales) = match group {
            Some(group) => (group.bytes, group.floats),
            None => (self.q8(token).bytes, self.q8(token).scales),
        };
        let (eights, _) = bytes.as_chunks::<8>();
        move |b| {
            assert!(b < order.blocks, "block {b} of {}", order.blocks);
            match (order.place(b), group) {
                (Some(place), Some(group)) => {
                    let eight = |i: usize| eights[self.layout.eight(place, group.width, t, i)];
                    (bytemuck::cast([eight(0), eight(1), eight(2), eight(3)]), group.scale_and_sum(place, t)[0])
                }
                _ => (bytes.as_chunks().0[b], scales[b]),
            }
        }
    }

    /// Group `group` of the tokens. Panics for another form, or if blocks lie in rows.
    #[inline]
    pub(super) fn packed(&self, group: usize) -> Packed<'_> {
        assert!(self.layout != Layout::Rows && group * GROUP < self.tokens);
        let tokens = GROUP.min(self.tokens - group * GROUP);
        let width = self.layout.width(tokens);
        let blocks = self.inputs / BLOCK;
        let (first, each) = (group * GROUP * blocks, width * blocks);
        let Buffers { bytes, floats, ints, .. } = &self.buffers;
        Packed {
            tokens,
            width,
            layout: self.layout,
            bytes: &bytes.all()[first * BLOCK..][..each * BLOCK],
            floats: &floats.all()[first * self.layout.floats()..][..each * self.layout.floats()],
            ints: &ints.all()[first * 3..][..each * 3],
        }
    }
}
