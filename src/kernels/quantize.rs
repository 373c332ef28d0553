//! Rows of floats -> BF16, and blocks of signed bytes.

#![allow(unsafe_code)]

use super::input::BLOCK;
use super::isa::{Isa, compiled_for};

/// A row of blocks to be written; see `super::input::Q8`.
pub(super) struct Q8Mut<'a> {
    pub(super) bytes: &'a mut [i8],
    pub(super) scales: &'a mut [f32],
    pub(super) sums: &'a mut [f32],
    pub(super) offsets: &'a mut [i32],
    pub(super) half_offsets: &'a mut [i32],
}

/// Rounds `x` to BF16, ties to even.
pub(super) fn round_to_bf16(isa: Isa, x: &[f32], row: &mut [u16]) {
    compiled_for!(isa, round_to_bf16_body, (x: &[f32], row: &mut [u16]));
}

#[inline(always)]
fn round_to_bf16_body(x: &[f32], row: &mut [u16]) {
    for (half, &x) in row.iter_mut().zip(x) {
        *half = bf16_bits(x);
    }
}

/// The nearest BF16, ties to even; a NaN stays one.
#[inline(always)]
fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    let nan = (bits >> 16) as u16 | 0x40;
    if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded }
}

/// Brings `x` into blocks.
pub(super) fn quantize(isa: Isa, x: &[f32], q8: &mut Q8Mut<'_>) {
    #[cfg(target_arch = "x86_64")]
    if isa.has(super::isa::Sets::AVX512) {
        // SAFETY: the token is proof of the instruction sets.
        return unsafe { avx512::quantize(x, q8) };
    }
    quantize_compiled(isa, x, q8);
}

fn quantize_compiled(isa: Isa, x: &[f32], q8: &mut Q8Mut<'_>) {
    compiled_for!(isa, quantize_body, (x: &[f32], q8: &mut Q8Mut<'_>));
}

/// The nearest integer, ties to even, for magnitudes below 2^22: adding 1.5 * 2^23 leaves no room for a fraction.
const ROUND: f32 = 12_582_912.0;

#[inline(always)]
fn quantize_body(x: &[f32], q8: &mut Q8Mut<'_>) {
    let (x, _) = x.as_chunks::<BLOCK>();
    let (bytes, _) = q8.bytes.as_chunks_mut::<BLOCK>();
    let (half_offsets, _) = q8.half_offsets.as_chunks_mut::<2>();
    let rows = x.iter().zip(bytes).zip(&mut *q8.scales).zip(&mut *q8.sums).zip(&mut *q8.offsets).zip(half_offsets);
    for (((((x, bytes), scale), sum), offset), half_offset) in rows {
        // The largest magnitude by its bits, whose order is that of the numbers; a NaN is larger than all.
        let mut largest = [0u32; 16];
        for (lane, largest) in largest.iter_mut().enumerate() {
            let (a, b) = (x[lane].to_bits() & 0x7fff_ffff, x[lane + 16].to_bits() & 0x7fff_ffff);
            *largest = a.max(b);
        }
        let largest = f32::from_bits(largest.iter().fold(0, |a, &b| a.max(b)));
        *scale = largest / 127.0;
        // Where the scale is 0 or NaN any divisor will do: the bytes will be multiplied by that scale.
        let divisor = if *scale > 0.0 { *scale } else { 1.0 };
        let mut q = [0i32; BLOCK];
        for (q, &x) in q.iter_mut().zip(x) {
            let rounded = (x / divisor + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
            *q = rounded.clamp(-127, 127);
        }
        for (byte, &q) in bytes.iter_mut().zip(&q) {
            *byte = q as i8;
        }
        let halves = [q[..16].iter().sum::<i32>(), q[16..].iter().sum::<i32>()];
        *half_offset = [-128 * halves[0], -128 * halves[1]];
        *offset = -128 * (halves[0] + halves[1]);
        *sum = *scale * (halves[0] + halves[1]) as f32;
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{BLOCK, Q8Mut, ROUND};
    use crate::kernels::avx512::load_floats;
    use std::arch::x86_64::*;

    /// As `quantize_body`, bit by bit.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn quantize(x: &[f32], q8: &mut Q8Mut<'_>) {
        let (x, _) = x.as_chunks::<BLOCK>();
        let (bytes, _) = q8.bytes.as_chunks_mut::<BLOCK>();
        let (half_offsets, _) = q8.half_offsets.as_chunks_mut::<2>();
        let rows = x.iter().zip(bytes).zip(&mut *q8.scales).zip(&mut *q8.sums).zip(&mut *q8.offsets).zip(half_offsets);
        let magnitude = _mm512_set1_epi32(0x7fff_ffff);
        let round = _mm512_set1_ps(ROUND);
        for (((((x, bytes), scale), sum), offset), half_offset) in rows {
            let [a, b] = x.as_chunks::<16>().0 else { unreachable!("a block is 32 elements") };
            let (a, b) = (load_floats(a), load_floats(b));
            let bits = |v: __m512| _mm512_and_si512(_mm512_castps_si512(v), magnitude);
            let largest = _mm512_reduce_max_epu32(_mm512_max_epu32(bits(a), bits(b)));
            *scale = f32::from_bits(largest) / 127.0;
            let divisor = _mm512_set1_ps(if *scale > 0.0 { *scale } else { 1.0 });
            let quantized = |v: __m512| {
                let shifted = _mm512_castps_si512(_mm512_add_ps(_mm512_div_ps(v, divisor), round));
                let q = _mm512_sub_epi32(shifted, _mm512_castps_si512(round));
                _mm512_max_epi32(_mm512_min_epi32(q, _mm512_set1_epi32(127)), _mm512_set1_epi32(-127))
            };
            let (a, b) = (quantized(a), quantized(b));
            let halves = [_mm512_reduce_add_epi32(a), _mm512_reduce_add_epi32(b)];
            let both = _mm256_set_m128i(_mm512_cvtepi32_epi8(b), _mm512_cvtepi32_epi8(a));
            // SAFETY: the array is 32 bytes; the store needs no alignment.
            unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), both) };
            *half_offset = [-128 * halves[0], -128 * halves[1]];
            *offset = -128 * (halves[0] + halves[1]);
            *sum = *scale * (halves[0] + halves[1]) as f32;
        }
    }
}
