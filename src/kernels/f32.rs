//! F32: multiplied as stored.
//!
//! Lane `i` of 16 adds up the products whose index is `i` modulo 16, in order; the lanes are added by `sum_lanes`.

use super::isa::Sets;
use super::{Entry, Form, Input, LANES, Output, sum_lanes};
use model_diagnostics::{DType, capability::Tier};

pub(super) const KERNELS: &[Entry] = &[Entry {
    name: "f32/portable",
    dtype: DType::F32,
    tier: Tier::Native,
    form: Form::F32,
    sets: Sets::PORTABLE,
    matmul: portable,
    widen,
}];

fn widen(row: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(row.as_chunks::<4>().0) {
        *out = f32::from_le_bytes(*bytes);
    }
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    floats_portable(weight, input, output, widen);
}

/// Rows widened one after the other, times all tokens.
pub(super) fn floats_portable(
    weight: &[u8],
    input: &Input,
    output: &mut Output<'_>,
    widen: impl Fn(&[u8], &mut [f32]),
) {
    let mut wide = vec![0.0; input.inputs()];
    for (row, bytes) in weight.chunks_exact(weight.len() / output.rows()).enumerate() {
        widen(bytes, &mut wide);
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
