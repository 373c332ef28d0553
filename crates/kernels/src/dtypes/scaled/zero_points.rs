//! The product with integers that are packed in rows and have zero points: these are biases of their groups.

use crate::input::Input;
use crate::isa::{Isa, compiled_for};
use crate::memory;
use crate::ops::vector::{Floats, for_each_float};
use crate::{BlockScales, Kernel};
use std::ops::Range;

/// The zero points of a weight's groups, for all rows: by how much integers are larger than the values they represent.
#[derive(Clone, Copy, Debug)]
pub enum ZeroPoints<'a> {
    /// Signed bytes, `[rows, groups]`.
    Bytes(&'a [u8]),
    /// Words `[rows / fields of a word, groups]`, rounded up; the fields of a word, as wide as weights, are zero points of consecutive
    /// rows, the first in the lowest bits.
    Words(&'a [u8]),
}

/// The product of the given `rows`, whose bytes are `weight`, like [`Kernel::matmul_scaled`] with `scales` for groups of `group` inputs.
/// Panics when lengths do not match.
///
/// # Errors
/// As [`Kernel::matmul_scaled`].
#[allow(clippy::too_many_arguments)]
pub fn multiply_with_zero_points(
    kernel: &Kernel,
    isa: Isa,
    weight: &[u8],
    (scales, zero_points): (Floats<'_>, ZeroPoints<'_>),
    rows: Range<usize>,
    group: usize,
    input: &Input,
    y: &mut [f32],
) -> memory::Result<()> {
    let mut wide: Vec<f32> = memory::zeros(scales.len(), "the scales of weights")?;
    let mut products: Vec<f32> = memory::zeros(scales.len(), "the biases of weights")?;
    biases(isa, (zero_points, kernel.bits()), scales, rows.start, input.inputs() / group, [&mut wide, &mut products]);
    let (scales, biases) = (Floats::f32(&wide), Floats::f32(&products));
    kernel.matmul_scaled(weight, BlockScales::Affine { group, scales, biases }, input, y)
}

compiled_for! {
    /// The scales of rows of `groups` from row `first` on as floats, and minus their products with the fields that stand for 0.
    fn biases(
        isa: Isa,
        zero_points: (ZeroPoints<'_>, usize),
        stored: Floats<'_>,
        first: usize,
        groups: usize,
        factors: [&mut [f32]; 2],
    ) {
        let ([scales, biases], (zero_points, bits)) = (factors, zero_points);
        for_each_float(stored, |i, scale| scales[i] = scale);
        let rows = biases.chunks_exact_mut(groups).zip(scales.chunks_exact(groups));
        for (row, (biases, scales)) in rows.enumerate().map(|(r, floats)| (first + r, floats)) {
            let biases = biases.iter_mut().zip(scales);
            match zero_points {
                ZeroPoints::Bytes(bytes) => {
                    let zeros = &bytes[row * groups..][..groups];
                    let zeros = zeros.iter().map(|zero| i32::from(*zero as i8) + (1 << (bits - 1)));
                    biases.zip(zeros).for_each(|((bias, scale), zero)| *bias = -scale * zero as f32);
                }
                ZeroPoints::Words(words) => {
                    let (each, most) = (32 / bits, (1 << bits) - 1);
                    let words = &words.as_chunks::<4>().0[row / each * groups..][..groups];
                    let zeros = words.iter().map(|word| u32::from_le_bytes(*word) >> (row % each * bits) & most);
                    biases.zip(zeros).for_each(|((bias, scale), zero)| *bias = -scale * zero as f32);
                }
            }
        }
    }
}
