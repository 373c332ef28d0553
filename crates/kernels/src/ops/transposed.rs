//! Products with matrices of floats that are stored by inputs, `[inputs, outputs]`, as gpt-oss' experts are in BF16.
//!
//! Each output is one sum: runs of 32 inputs are added up in order, and then these sums, by products and sums of F32. A tile of
//! outputs is computed for a few tokens at a time, so that its part of a stored row is widened once for them.

use crate::Input;
use crate::element::{bf16_to_f32, f16_to_f32};
use crate::isa::{Isa, compiled_for};
use model_factory_dtypes::DType;
use std::ops::Range;

/// Inputs whose products are added up before they are added to the others.
const RUN: usize = 32;

/// Outputs of a tile: a few lines of memory of each stored row.
const TILE: usize = 128;

/// Tokens that a tile is computed for at a time.
const TOKENS: usize = 4;

/// Sums on cache lines of their own: vectors of 64 bytes that lie across two lines take up to a third longer.
#[repr(align(64))]
struct Sums([[f32; TILE]; TOKENS]);

compiled_for! {
    /// `y[token][j] = sum over i of weight[i][outputs.start + j] * x[token][i]`, where a stored row of `weight` has `width`
    /// elements of `dtype` at any alignment. `y` is `[tokens, outputs]`, overwritten.
    /// Panics unless `dtype` is F32, F16 or BF16, `input` holds floats, and the lengths match.
    pub fn multiply_transposed(
        isa: Isa,
        matrix: (DType, &[u8], usize),
        outputs: Range<usize>,
        input: &Input,
        y: &mut [f32],
    ) {
        let (dtype, weight, width) = matrix;
        let float = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        assert!(float && outputs.start <= outputs.end && outputs.end <= width, "{dtype} {outputs:?} of {width}");
        assert_eq!(weight.len(), input.inputs() * width * dtype.block_bytes(), "bytes of a transposed matrix");
        assert_eq!(y.len(), input.tokens() * outputs.len(), "outputs of a product");
        let first = outputs.start;
        match dtype {
            DType::F32 => by_tiles(outputs.len(), input, y, stored(weight, width, first, f32::from_le_bytes)),
            DType::BF16 => by_tiles(outputs.len(), input, y, stored(weight, width, first, bf16_to_f32)),
            _ => by_tiles(outputs.len(), input, y, stored(weight, width, first, f16_to_f32)),
        }
    }
}

/// What [`by_tiles`] asks for: a part of a row of `width` stored floats, counted from `first` on.
#[inline(always)]
fn stored<const BYTES: usize>(
    weight: &[u8],
    width: usize,
    first: usize,
    wide: impl Fn([u8; BYTES]) -> f32,
) -> impl Fn(usize, Range<usize>, &mut [f32; TILE]) {
    let (elements, _) = weight.as_chunks::<BYTES>();
    move |i, part, row| {
        let stored = &elements[i * width + first + part.start..][..part.len()];
        row.iter_mut().zip(stored).for_each(|(to, stored)| *to = wide(*stored));
    }
}

/// The product with a matrix of `all` outputs, of which `weights(input, outputs, row)` gives a part of the row of an input.
#[inline(always)]
pub(super) fn by_tiles(
    all: usize,
    input: &Input,
    y: &mut [f32],
    weights: impl Fn(usize, Range<usize>, &mut [f32; TILE]),
) {
    let tokens = input.tokens();
    for start in (0..all).step_by(TILE) {
        let len = TILE.min(all - start);
        for token in (0..tokens).step_by(TOKENS) {
            let some = TOKENS.min(tokens - token);
            let Sums(sums) = &mut Sums([[0.0; TILE]; TOKENS]);
            for run in (0..input.inputs()).step_by(RUN) {
                let Sums(parts) = &mut Sums([[0.0; TILE]; TOKENS]);
                for i in run..input.inputs().min(run + RUN) {
                    let mut row = [0.0f32; TILE];
                    weights(i, start..start + len, &mut row);
                    for (t, part) in parts[..some].iter_mut().enumerate() {
                        let x = input.floats(token + t)[i];
                        part.iter_mut().zip(&row).for_each(|(part, w)| *part += w * x);
                    }
                }
                for (sums, parts) in sums[..some].iter_mut().zip(&*parts) {
                    sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
                }
            }
            for (t, sums) in sums[..some].iter().enumerate() {
                y[(token + t) * all + start..][..len].copy_from_slice(&sums[..len]);
            }
        }
    }
}
