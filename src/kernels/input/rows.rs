//! The rows of an input, written by several threads.

#![allow(unsafe_code)]

use super::{BLOCK, Form, Input, stride};
use crate::kernels::int8::{self, Extent, Step};
use crate::kernels::isa::Isa;
use crate::kernels::order::{GROUP, Order};
use crate::kernels::quantize::{Blocks, TOGETHER, quantize, round_to_bf16};
use crate::threads::{Pool, Split};

/// The rows of an input, each to be written by one thread.
pub(super) struct RowsMut<'a> {
    pub(super) form: Form,
    pub(super) tokens: usize,
    pub(super) inputs: usize,
    pub(super) grouped: bool,
    pub(super) floats: Split<'a, f32>,
    pub(super) halves: Split<'a, u16>,
    bytes: Split<'a, i8>,
    scales: Split<'a, f32>,
    sums: Split<'a, f32>,
    offsets: Split<'a, i32>,
    half_offsets: Split<'a, i32>,
    packed_bytes: Split<'a, i8>,
    packed_floats: Split<'a, f32>,
    packed_ints: Split<'a, i32>,
}

impl<'a> RowsMut<'a> {
    pub(super) fn new(input: &'a mut Input) -> RowsMut<'a> {
        RowsMut {
            form: input.form,
            tokens: input.tokens,
            inputs: input.inputs,
            grouped: input.grouped,
            floats: Split::new(input.floats.all_mut()),
            halves: Split::new(input.halves.all_mut()),
            bytes: Split::new(input.bytes.all_mut()),
            scales: Split::new(input.scales.all_mut()),
            sums: Split::new(input.sums.all_mut()),
            offsets: Split::new(input.offsets.all_mut()),
            half_offsets: Split::new(input.half_offsets.all_mut()),
            packed_bytes: Split::new(input.packed_bytes.all_mut()),
            packed_floats: Split::new(input.packed_floats.all_mut()),
            packed_ints: Split::new(input.packed_ints.all_mut()),
        }
    }

    /// Calls `prepare` once for each row, in parallel; for the rows of a group on one thread.
    pub(super) fn each(&self, pool: &Pool, prepare: impl Fn(&Self, usize) + Sync) {
        // Neighbours in a group write the same cache lines.
        let together = if self.grouped { GROUP } else { 1 };
        pool.run(self.tokens.div_ceil(together), &|task| {
            let first = task * together;
            (first..self.tokens.min(first + together)).for_each(|token| prepare(self, token));
        });
    }

    /// Brings `x` into row `token`.
    ///
    /// # Safety
    /// No other thread may be at the same row, or at the same group.
    pub(super) unsafe fn prepare(&self, isa: Isa, token: usize, x: &[f32]) {
        assert!(token < self.tokens && x.len() == self.inputs);
        let inputs = self.inputs;
        match self.form {
            Form::F32 => {
                // SAFETY: rows do not overlap, and the caller is alone at this one.
                unsafe { self.floats.part(token * stride(inputs, 16), inputs) }.copy_from_slice(x);
            }
            Form::Bf16 => {
                // SAFETY: as above.
                let row = unsafe { self.halves.part(token * stride(inputs, 32), inputs) };
                round_to_bf16(isa, x, row);
            }
            Form::Int8(rule) => {
                // SAFETY: the caller is alone at this row.
                unsafe { self.quantize(isa, token, x, rule.step(Extent::of(isa, x))) };
            }
            Form::Q8 => {
                let (chunks, rest) = x.as_chunks::<BLOCK>().0.as_chunks::<TOGETHER>();
                let mut padded = [[0.0; BLOCK]; TOGETHER];
                padded[..rest.len()].copy_from_slice(rest);
                let padded = (!rest.is_empty()).then_some(&padded);
                let mut blocks = Blocks::ZERO;
                for (chunk, x) in chunks.iter().chain(padded).enumerate() {
                    quantize(isa, x, &mut blocks);
                    // SAFETY: the caller is alone at this row and group.
                    unsafe {
                        if self.grouped {
                            self.put_in_group(token, chunk, &blocks)
                        } else {
                            self.put_in_row(token, chunk, &blocks)
                        }
                    }
                }
            }
        }
    }

    /// Copies blocks `16 * chunk ..` to row `token`.
    ///
    /// # Safety
    /// No other thread may be at the same row.
    unsafe fn put_in_row(&self, token: usize, chunk: usize, from: &Blocks) {
        let blocks = self.inputs / BLOCK;
        let (first, count) = (chunk * TOGETHER, TOGETHER.min(blocks - chunk * TOGETHER));
        let (row, half_row) = (token * stride(blocks, 16) + first, token * stride(2 * blocks, 16) + 2 * first);
        // SAFETY: rows do not overlap, and the caller is alone at this one.
        unsafe {
            let bytes = self.bytes.part(token * stride(self.inputs, 64) + first * BLOCK, count * BLOCK);
            bytes.copy_from_slice(from.bytes[..count].as_flattened());
            self.scales.part(row, count).copy_from_slice(&from.scales[..count]);
            self.sums.part(row, count).copy_from_slice(&from.sums[..count]);
            self.offsets.part(row, count).copy_from_slice(&from.offsets[..count]);
            let half_offsets = self.half_offsets.part(half_row, 2 * count).as_chunks_mut::<2>().0;
            for (b, to) in half_offsets.iter_mut().enumerate() {
                *to = [from.half_offsets[0][b], from.half_offsets[1][b]];
            }
        }
    }

    /// Copies blocks `16 * chunk ..` of `token` to their places in its group.
    ///
    /// # Safety
    /// No other thread may be at the same group.
    unsafe fn put_in_group(&self, token: usize, chunk: usize, from: &Blocks) {
        let order = Order::new(self.inputs / BLOCK);
        let (first, t) = (token / GROUP * GROUP, token % GROUP);
        let tokens = GROUP.min(self.tokens - first);
        let (at, each) = (first * order.blocks, tokens * order.blocks);
        // SAFETY: the caller is alone at this group.
        let (bytes, floats, ints) = unsafe {
            let bytes = self.packed_bytes.part(at * BLOCK, each * BLOCK);
            (bytes, self.packed_floats.part(at * 2, each * 2), self.packed_ints.part(at * 3, each * 3))
        };
        let bytes = bytes.as_chunks_mut::<BLOCK>().0;
        for b in 0..TOGETHER {
            let Some(place) = order.place(chunk * TOGETHER + b) else { break };
            let place = place * tokens;
            bytes[place + t] = from.bytes[b];
            let floats = &mut floats[2 * place..][..2 * tokens];
            (floats[t], floats[tokens + t]) = (from.scales[b], from.sums[b]);
            let ints = &mut ints[3 * place..][..3 * tokens];
            ints[t] = from.offsets[b];
            (ints[tokens + t], ints[2 * tokens + t]) = (from.half_offsets[0][b], from.half_offsets[1][b]);
        }
    }

    /// Copies `beside` blocks from `block` on, of each token of the group that begins with token `first`, to their places:
    /// those of a token lie one behind the other.
    ///
    /// # Safety
    /// No other thread may be at the same blocks.
    pub(super) unsafe fn put_blocks(&self, first: usize, block: usize, beside: usize, from: &Blocks) {
        let order = Order::new(self.inputs / BLOCK);
        let tokens = GROUP.min(self.tokens - first);
        for b in 0..beside {
            let Some(place) = order.place(block + b) else { break };
            let at = first * order.blocks + place * tokens;
            // SAFETY: blocks do not overlap, and the caller is alone at this one.
            let (bytes, floats, ints) = unsafe {
                let bytes = self.packed_bytes.part(at * BLOCK, tokens * BLOCK);
                (bytes, self.packed_floats.part(at * 2, tokens * 2), self.packed_ints.part(at * 3, tokens * 3))
            };
            for (t, bytes) in bytes.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                let i = t * beside + b;
                *bytes = from.bytes[i];
                (floats[t], floats[tokens + t]) = (from.scales[i], from.sums[i]);
                ints[t] = from.offsets[i];
                (ints[tokens + t], ints[2 * tokens + t]) = (from.half_offsets[0][i], from.half_offsets[1][i]);
            }
        }
    }

    /// Writes `x` into row `token` of int8.
    ///
    /// # Safety
    /// No other thread may be at the same row.
    pub(super) unsafe fn quantize(&self, isa: Isa, token: usize, x: &[f32], step: Step) {
        assert!(token < self.tokens && x.len() == self.inputs);
        // SAFETY: rows do not overlap, and the caller is alone at this one.
        let bytes = unsafe { self.bytes.part(token * stride(self.inputs, 64), self.inputs) };
        let sum = int8::quantize(isa, x, step, bytes);
        // SAFETY: as above.
        let scale = unsafe { self.scales.part(token, 1) };
        scale[0] = step.scale;
        // SAFETY: as above.
        unsafe { self.offsets.part(2 * token, 2) }.copy_from_slice(&[step.zero, sum]);
    }
}
