//! Q8_0: blocks of 32 signed bytes with an f16 scale, `w = d * q`; 34 bytes: d, q.
//!
//! The products of a block are added exactly, in integers. Block `b` then adds `sum * (d * scale of x)` to lane
//! `b` modulo 16 by a fused multiply-add, in order; the lanes are added by `sum_lanes`.

use super::f16::f16_to_f32;
use super::isa::Sets;
use super::{Entry, Form, Input, LANES, Output, sum_lanes};
use model_diagnostics::{DType, capability::Tier};

const BYTES: usize = 34;

pub(super) const KERNELS: &[Entry] = &[Entry {
    name: "q8_0/portable",
    dtype: DType::Q8_0,
    tier: Tier::Native,
    form: Form::Q8,
    sets: Sets::PORTABLE,
    matmul: portable,
    widen,
}];

fn widen(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let d = f16_to_f32([block[0], block[1]]);
        for (out, &q) in out.iter_mut().zip(&block[2..]) {
            *out = d * f32::from(q as i8);
        }
    }
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    for (row, bytes) in weight.chunks_exact(weight.len() / output.rows()).enumerate() {
        for token in 0..input.tokens() {
            let x = input.q8(token);
            let mut lanes = [0.0; LANES];
            for (b, block) in bytes.as_chunks::<BYTES>().0.iter().enumerate() {
                let d = f16_to_f32([block[0], block[1]]);
                let sum = dot(&block[2..], &x.bytes[32 * b..][..32]);
                let lane = &mut lanes[b % LANES];
                *lane = (sum as f32).mul_add(d * x.scales[b], *lane);
            }
            output.part(token, row, 1)[0] = sum_lanes(lanes);
        }
    }
}

fn dot(q: &[u8], x: &[i8]) -> i32 {
    q.iter().zip(x).map(|(&q, &x)| i32::from(q as i8) * i32::from(x)).sum()
}
