//! Q4_K: 256 elements as eight blocks of 32 nibbles, `w = d * sc * q - dmin * m`; 144 bytes.
//!
//! Two f16, d and dmin; 12 bytes with the 6-bit sc and m of the eight blocks; 128 bytes of nibbles: 32 bytes hold one
//! block in their low and the next in their high halves.
//!
//! The products of a block are added exactly, in integers. Block `b` then adds `sum * ((d * sc) * scale of x)` to lane
//! `b` modulo 16, and takes away `(dmin * m) * (scale * sum of x)`, both by a fused multiply-add, in order; the lanes
//! are added by `sum_lanes`.

use super::f16::f16_to_f32;
use super::isa::Sets;
use super::{Entry, Form, Input, LANES, Output, sum_lanes};
use model_diagnostics::{DType, capability::Tier};

const BYTES: usize = 144;

pub(super) const KERNELS: &[Entry] = &[Entry {
    name: "q4_k/portable",
    dtype: DType::Q4_K,
    tier: Tier::Native,
    form: Form::Q8,
    sets: Sets::PORTABLE,
    matmul: portable,
    widen,
}];

/// `d * sc` and `dmin * m` of block `b` of eight.
fn scale_and_min(block: &[u8; BYTES], b: usize) -> (f32, f32) {
    let (d, dmin) = (f16_to_f32([block[0], block[1]]), f16_to_f32([block[2], block[3]]));
    let s = &block[4..16];
    let (sc, m) = if b < 4 {
        (s[b] & 63, s[b + 4] & 63)
    } else {
        ((s[b + 4] & 15) | (s[b - 4] >> 6 << 4), (s[b + 4] >> 4) | (s[b] >> 6 << 4))
    };
    (d * f32::from(sc), dmin * f32::from(m))
}

/// Element `i` of block `b` of eight.
fn nibble(block: &[u8; BYTES], b: usize, i: usize) -> u8 {
    let byte = block[16 + 32 * (b / 2) + i];
    if b.is_multiple_of(2) { byte & 15 } else { byte >> 4 }
}

fn widen(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<256>().0) {
        for (b, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = scale_and_min(block, b);
            for (i, out) in out.iter_mut().enumerate() {
                *out = scale * f32::from(nibble(block, b, i)) - min;
            }
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
                let (scale, min) = scale_and_min(block, b % 8);
                let q = (0..32).map(|i| i32::from(nibble(block, b % 8, i)));
                let sum: i32 = q.zip(&x.bytes[32 * b..]).map(|(q, &x)| q * i32::from(x)).sum();
                let lane = &mut lanes[b % LANES];
                *lane = (sum as f32).mul_add(scale * x.scales[b], *lane);
                *lane = (-min).mul_add(x.sums[b], *lane);
            }
            output.part(token, row, 1)[0] = sum_lanes(lanes);
        }
    }
}
