//! What the float dtypes share: elements that are widened in a register, and the product in plain Rust.

use crate::memory;
use crate::{Input, LANES, Output, sum_lanes};

/// Rows widened one after the other, times all tokens. Lane `i` of 16 adds up the products whose index is `i` modulo 16, in
/// order, by a product and a sum.
pub(super) fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>, dequantize: impl Fn(&[u8], &mut [f32])) {
    let mut wide = match memory::zeros(input.inputs(), "a widened row") {
        Ok(wide) => wide,
        Err(refused) => return output.note(Err(refused)),
    };
    for (row, bytes) in weight.chunks_exact(weight.len() / output.rows()).enumerate() {
        dequantize(bytes, &mut wide);
        for token in 0..input.tokens() {
            output.part(token, row, 1)[0] = dot(&wide, input.floats(token));
        }
    }
}

fn dot(w: &[f32], x: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    for (w, x) in w.chunks(LANES).zip(x.chunks(LANES)) {
        for ((lane, w), x) in lanes.iter_mut().zip(w).zip(x) {
            *lane += w * x;
        }
    }
    sum_lanes(lanes)
}
