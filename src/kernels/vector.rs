//! Operations on rows of activations: norm, bias, gate, rotary position.
//!
//! Each is written once, as code that compilers vectorise, and compiled for each instruction set: the same bits
//! everywhere.

#![allow(unsafe_code)]

use super::exp::exp;
use super::f16::f16_to_f32;
use super::isa::{Isa, compiled_for};
use model_diagnostics::DType;

/// A stored vector of floats (a norm's weight, a bias), at any alignment, read where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Floats<'a> {
    dtype: DType,
    bytes: &'a [u8],
}

impl<'a> Floats<'a> {
    /// The floats in `bytes`; `None` unless `dtype` is F32, F16 or BF16 and the bytes are whole elements.
    pub fn new(dtype: DType, bytes: &'a [u8]) -> Option<Floats<'a>> {
        let float = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        (float && bytes.len().is_multiple_of(dtype.block_bytes())).then_some(Floats { dtype, bytes })
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.block_bytes()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Calls `each(index, value)` for all elements, widened.
#[inline(always)]
fn for_each_float(floats: Floats<'_>, mut each: impl FnMut(usize, f32)) {
    match floats.dtype {
        DType::F32 => {
            let values = floats.bytes.as_chunks::<4>().0.iter();
            values.enumerate().for_each(|(i, bytes)| each(i, f32::from_le_bytes(*bytes)));
        }
        DType::BF16 => {
            let values = floats.bytes.as_chunks::<2>().0.iter();
            let widen = |bytes: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
            values.enumerate().for_each(|(i, bytes)| each(i, widen(bytes)));
        }
        _ => {
            let values = floats.bytes.as_chunks::<2>().0.iter();
            values.enumerate().for_each(|(i, bytes)| each(i, f16_to_f32(*bytes)));
        }
    }
}

/// `out = x / sqrt(mean(x^2) + eps) * weight`; the mean in f64. Panics unless all have one length, at least 1.
pub fn rms_norm(isa: Isa, x: &[f32], weight: Floats<'_>, eps: f32, out: &mut [f32]) {
    assert!(!x.is_empty() && weight.len() == x.len() && out.len() == x.len(), "lengths of a norm");
    compiled_for!(isa, rms_norm_body, (x: &[f32], weight: Floats<'_>, eps: f32, out: &mut [f32]));
}

#[inline(always)]
fn rms_norm_body(x: &[f32], weight: Floats<'_>, eps: f32, out: &mut [f32]) {
    let mut lanes = [0.0f64; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(x) * f64::from(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(x) * f64::from(x);
    }
    let mean = lanes.iter().sum::<f64>() / x.len() as f64;
    let factor = (1.0 / (mean + f64::from(eps)).sqrt()) as f32;
    for_each_float(weight, |i, weight| out[i] = x[i] * factor * weight);
}

/// `y += floats`. Panics unless the lengths are equal.
pub fn add_floats(isa: Isa, y: &mut [f32], floats: Floats<'_>) {
    assert_eq!(y.len(), floats.len(), "lengths of a sum");
    compiled_for!(isa, add_floats_body, (y: &mut [f32], floats: Floats<'_>));
}

#[inline(always)]
fn add_floats_body(y: &mut [f32], floats: Floats<'_>) {
    for_each_float(floats, |i, value| y[i] += value);
}

/// `y += x`. Panics unless the lengths are equal.
pub fn add(isa: Isa, y: &mut [f32], x: &[f32]) {
    assert_eq!(y.len(), x.len(), "lengths of a sum");
    compiled_for!(isa, add_body, (y: &mut [f32], x: &[f32]));
}

#[inline(always)]
fn add_body(y: &mut [f32], x: &[f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
}

/// `out = gate / (1 + e^-gate) * up`. Panics unless all have one length.
pub fn swiglu(isa: Isa, gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == out.len() && up.len() == out.len(), "lengths of a gate");
    compiled_for!(isa, swiglu_body, (gate: &[f32], up: &[f32], out: &mut [f32]));
}

#[inline(always)]
fn swiglu_body(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        *out = gate / (1.0 + exp(-gate)) * up;
    }
}

/// Rotates the pairs `(x[i], x[i + n])` by the angles whose `n` cosines and sines are given. What follows the first
/// `2 * n` elements stays as it is. Panics when `cos` and `sin` differ in length or `x` is shorter than twice that.
pub fn rotate_half(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    assert!(cos.len() == sin.len() && x.len() >= 2 * cos.len(), "lengths of a rotation");
    compiled_for!(isa, rotate_half_body, (x: &mut [f32], cos: &[f32], sin: &[f32]));
}

#[inline(always)]
fn rotate_half_body(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (first, second) = x.split_at_mut(cos.len());
    for (((a, b), &cos), &sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    }
}

/// Rotates the pairs `(x[2 * i], x[2 * i + 1])`; otherwise as [`rotate_half`].
pub fn rotate_pairs(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    assert!(cos.len() == sin.len() && x.len() >= 2 * cos.len(), "lengths of a rotation");
    compiled_for!(isa, rotate_pairs_body, (x: &mut [f32], cos: &[f32], sin: &[f32]));
}

#[inline(always)]
fn rotate_pairs_body(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    for (([a, b], &cos), &sin) in x.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    }
}
