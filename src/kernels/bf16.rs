//! BF16: by the processor's BF16 dot product where it has one, else widened by a shift.
//!
//! Lane `i` of 16 adds up the products whose index is `i` modulo 16 (with the BF16 dot product: whose index halved is
//! `i` modulo 16), in order; the lanes are added by `sum_lanes`.

use super::f32::floats_portable;
use super::isa::Sets;
use super::{Entry, Form, Input, Output};
use model_diagnostics::{DType, capability::Tier};

pub(super) const KERNELS: &[Entry] = &[Entry {
    name: "bf16/portable",
    dtype: DType::BF16,
    tier: Tier::Widened,
    form: Form::F32,
    sets: Sets::PORTABLE,
    matmul: portable,
    widen,
}];

pub(super) fn widen(row: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(row.as_chunks::<2>().0) {
        *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
    }
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    floats_portable(weight, input, output, widen);
}
