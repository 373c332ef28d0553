//! Operations on rows of activations: norm, bias, gate, rotary position.
//!
//! Each is written once, as code that compilers vectorize, and compiled for each instruction set: the same bits
//! everywhere.

use super::exp::{exp, exp_m1, tanh};
use crate::element::{bf16_to_f32, e8m0_to_f32, f16_to_f32};
use crate::isa::{Isa, compiled_for};
use model_factory_dtypes::DType;
use std::ops::Range;

/// A stored vector of floats (a norm's weight, a bias), at any alignment, read where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Floats<'a> {
    dtype: DType,
    bytes: &'a [u8],
}

/// What the elements of a norm are multiplied by.
#[derive(Clone, Copy, Debug)]
pub enum Gain<'a> {
    /// One.
    One,
    /// These.
    Stored(Floats<'a>),
    /// One more than these.
    FromOne(Floats<'a>),
}

impl Gain<'_> {
    fn fits(self, len: usize) -> bool {
        matches!(self, Gain::Stored(weight) | Gain::FromOne(weight) if weight.len() == len) || matches!(self, Gain::One)
    }
}

impl<'a> Floats<'a> {
    /// The floats in `bytes`; `None` unless `dtype` is F32, F16, BF16 or F8_E8M0 and the bytes are whole elements.
    pub fn new(dtype: DType, bytes: &'a [u8]) -> Option<Floats<'a>> {
        let float = matches!(dtype, DType::F32 | DType::F16 | DType::BF16 | DType::F8_E8M0);
        (float && bytes.len().is_multiple_of(dtype.block_bytes())).then_some(Floats { dtype, bytes })
    }

    /// Floats that are F32 already.
    pub(crate) fn f32(floats: &'a [f32]) -> Floats<'a> {
        Floats { dtype: DType::F32, bytes: bytemuck::cast_slice(floats) }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.block_bytes()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Element `index`; 0 past the end.
    pub fn get(self, index: usize) -> f32 {
        match self.dtype {
            DType::F32 => f32::from_le_bytes(*self.chunk(4 * index)),
            DType::BF16 => bf16_to_f32(*self.chunk(2 * index)),
            DType::F8_E8M0 => e8m0_to_f32(self.bytes.get(index).copied().unwrap_or_default()),
            _ => f16_to_f32(*self.chunk(2 * index)),
        }
    }

    /// Some of the elements. Panics past the end.
    pub(crate) fn part(self, elements: Range<usize>) -> Floats<'a> {
        let size = self.dtype.block_bytes();
        Floats { bytes: &self.bytes[size * elements.start..size * elements.end], ..self }
    }

    /// The number of elements of `bytes` each.
    #[inline(always)]
    pub(crate) fn len_of(self, bytes: usize) -> usize {
        self.bytes.len() / bytes
    }

    /// The elements as they are stored.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The dtype of the elements.
    pub(crate) fn dtype(self) -> DType {
        self.dtype
    }

    /// `N` bytes from byte `at` on; zeros unless they are there.
    #[inline(always)]
    pub(crate) fn chunk<const N: usize>(&self, at: usize) -> &[u8; N] {
        self.from(at).first_chunk().unwrap_or(&[0; N])
    }

    /// The bytes from byte `at` on.
    #[inline(always)]
    pub(crate) fn from(&self, at: usize) -> &'a [u8] {
        self.bytes.get(at..).unwrap_or_default()
    }

    /// The first element that is `wanted`, and its index. Reads all elements.
    pub fn find(self, wanted: impl Fn(f32) -> bool) -> Option<(usize, f32)> {
        let mut first = None;
        for_each_float(self, |index, value| {
            if first.is_none() && wanted(value) {
                first = Some((index, value));
            }
        });
        first
    }
}

/// Calls `each(index, value)` for all elements, widened.
#[inline(always)]
pub(crate) fn for_each_float(floats: Floats<'_>, mut each: impl FnMut(usize, f32)) {
    let halves = floats.bytes.as_chunks::<2>().0.iter().enumerate();
    match floats.dtype {
        DType::F32 => {
            let values = floats.bytes.as_chunks::<4>().0.iter().enumerate();
            values.for_each(|(i, bytes)| each(i, f32::from_le_bytes(*bytes)));
        }
        DType::BF16 => halves.for_each(|(i, bytes)| each(i, bf16_to_f32(*bytes))),
        DType::F8_E8M0 => floats.bytes.iter().enumerate().for_each(|(i, byte)| each(i, e8m0_to_f32(*byte))),
        _ => halves.for_each(|(i, bytes)| each(i, f16_to_f32(*bytes))),
    }
}

/// The sum of `term(x)` in sixteen lanes.
#[inline(always)]
pub(super) fn sum_in_lanes(x: &[f32], term: impl Fn(f32) -> f64) -> f64 {
    let mut lanes = [0.0f64; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += term(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += term(x);
    }
    lanes.iter().sum()
}

#[inline(always)]
fn gelu(x: f32) -> f32 {
    /// `-2 * sqrt(2 / pi)`.
    const OUTER: f32 = -1.595_769;
    x / (1.0 + exp::<false>(OUTER * (x + 0.044715 * x * x * x)))
}

/// `out` = the elements that `normed` gives, times their gain.
#[inline(always)]
fn gained(gain: Gain<'_>, out: &mut [f32], normed: impl Fn(usize) -> f32) {
    match gain {
        Gain::One => out.iter_mut().enumerate().for_each(|(i, out)| *out = normed(i)),
        Gain::Stored(weight) => for_each_float(weight, |i, weight| out[i] = normed(i) * weight),
        Gain::FromOne(weight) => for_each_float(weight, |i, weight| out[i] = normed(i) * (1.0 + weight)),
    }
}

compiled_for! {
    /// `out = x / sqrt(mean(x^2) + eps) * gain`; the mean in f64. Panics unless all have one length, at least 1.
    pub fn rms_norm(isa: Isa, x: &[f32], gain: Gain<'_>, eps: f32, out: &mut [f32]) {
        assert!(!x.is_empty() && gain.fits(x.len()) && out.len() == x.len(), "lengths of a norm");
        let mean = sum_in_lanes(x, |x| f64::from(x) * f64::from(x)) / x.len() as f64;
        let factor = (1.0 / (mean + f64::from(eps)).sqrt()) as f32;
        gained(gain, out, |i| x[i] * factor);
    }

    /// `out = scale * x / sqrt(sum(x^2) + eps)`; the sum in f64. Panics unless both have one length.
    pub fn l2_norm(isa: Isa, x: &[f32], scale: f32, eps: f32, out: &mut [f32]) {
        assert_eq!(x.len(), out.len(), "lengths of a norm");
        let sum = sum_in_lanes(x, |x| f64::from(x) * f64::from(x));
        let factor = (f64::from(scale) / (sum + f64::from(eps)).sqrt()) as f32;
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x * factor);
    }

    /// `x = x / sqrt(mean(x^2) + eps)`; the mean in f64. Panics unless there is an element.
    pub fn divide_by_rms(isa: Isa, x: &mut [f32], eps: f32) {
        assert!(!x.is_empty(), "lengths of a norm");
        let mean = sum_in_lanes(x, |x| f64::from(x) * f64::from(x)) / x.len() as f64;
        let factor = (1.0 / (mean + f64::from(eps)).sqrt()) as f32;
        x.iter_mut().for_each(|x| *x *= factor);
    }

    /// `out = (x - mean(x)) / sqrt(variance(x) + eps) * gain`, and `+ bias` where there is one; mean and variance in f64.
    /// Panics unless all have one length, at least 1.
    pub fn layer_norm(isa: Isa, x: &[f32], gain: Gain<'_>, bias: Option<Floats<'_>>, eps: f32, out: &mut [f32]) {
        let lengths = [bias.map_or(x.len(), |bias| bias.len()), out.len()];
        assert!(!x.is_empty() && gain.fits(x.len()) && lengths == [x.len(); 2], "lengths of a norm");
        let n = x.len() as f64;
        let mean = sum_in_lanes(x, f64::from) / n;
        let variance = sum_in_lanes(x, |x| (f64::from(x) - mean) * (f64::from(x) - mean)) / n;
        let (mean, factor) = (mean as f32, (1.0 / (variance + f64::from(eps)).sqrt()) as f32);
        gained(gain, out, |i| (x[i] - mean) * factor);
        if let Some(bias) = bias {
            for_each_float(bias, |i, bias| out[i] += bias);
        }
    }

    /// `y += floats`. Panics unless the lengths are equal.
    pub fn add_floats(isa: Isa, y: &mut [f32], floats: Floats<'_>) {
        assert_eq!(y.len(), floats.len(), "lengths of a sum");
        for_each_float(floats, |i, value| y[i] += value);
    }

    /// `y *= floats`, one for each or one for all. Panics unless there are as many or one.
    pub fn scale_floats(isa: Isa, y: &mut [f32], floats: Floats<'_>) {
        assert!(floats.len() == y.len() || floats.len() == 1, "lengths of a product");
        if floats.len() == 1 {
            for_each_float(floats, |_, value| y.iter_mut().for_each(|y| *y *= value));
        } else {
            for_each_float(floats, |i, value| y[i] *= value);
        }
    }

    /// `y += x`. Panics unless the lengths are equal.
    pub fn add(isa: Isa, y: &mut [f32], x: &[f32]) {
        assert_eq!(y.len(), x.len(), "lengths of a sum");
        y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
    }

    /// `y += scale * x`. Panics unless the lengths are equal.
    pub fn add_scaled(isa: Isa, y: &mut [f32], x: &[f32], scale: f32) {
        assert_eq!(y.len(), x.len(), "lengths of a sum");
        y.iter_mut().zip(x).for_each(|(y, x)| *y += scale * *x);
    }

    /// `x = cap * tanh(x / cap)`.
    pub fn soft_cap(isa: Isa, x: &mut [f32], cap: f32) {
        x.iter_mut().for_each(|x| *x = cap * tanh::<false>(*x / cap));
    }

    /// `out = gate / (1 + e^-gate) * up`. Panics unless all have one length.
    pub fn swiglu(isa: Isa, gate: &[f32], up: &[f32], out: &mut [f32]) {
        assert!(gate.len() == out.len() && up.len() == out.len(), "lengths of a gate");
        for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exp::<false>(-gate)) * up;
        }
    }

    /// `out = gate / (1 + e^(-alpha * gate)) * (up + 1)`, with the gate cut to at most `limit` and up to `-limit..=limit`. Panics
    /// unless all have one length.
    pub fn clamped_swiglu(isa: Isa, gate_up: [&[f32]; 2], limit: f32, alpha: f32, out: &mut [f32]) {
        let [gate, up] = gate_up;
        assert!(gate.len() == out.len() && up.len() == out.len(), "lengths of a gate");
        // This is written so that NaN passes.
        let at_most = |x: f32| if x > limit { limit } else { x };
        for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
            let (gate, up) = (at_most(gate), at_most(up));
            let up = if up < -limit { -limit } else { up };
            *out = gate / (1.0 + exp::<false>(-alpha * gate)) * (up + 1.0);
        }
    }

    /// `y = y / (1 + e^-gate)`. Panics unless both have one length.
    pub fn gate_sigmoid(isa: Isa, gate: &[f32], y: &mut [f32]) {
        assert_eq!(gate.len(), y.len(), "lengths of a gate");
        y.iter_mut().zip(gate).for_each(|(y, &gate)| *y /= 1.0 + exp::<false>(-gate));
    }

    /// `x = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`, which is `x / (1 + e^-2u)` with the argument `u` of the
    /// tanh.
    pub fn gelu_tanh(isa: Isa, x: &mut [f32]) {
        x.iter_mut().for_each(|x| *x = gelu(*x));
    }

    /// `x = x * sigmoid(1.702 * x)`.
    pub fn gelu_quick(isa: Isa, x: &mut [f32]) {
        x.iter_mut().for_each(|x| *x /= 1.0 + exp::<false>(-1.702 * *x));
    }

    /// `x = x / 2 * (1 + erf(x / sqrt(2)))`, within 3e-7 of `|x|`: `x` times the part of a normal distribution below it.
    pub fn gelu_erf(isa: Isa, x: &mut [f32]) {
        /// Beyond it the part of the distribution is below 1e-9.
        const LAST: f32 = 6.0;
        /// The logarithm of the part of the distribution below `-a`, from 0 to `LAST`: a polynomial of `a`, the highest power
        /// first, whose error was made even relative to `1 + |log|` (4.6e-8).
        const LOG_PART: [f32; 11] = [
            -1.162_203_3e-8,
            3.765_130_4e-7,
            -5.204_883e-6,
            3.870_797_8e-5,
            -1.434_612_6e-4,
            -1.071_814_55e-4,
            4.949_796_5e-3,
            -3.644_315_5e-2,
            -3.182_758_4e-1,
            -7.978_886_4e-1,
            -std::f32::consts::LN_2,
        ];
        for x in x {
            let a = x.abs();
            let log = LOG_PART[1..].iter().fold(LOG_PART[0], |sum, factor| sum * a + factor);
            let below = if a > LAST { 0.0 } else { exp::<false>(log) };
            *x *= if *x < 0.0 { below } else { 1.0 - below };
        }
    }

    /// `x = alpha_p * x^2 + beta * x` above 0, else `alpha_n * (e^min(x, eps) - 1 - x) + beta * x` (xIELU, arXiv 2411.13010).
    pub fn xielu(isa: Isa, x: &mut [f32], numbers: [f32; 4]) {
        let [alpha_p, alpha_n, beta, eps] = numbers;
        for x in x {
            // This is written so that NaN passes.
            let below = alpha_n * (exp_m1::<false>(if *x > eps { eps } else { *x }) - *x);
            *x = beta * *x + if *x > 0.0 { alpha_p * *x * *x } else { below };
        }
    }

    /// `out = gelu(gate) * up`, by the formula of [`gelu_tanh`]. Panics unless all have one length.
    pub fn geglu(isa: Isa, gate: &[f32], up: &[f32], out: &mut [f32]) {
        assert!(gate.len() == out.len() && up.len() == out.len(), "lengths of a gate");
        out.iter_mut().zip(gate).zip(up).for_each(|((out, gate), up)| *out = gelu(*gate) * up);
    }

    /// Rotates the pairs `(x[i], x[i + n])` by the angles whose `n` cosines and sines are given. Elements after the first
    /// `2 * n` stay as they are. Panics when `cos` and `sin` differ in length or `x` is shorter than twice that.
    pub fn rotate_half(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32]) {
        assert!(cos.len() == sin.len() && x.len() >= 2 * cos.len(), "lengths of a rotation");
        let (first, second) = x.split_at_mut(cos.len());
        for (((a, b), &cos), &sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }

    /// Rotates the pairs `(x[2 * i], x[2 * i + 1])`; otherwise like [`rotate_half`].
    pub fn rotate_pairs(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32]) {
        assert!(cos.len() == sin.len() && x.len() >= 2 * cos.len(), "lengths of a rotation");
        for (([a, b], &cos), &sin) in x.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, each_isa};

    const LENGTHS: [usize; 9] = [1, 2, 15, 16, 17, 64, 100, 576, 2048];

    fn stored(dtype: DType, values: &[f32]) -> Vec<u8> {
        let bytes = |x: &f32| match dtype {
            DType::F32 => x.to_le_bytes().to_vec(),
            DType::F16 => half::f16::from_f32(*x).to_le_bytes().to_vec(),
            _ => half::bf16::from_f32(*x).to_le_bytes().to_vec(),
        };
        // One byte in front removes any alignment.
        std::iter::once(0).chain(values.iter().flat_map(bytes)).collect()
    }

    #[test]
    fn norms_and_adds_with_every_float_dtype() {
        let mut random = Random::new(21);
        for len in LENGTHS {
            let (x, w) = (random.floats(len), random.floats(len));
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                let bytes = stored(dtype, &w);
                let weight = Floats::new(dtype, &bytes[1..]).unwrap();
                assert_eq!((weight.len(), weight.is_empty()), (len, false));
                let mut wide = vec![0.0; len];
                add_floats(Isa::portable(), &mut wide, weight);
                let mean = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / len as f64;
                for isa in each_isa() {
                    let mut out = vec![f32::NAN; len];
                    rms_norm(isa, &x, Gain::Stored(weight), 1e-5, &mut out);
                    let mut from_one = out.clone();
                    rms_norm(isa, &x, Gain::FromOne(weight), 1e-5, &mut from_one);
                    let mut plain = out.clone();
                    rms_norm(isa, &x, Gain::One, 1e-5, &mut plain);
                    let mut sum = x.clone();
                    add_floats(isa, &mut sum, weight);
                    for i in 0..len {
                        let normed = f64::from(x[i]) / (mean + f64::from(1e-5f32)).sqrt();
                        // There are three roundings: of the factor and of two products; and the sum with one.
                        let factors = [f64::from(wide[i]), f64::from(1.0 + wide[i]), 1.0];
                        for (out, factor) in [out[i], from_one[i], plain[i]].into_iter().zip(factors) {
                            let truth = normed * factor;
                            let error = (f64::from(out) - truth).abs();
                            assert!(error <= 2e-7 * truth.abs(), "{isa} {dtype} {len} {i}");
                        }
                        assert_eq!(sum[i], x[i] + wide[i]);
                    }
                }
            }
        }
        assert!(Floats::new(DType::Q8_0, &[0; 34]).is_none());
        assert!(Floats::new(DType::F32, &[0; 5]).is_none());
    }

    #[test]
    fn gates_and_rotates() {
        let mut random = Random::new(22);
        for len in LENGTHS {
            let gate: Vec<f32> = random.floats(len).iter().map(|x| x * 40.0).collect();
            let up = random.floats(len);
            let angles = random.floats(len);
            let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
            let x = random.floats(2 * len + 3);
            for isa in each_isa() {
                let mut out = vec![f32::NAN; len];
                swiglu(isa, &gate, &up, &mut out);
                for i in 0..len {
                    let truth = f64::from(gate[i]) / (1.0 + (-f64::from(gate[i])).exp()) * f64::from(up[i]);
                    // The errors: the exponential within 1.5, and a rounding each of sum, quotient and product.
                    assert!((f64::from(out[i]) - truth).abs() <= 4e-7 * truth.abs(), "{isa} {len} {i}");
                }
                // The numbers go beyond both limits, on both sides.
                let wide: Vec<f32> = up.iter().map(|up| up * 12.0).collect();
                clamped_swiglu(isa, [&gate, &wide], 7.0, 1.702, &mut out);
                for i in 0..len {
                    let (gate, up) = (f64::from(gate[i].min(7.0)), f64::from(wide[i].clamp(-7.0, 7.0)));
                    let truth = gate / (1.0 + (-1.702 * gate).exp()) * (up + 1.0);
                    // These errors too; an exponent of up to 70 carries two roundings, which the exponential makes relative
                    // errors, and the sum with one cancels.
                    let bound = (4e-7 + 70.0 * 1.2e-7) * truth.abs() + 1.2e-7 * gate.abs() * up.abs().max(1.0);
                    assert!((f64::from(out[i]) - truth).abs() <= bound, "{isa} {len} {i}");
                }
                geglu(isa, &gate, &up, &mut out);
                let (mut plain, mut capped, mut sum) = (gate.clone(), gate.clone(), up.clone());
                gelu_tanh(isa, &mut plain);
                soft_cap(isa, &mut capped, 30.0);
                add_scaled(isa, &mut sum, &gate, 0.22);
                for i in 0..len {
                    assert_eq!(out[i], plain[i] * up[i]);
                    // The errors: the tangent within 3 units, and two roundings.
                    let truth = 30.0 * (f64::from(gate[i]) / 30.0).tanh();
                    assert!((f64::from(capped[i]) - truth).abs() <= 4e-7 * truth.abs(), "{isa} {len} {i}");
                    assert_eq!(sum[i], up[i] + 0.22 * gate[i]);
                }
                let (mut half, mut pairs) = (x.clone(), x.clone());
                rotate_half(isa, &mut half, &cos, &sin);
                rotate_pairs(isa, &mut pairs, &cos, &sin);
                for i in 0..len {
                    let turned = |a: f32, b: f32| (a * cos[i] - b * sin[i], b * cos[i] + a * sin[i]);
                    assert_eq!((half[i], half[i + len]), turned(x[i], x[i + len]));
                    assert_eq!((pairs[2 * i], pairs[2 * i + 1]), turned(x[2 * i], x[2 * i + 1]));
                }
                assert_eq!((&half[2 * len..], &pairs[2 * len..]), (&x[2 * len..], &x[2 * len..]));
            }
        }
    }

    #[test]
    fn layer_norms_with_every_float_dtype() {
        let mut random = Random::new(23);
        for len in LENGTHS {
            // The numbers are far from zero on average, so that a mean that is not subtracted shows.
            let x: Vec<f32> = random.floats(len).iter().map(|x| x + 3.0).collect();
            let (w, b) = (random.floats(len), random.floats(len));
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                let (weight, bias) = (stored(dtype, &w), stored(dtype, &b));
                let [weight, bias] = [&weight, &bias].map(|bytes| Floats::new(dtype, &bytes[1..]).unwrap());
                let widened = [weight, bias].map(|floats| {
                    let mut wide = vec![0.0; len];
                    add_floats(Isa::portable(), &mut wide, floats);
                    wide
                });
                let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / len as f64;
                let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / len as f64;
                for isa in each_isa() {
                    let mut out = vec![f32::NAN; len];
                    layer_norm(isa, &x, Gain::Stored(weight), Some(bias), 1e-5, &mut out);
                    for i in 0..len {
                        let factor = 1.0 / (variance + f64::from(1e-5f32)).sqrt();
                        let scaled = (f64::from(x[i]) - mean) * factor * f64::from(widened[0][i]);
                        let truth = scaled + f64::from(widened[1][i]);
                        // The rounded mean is off by 2^-24 of it; three more roundings of the scaled part, one of the sum.
                        let size = mean.abs() * factor * f64::from(widened[0][i]).abs() + scaled.abs() + truth.abs();
                        assert!((f64::from(out[i]) - truth).abs() <= 3e-7 * size, "{isa} {dtype} {len} {i}");
                    }
                }
            }
        }
    }

    #[test]
    fn gelu_by_its_tanh_formula() {
        let truth = |x: f64| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        };
        for isa in each_isa() {
            let xs: Vec<f32> = (-400..=400).map(|i| i as f32 / 40.0).collect();
            let mut out = xs.clone();
            gelu_tanh(isa, &mut out);
            for (&x, &out) in xs.iter().zip(&out) {
                let truth = truth(f64::from(x));
                // An exponent of e of up to 88 carries four roundings, which the exponential makes relative errors.
                let bound = 88.0 * 4.0 * 6e-8 * truth.abs() + 1e-37;
                // The f64 formula itself cancels where tanh is nearly -1.
                let cancelled = 1e-16 * f64::from(x).abs();
                assert!((f64::from(out) - truth).abs() <= bound + cancelled, "{isa} {x}: {out} for {truth}");
            }
            let mut ends = [-1e30, -100.0, 0.0, 100.0, 1e30, f32::NAN];
            gelu_tanh(isa, &mut ends);
            assert_eq!(ends[..5], [0.0, 0.0, 0.0, 100.0, 1e30]);
            assert!(ends[5].is_nan());
        }
    }

    #[test]
    fn gelu_by_a_sigmoid() {
        for isa in each_isa() {
            let xs: Vec<f32> = (-400..=400).map(|i| i as f32 / 40.0).collect();
            let mut out = xs.clone();
            gelu_quick(isa, &mut out);
            for (&x, &out) in xs.iter().zip(&out) {
                let wide = f64::from(x);
                let truth = wide / (1.0 + (-1.702 * wide).exp());
                // The exponent carries two roundings, which the exponential makes relative errors of up to its amount, and the rest a few.
                let bound = (17.1 * 2.0 + 4.0) * 6e-8 * truth.abs() + 1e-37;
                assert!((f64::from(out) - truth).abs() <= bound, "{isa} {x}: {out} for {truth}");
            }
            let mut ends = [-1e30, -100.0, -0.0, 0.0, 100.0, 1e30, f32::NAN];
            gelu_quick(isa, &mut ends);
            assert_eq!(ends[..6], [0.0, 0.0, 0.0, 0.0, 100.0, 1e30]);
            assert!(ends[6].is_nan());
        }
    }

    #[test]
    fn gelu_by_the_error_function() {
        // The truths are for x = 0.5, 1, 2, 3, 4, 5 and the negatives: 0.5 * x * erfc(-x / sqrt(2)) in Python's float64.
        let truths = [
            (0.5, 0.34573123063700656, -0.15426876936299344),
            (1.0, 0.8413447460685429, -0.15865525393145707),
            (2.0, 1.9544997361036416, -0.04550026389635844),
            (3.0, 2.99595030590511, -0.004049694094890287),
            (4.0, 3.9998733150326675, -0.00012668496733247986),
            (5.0, 4.99999856674214, -1.4332578593959731e-6),
        ];
        for isa in each_isa() {
            for (x, above, below) in truths {
                let mut out = [x as f32, -x as f32];
                gelu_erf(isa, &mut out);
                assert!((f64::from(out[0]) - above).abs() <= 3e-7 * x, "{isa} {x}: {}", out[0]);
                assert!((f64::from(out[1]) - below).abs() <= 3e-7 * x, "{isa} -{x}: {}", out[1]);
            }
            let mut ends = [-1e30, -100.0, -0.0, 0.0, 100.0, 1e30, f32::NAN];
            gelu_erf(isa, &mut ends);
            assert_eq!(ends[..6], [0.0, 0.0, 0.0, 0.0, 100.0, 1e30]);
            assert!(ends[6].is_nan());
        }
    }

    #[test]
    fn xielu_by_its_formula() {
        for isa in each_isa() {
            let [alpha_p, alpha_n, beta, eps] = [0.75_f32, 1.25, 0.5, -1e-6];
            let xs: Vec<f32> = (-800..=800).map(|i| i as f32 / 37.0).collect();
            let mut out = xs.clone();
            xielu(isa, &mut out, [alpha_p, alpha_n, beta, eps]);
            for (&x, &out) in xs.iter().zip(&out) {
                let (below, x) = (f64::from(x.min(eps)).exp_m1(), f64::from(x));
                let linear = f64::from(beta) * x;
                let (truth, size) = match x > 0.0 {
                    true => (f64::from(alpha_p) * x * x + linear, f64::from(alpha_p) * x * x + linear),
                    false => {
                        (f64::from(alpha_n) * (below - x) + linear, f64::from(alpha_n) * (x - below).abs() - linear)
                    }
                };
                // The difference loses what both its terms round.
                assert!((f64::from(out) - truth).abs() <= 3e-7 * (size - below), "{isa} {x}: {out} for {truth}");
            }
            let mut ends = [-1e30, 0.0, 1e10, f32::NAN];
            xielu(isa, &mut ends, [1.0, 1.0, 0.5, eps]);
            assert_eq!(ends[..3], [5e29, eps.exp_m1(), 1e20]);
            assert!(ends[3].is_nan());
        }
    }

    #[test]
    fn gates_at_the_ends_of_the_range() {
        for isa in each_isa() {
            let gate = [-1e30, -200.0, -89.0, 0.0, 89.0, 1e30, f32::NAN];
            let mut out = [1.0; 7];
            swiglu(isa, &gate, &[1.0; 7], &mut out);
            assert_eq!(out[..2], [0.0, 0.0]);
            assert!(out[2].abs() < 1e-36);
            assert_eq!(out[3..6], [0.0, 89.0, 1e30]);
            assert!(out[6].is_nan());
            clamped_swiglu(isa, [&gate, &[1.0; 7]], 7.0, 1.702, &mut out);
            assert_eq!(out[..2], [0.0, 0.0]);
            assert_eq!(out[4], out[5], "a gate is clamped only from above");
            assert!(out[6].is_nan());
            clamped_swiglu(isa, [&[1.0; 3], &[-1e30, 1e30, f32::NAN]], 7.0, 1.702, &mut out[..3]);
            assert!(out[0] < -4.0 && out[1] > 6.0 && out[2].is_nan());
        }
    }
}
