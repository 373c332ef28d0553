//! The rows of an input, written by several threads.

use super::int8::{self, Extent, QuantParams};
use super::quantize::{Blocks, TOGETHER, quantize, round_to_bf16, subtract};
use super::{BLOCK, Form, Input, Layout, stride};
use crate::isa::Isa;
use crate::order::{GROUP, Order};
use crate::threads::{Pool, Split};
use std::iter::StepBy;
use std::ops::Range;

/// The rows of an input, those of a token to be written by one thread.
pub(super) struct RowsMut<'a> {
    pub(super) form: Form,
    /// Tokens, of which each may have several rows.
    pub(super) tokens: usize,
    pub(super) inputs: usize,
    pub(super) layout: Layout,
    pub(super) wide: Split<'a, f32>,
    pub(super) halves: Split<'a, u16>,
    bytes: Split<'a, i8>,
    floats: Split<'a, f32>,
    ints: Split<'a, i32>,
}

impl<'a> RowsMut<'a> {
    pub(super) fn new(input: &'a mut Input) -> RowsMut<'a> {
        let Input { form, tokens, inputs, layout, ref mut buffers, .. } = *input;
        RowsMut {
            form,
            tokens: tokens / form.rows_of_token(),
            inputs,
            layout,
            wide: Split::new(buffers.wide.all_mut()),
            halves: Split::new(buffers.halves.all_mut()),
            bytes: Split::new(buffers.bytes.all_mut()),
            floats: Split::new(buffers.floats.all_mut()),
            ints: Split::new(buffers.ints.all_mut()),
        }
    }

    /// Calls `prepare` once for each token, in parallel; for those of a group on one thread.
    pub(super) fn each(&self, pool: &Pool, prepare: impl Fn(&Self, usize) + Sync) {
        // Neighbours in a group write the same cache lines.
        let together = if self.layout == Layout::Rows { 1 } else { self.group() };
        pool.run(self.tokens.div_ceil(together), &|task| {
            let first = task * together;
            (first..self.tokens.min(first + together)).for_each(|token| prepare(self, token));
        });
    }

    /// Tokens of a group.
    pub(super) fn group(&self) -> usize {
        GROUP / self.form.rows_of_token()
    }

    /// Brings `x` into the rows of `token`, by the parameters of all rows where there are any.
    ///
    /// # Safety
    /// No other thread may be at the same token, or at the same group.
    pub(super) unsafe fn prepare(&self, isa: Isa, token: usize, x: &[f32], together: Option<QuantParams>) {
        assert!(token < self.tokens && x.len() == self.inputs);
        let inputs = self.inputs;
        match self.form {
            // SAFETY: rows do not overlap, and nothing else is at this one.
            Form::F32 => unsafe { self.wide.part(token * stride(inputs, 16), inputs) }.copy_from_slice(x),
            // SAFETY: as above.
            Form::Bf16 => round_to_bf16(isa, x, unsafe { self.halves.part(token * stride(inputs, 32), inputs) }),
            Form::Int8(rule) => {
                let params = together.unwrap_or_else(|| rule.params(Extent::new(isa, x)));
                // SAFETY: as above.
                let (bytes, scale, ints) = unsafe {
                    let bytes = self.bytes.part(token * stride(inputs, 64), inputs);
                    (bytes, self.floats.part(token, 1), self.ints.part(2 * token, 2))
                };
                scale[0] = params.scale;
                ints.copy_from_slice(&[params.zero, int8::quantize(isa, x, params, bytes)]);
            }
            Form::Q8 | Form::Q16 => {
                let (chunks, rest) = x.as_chunks::<BLOCK>().0.as_chunks::<TOGETHER>();
                let mut padded = [[0.0; BLOCK]; TOGETHER];
                padded[..rest.len()].copy_from_slice(rest);
                let padded = (!rest.is_empty()).then_some(&padded);
                for (chunk, x) in chunks.iter().chain(padded).enumerate() {
                    // SAFETY: nothing else is at this token or group.
                    self.quantized(isa, x, |of_token, blocks| unsafe {
                        let row = token * self.form.rows_of_token() + of_token;
                        match self.layout {
                            Layout::Rows => self.put_in_row(row, chunk, blocks),
                            _ => self.put_blocks((row..row + 1).step_by(1), chunk * TOGETHER, TOGETHER, blocks),
                        }
                    });
                }
            }
        }
    }

    /// Calls `put(i, blocks)` with `x` in blocks for each row of a token: the `i`-th has what those before it leave.
    pub(super) fn quantized(&self, isa: Isa, x: &[[f32; BLOCK]; TOGETHER], put: impl Fn(usize, &Blocks)) {
        let mut blocks = Blocks::ZERO;
        quantize(isa, x, &mut blocks);
        put(0, &blocks);
        if self.form == Form::Q16 {
            let mut left = *x;
            subtract(isa, &mut left, &blocks);
            quantize(isa, &left, &mut blocks);
            put(1, &blocks);
        }
    }

    /// Copies blocks `16 * chunk ..` to row `token`.
    ///
    /// # Safety
    /// No other thread may be at the same row.
    unsafe fn put_in_row(&self, token: usize, chunk: usize, from: &Blocks) {
        let blocks = self.inputs / BLOCK;
        let (first, count) = (chunk * TOGETHER, TOGETHER.min(blocks - chunk * TOGETHER));
        let (each, half_row) = (stride(blocks, 16), token * stride(2 * blocks, 16) + 2 * first);
        let (row, after) = (token * each + first, self.rows() * each);
        let RowsMut { bytes, floats, ints, .. } = self;
        // SAFETY: rows do not overlap, and nothing else is at this one.
        unsafe {
            let bytes = bytes.part(token * stride(self.inputs, 64) + first * BLOCK, count * BLOCK);
            bytes.copy_from_slice(from.bytes[..count].as_flattened());
            floats.part(row, count).copy_from_slice(&from.scales[..count]);
            floats.part(after + row, count).copy_from_slice(&from.sums[..count]);
            ints.part(row, count).copy_from_slice(&from.offsets[..count]);
            let half_offsets = ints.part(after + half_row, 2 * count).as_chunks_mut::<2>().0;
            for (b, to) in half_offsets.iter_mut().enumerate() {
                *to = [from.half_offsets[0][b], from.half_offsets[1][b]];
            }
        }
    }

    /// Rows of all tokens.
    fn rows(&self) -> usize {
        self.tokens * self.form.rows_of_token()
    }

    /// Copies `count` blocks from `block` on, of each of the rows `tokens` of one group, to their places: those of a token lie one after
    /// the other in `from`. What is past the end of a row is left out.
    ///
    /// # Safety
    /// No other thread may be at the same blocks of the group.
    #[inline(always)]
    pub(super) unsafe fn put_blocks(&self, tokens: StepBy<Range<usize>>, block: usize, count: usize, from: &Blocks) {
        let order = Order::new(self.inputs / BLOCK);
        let first = tokens.clone().next().unwrap_or_default() / GROUP * GROUP;
        let (width, of_each) = (self.layout.width(GROUP.min(self.rows() - first)), self.layout.floats());
        for b in 0..count {
            let Some(place) = order.place(block + b) else { break };
            let at = first * order.blocks + place * width;
            // SAFETY: blocks do not overlap, and nothing else is at this one.
            let (bytes, floats, ints) = unsafe {
                let bytes = self.bytes.part(at * BLOCK, width * BLOCK);
                (bytes, self.floats.part(at * of_each, width * of_each), self.ints.part(at * 3, width * 3))
            };
            let each = floats.len() / 2;
            for (i, token) in tokens.clone().enumerate() {
                let (t, i) = (token - first, i * count + b);
                let at = self.layout.float(t);
                (floats[at], floats[each + at]) = (from.scales[i], from.sums[i]);
                if self.layout == Layout::Pairs {
                    (floats[at + 2], floats[each + at + 2]) = (from.scales[i], from.sums[i]);
                    for (e, eight) in from.bytes[i].as_chunks::<8>().0.iter().enumerate() {
                        bytes[8 * self.layout.eight(0, 0, t, e)..][..8].copy_from_slice(eight);
                    }
                } else {
                    bytes[t * BLOCK..][..BLOCK].copy_from_slice(&from.bytes[i]);
                }
                ints[t] = from.offsets[i];
                (ints[width + t], ints[2 * width + t]) = (from.half_offsets[0][i], from.half_offsets[1][i]);
            }
        }
    }
}
