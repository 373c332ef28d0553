//! The zero points of integers that are packed in rows: what they take from outputs.

use crate::input::Input;
use crate::isa::Isa;
use crate::memory;
use crate::ops::vector::{Floats, add_scaled, for_each_float};
use crate::order::BLOCK;
use crate::scratch::{Scratch, room, with_scratch};
use model_factory_dtypes::DType;
use std::ops::Range;

/// The zero points of a weight's groups, for all rows: by how much integers are larger than the values they represent.
#[derive(Clone, Copy, Debug)]
pub enum ZeroPoints<'a> {
    /// Signed bytes, `[rows, groups]`.
    Bytes(&'a [u8]),
    /// Words `[rows / fields of a word, groups]`, rounded up; the fields of a word are zero points of consecutive rows, the first in
    /// the lowest bits.
    Words {
        /// The bytes of the words.
        words: &'a [u8],
        /// The dtype of the fields, U4 or U8.
        of: DType,
    },
}

impl ZeroPoints<'_> {
    /// The zero point of `group` of `row`, in rows of `groups`.
    #[inline]
    fn at(self, row: usize, group: usize, groups: usize) -> i32 {
        match self {
            ZeroPoints::Bytes(bytes) => i32::from(bytes[row * groups + group] as i8),
            ZeroPoints::Words { words, of } => {
                let bits = if of == DType::U4 { 4 } else { 8 };
                let each = 32 / bits;
                let word = u32::from_le_bytes(words.as_chunks().0[row / each * groups + group]);
                (word >> (row % each * bits) & ((1 << bits) - 1)) as i32 - (1 << (bits - 1))
            }
        }
    }
}

/// Subtracts the part of zero points from the outputs `y` `[tokens, rows]`: for each group of `size` inputs, in order,
/// `scale * zero point` times the sum of its activations. `scales` has the scales of `rows`. Panics when lengths do not match, or `input`
/// is in another form than [`Form::Q16`](crate::Form::Q16) or [`Form::Q8`](crate::Form::Q8).
///
/// # Errors
/// When there is no memory for the products of scales and zero points.
pub fn subtract_zero_points(
    isa: Isa,
    zero_points: ZeroPoints<'_>,
    scales: Floats<'_>,
    rows: Range<usize>,
    size: usize,
    input: &Input,
    y: &mut [f32],
) -> memory::Result<()> {
    let (groups, each) = (input.inputs() / size, size / BLOCK);
    let parts = input.form().rows_of_token();
    assert!(input.form().in_blocks() && groups * each * BLOCK == input.inputs() && !rows.is_empty());
    assert_eq!(scales.len(), rows.len() * groups, "scales of {} rows", rows.len());
    assert_eq!(y.len(), input.tokens() / parts * rows.len(), "outputs of {} rows", rows.len());
    with_scratch(|Scratch { floats: columns, .. }| {
        let columns = room(columns, scales.len())?;
        for_each_float(scales, |index, scale| {
            let (row, group) = (index / groups, index % groups);
            columns[group * rows.len() + row] = scale * zero_points.at(rows.start + row, group, groups) as f32;
        });
        for (token, y) in y.chunks_exact_mut(rows.len()).enumerate() {
            for (group, column) in columns.chunks_exact(rows.len()).enumerate() {
                let of_group = group * each..(group + 1) * each;
                let of_block = |b| (0..parts).map(|part| input.block_sum(parts * token + part, b)).sum::<f32>();
                let sum = of_group.map(of_block).sum::<f32>();
                add_scaled(isa, y, column, -sum);
            }
        }
        Ok(())
    })
}
