//! Columns of an input, put in by one of several threads.

use super::quantize::{Blocks, TOGETHER, quantize, round_to_bf16};
use super::rows::RowsMut;
use super::{BLOCK, Form, Layout, stride};
use crate::isa::Isa;
use crate::order::GROUP;
use std::ops::Range;

/// Blocks of a token that are quantized together with those of the other tokens of its group.
const BLOCKS_OF_TOKEN: usize = TOGETHER / GROUP;

/// Floats that are rounded at a time.
const ROUNDED: usize = 64;

/// Write access to some columns of all rows, for one thread.
pub struct ColumnsMut<'a> {
    pub(super) rows: &'a RowsMut<'a>,
    pub(super) isa: Isa,
    pub(super) columns: Range<usize>,
}

impl ColumnsMut<'_> {
    /// Puts in all columns: `fill(token, columns, floats)` writes some of them, which are counted from the first on.
    pub fn put(&mut self, fill: impl Fn(usize, Range<usize>, &mut [f32])) {
        match self.rows.form {
            _ if self.rows.layout != Layout::Rows => return self.put_blocks(fill),
            Form::Bf16 => return self.put_halves(fill),
            _ => {}
        }
        for token in 0..self.rows.tokens {
            let first = token * stride(self.rows.inputs, 16) + self.columns.start;
            // SAFETY: other threads have other columns, and `&mut self` is one of this one.
            fill(token, 0..self.columns.len(), unsafe { self.rows.wide.part(first, self.columns.len()) });
        }
    }

    fn put_halves(&self, fill: impl Fn(usize, Range<usize>, &mut [f32])) {
        let mut floats = [0.0; ROUNDED];
        for token in 0..self.rows.tokens {
            for start in (0..self.columns.len()).step_by(ROUNDED) {
                let columns = start..self.columns.len().min(start + ROUNDED);
                let floats = &mut floats[..columns.len()];
                fill(token, columns, floats);
                let first = token * stride(self.rows.inputs, 32) + self.columns.start + start;
                // SAFETY: other threads have other columns, and `&mut self` is one of this one.
                round_to_bf16(self.isa, floats, unsafe { self.rows.halves.part(first, floats.len()) });
            }
        }
    }

    fn put_blocks(&self, fill: impl Fn(usize, Range<usize>, &mut [f32])) {
        let Range { start, end } = self.columns;
        assert!(start.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK), "columns {start} to {end} cut a block");
        let (mut x, mut blocks) = ([[0.0; BLOCK]; TOGETHER], Blocks::ZERO);
        for first in (0..self.rows.tokens).step_by(GROUP) {
            let tokens = GROUP.min(self.rows.tokens - first);
            for column in (start..end).step_by(BLOCKS_OF_TOKEN * BLOCK) {
                let count = BLOCKS_OF_TOKEN.min((end - column) / BLOCK);
                for (t, x) in x.chunks_exact_mut(count).take(tokens).enumerate() {
                    fill(first + t, column - start..column - start + count * BLOCK, x.as_flattened_mut());
                }
                quantize(self.isa, &x, &mut blocks);
                // SAFETY: other threads have other blocks, and `&mut self` is one of this one.
                unsafe { self.rows.put_blocks(first..first + tokens, column / BLOCK, count, &blocks) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::input::int8::Int8Rule;
    use crate::order::GROUP;
    use crate::testing::{Random, each_isa};
    use crate::threads::Pool;
    use crate::{Form, Input};

    /// All of row `token`, as bits.
    fn row(input: &Input, token: usize) -> Vec<u32> {
        let bytes = |bytes: &[i8]| bytes.iter().map(|&x| x as u32).collect::<Vec<_>>();
        let floats = |floats: &[f32]| floats.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let ints = |ints: &[i32]| ints.iter().map(|&x| x as u32).collect::<Vec<_>>();
        match input.form() {
            Form::F32 => floats(input.floats(token)),
            Form::Bf16 => input.halves(token).iter().map(|&x| x.into()).collect(),
            Form::Q8 if input.is_grouped() => {
                let (group, block) = (input.packed(token / GROUP), input.blocks(token));
                // Where there is room for a token and none, numbers are unspecified.
                let own = |i: &usize| i % group.width == token % GROUP;
                let own_floats = (0..input.inputs() / 32).map(|place| group.scale_and_sum(place, token % GROUP));
                let own_floats = own_floats.collect::<Vec<_>>().concat();
                let own_ints = (0..group.ints.len()).filter(own).map(|i| group.ints[i]).collect::<Vec<_>>();
                let blocks = (0..input.inputs() / 32).map(|b| bytes(&block(b).0)).collect::<Vec<_>>().concat();
                [blocks, floats(&own_floats), ints(&own_ints)].concat()
            }
            Form::Q8 => {
                let x = input.q8(token);
                [bytes(x.bytes), floats(x.scales), floats(x.sums), ints(x.offsets), ints(x.half_offsets)].concat()
            }
            Form::Int8(_) => {
                let x = input.int8(token);
                [bytes(x.bytes), floats(&[x.scale]), ints(&[x.zero, x.sum])].concat()
            }
        }
    }

    #[test]
    fn columns_make_the_input_that_rows_make() {
        const INPUTS: usize = 22 * 32;
        let (pool, mut random, mut input) = (Pool::new(3), Random::new(41), Input::new());
        let given = Int8Rule::Static { scale_bits: 0.01f32.to_bits(), zero: 3 };
        let int8 = [Int8Rule::Token { symmetric: false }, Int8Rule::Tensor { symmetric: true }, given].map(Form::Int8);
        for isa in each_isa() {
            for form in [Form::F32, Form::Bf16, Form::Q8].into_iter().chain(int8) {
                for tokens in [1, 2, 3, 8, 19] {
                    let x = random.floats(tokens * INPUTS);
                    let expected = Input::prepare(isa, form, &x, INPUTS);
                    let filled = input.fill_columns(
                        &pool,
                        isa,
                        form,
                        tokens,
                        INPUTS,
                        &[0, 32, 224, 352, INPUTS],
                        |all, part| {
                            part.put(|token, some, out| {
                                out.copy_from_slice(&x[token * INPUTS + all.start..][some]);
                            });
                            Ok(())
                        },
                    );
                    filled.unwrap();
                    for token in 0..tokens {
                        assert_eq!(row(&input, token), row(&expected, token), "{isa} {form:?} {token} of {tokens}");
                    }
                }
            }
        }
    }

    #[test]
    fn refuses_half_a_block_of_a_group() {
        for isa in each_isa() {
            for tokens in [1, 8] {
                let filled = std::panic::catch_unwind(|| {
                    Input::new().fill_columns(&Pool::new(1), isa, Form::Q8, tokens, 64, &[0, 48, 64], |_, part| {
                        part.put(|_, _, out| out.fill(0.0));
                        Ok(())
                    })
                });
                let grouped = Input::prepare(isa, Form::Q8, &vec![0.0; tokens * 64], 64).is_grouped();
                assert_eq!(filled.is_err(), grouped, "{isa} {tokens}");
            }
        }
    }
}
