//! What the float dtypes share: elements that are widened in a register, and the product in plain Rust.

use crate::memory;
use crate::{Call, LANES, sum_lanes};

/// Rows widened one after the other, times all tokens. Lane `i` of 16 adds up the products whose index is `i` modulo 16, in
/// order, by a product and a sum.
pub(super) fn portable(call: &mut Call<'_>, dequantize: impl Fn(&[u8], &mut [f32])) {
    let (weight, input) = (call.weight, call.input);
    let mut wide = match memory::zeros(input.inputs(), "a widened row") {
        Ok(wide) => wide,
        Err(refused) => return call.note(Err(refused)),
    };
    for (row, bytes) in weight.chunks_exact(weight.len() / call.rows()).enumerate() {
        dequantize(bytes, &mut wide);
        for token in 0..input.tokens() {
            call.part(token, row, 1)[0] = dot(&wide, input.floats(token));
        }
    }
}

/// The values of a row whose elements `wide` widens.
pub(super) fn dequantize<const BYTES: usize>(row: &[u8], out: &mut [f32], wide: impl Fn([u8; BYTES]) -> f32) {
    out.iter_mut().zip(row.as_chunks().0).for_each(|(out, bytes)| *out = wide(*bytes));
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
