//! Q6_K: 256 elements of 6 bits with a signed scale each 16, `w = d * sc * (q - 32)`; 210 bytes.
//!
//! 128 bytes of low nibbles, 64 bytes of high pairs, 16 scales, d in f16. Each half of 128 elements has 64 of the low
//! bytes and 32 of the high: element `32 * j + i` has its nibble in byte `32 * (j % 2) + i`, low for `j < 2`, and its
//! pair in byte `i`, at bit `2 * j`.
//!
//! The products of 16 elements are added exactly in integers, multiplied by their scales and added in pairs, still
//! exactly. Block `b` of 32 then adds `sum * (d * scale of x)` to lane `b` modulo 16 by a fused multiply-add, in order;
//! the lanes are added by `sum_lanes`.

use super::f16::f16_to_f32;
use super::isa::Sets;
use super::{Entry, Form, Input, LANES, Output, sum_lanes};
use model_diagnostics::{DType, capability::Tier};

const BYTES: usize = 210;

pub(super) const KERNELS: &[Entry] = &[Entry {
    name: "q6_k/portable",
    dtype: DType::Q6_K,
    tier: Tier::Native,
    form: Form::Q8,
    sets: Sets::PORTABLE,
    matmul: portable,
    widen,
}];

fn d(block: &[u8; BYTES]) -> f32 {
    f16_to_f32([block[208], block[209]])
}

/// The scale of elements `16 * s ..`.
fn scale(block: &[u8; BYTES], s: usize) -> i32 {
    i32::from(block[192 + s] as i8)
}

/// Element `i` of 256, from -32 to 31.
fn element(block: &[u8; BYTES], i: usize) -> i32 {
    let (half, j, i) = (i / 128, i / 32 % 4, i % 32);
    let low = block[64 * half + 32 * (j % 2) + i] >> (4 * (j / 2)) & 15;
    let high = block[128 + 32 * half + i] >> (2 * j) & 3;
    i32::from(low | high << 4) - 32
}

fn widen(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<256>().0) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = d(block) * (scale(block, i / 16) * element(block, i)) as f32;
        }
    }
}

fn portable(weight: &[u8], input: &Input, output: &mut Output<'_>) {
    for (row, bytes) in weight.chunks_exact(weight.len() / output.rows()).enumerate() {
        for token in 0..input.tokens() {
            let x = input.q8(token);
            let mut lanes = [0.0; LANES];
            for b in 0..input.inputs() / 32 {
                let block = &bytes.as_chunks::<BYTES>().0[b / 8];
                let products = x.bytes[32 * b..][..32].iter().enumerate().map(|(i, &x)| {
                    let i = 32 * (b % 8) + i;
                    scale(block, i / 16) * element(block, i) * i32::from(x)
                });
                let sum: i32 = products.sum();
                let lane = &mut lanes[b % LANES];
                *lane = (sum as f32).mul_add(d(block) * x.scales[b], *lane);
            }
            output.part(token, row, 1)[0] = sum_lanes(lanes);
        }
    }
}
