//! Rows of activations -> int8, by the rules of int8 layers.
//!
//! All of it is f32 arithmetic in a fixed order: the same bits on every instruction set.

use crate::isa::{Isa, compiled_for};
use crate::ops::exp::ROUND;

/// How a row of activations becomes integers from -128 to 127: `q = round(x / scale) + zero`, ties to even, saturated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Int8Rule {
    /// Scale and zero point from the row itself.
    Token {
        /// `scale = absmax / 127` and no zero point; otherwise `scale = (max - min) / 255` over the row and 0, and
        /// `zero = round(-128 - min / scale)`.
        symmetric: bool,
    },
    /// As for a token, from all rows together.
    Tensor {
        /// As for a token.
        symmetric: bool,
    },
    /// Given.
    Static {
        /// The bits of the F32 scale.
        scale_bits: u32,
        /// The zero point.
        zero: i8,
    },
}

/// The scale and the zero point of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct QuantParams {
    pub(super) scale: f32,
    pub(super) zero: i32,
}

/// The smallest and the largest of some numbers and 0, and whether one of them is not finite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    min: f32,
    max: f32,
    /// 0, or NaN when a number is not finite.
    poison: f32,
}

/// Numbers that are compared side by side.
const LANES: usize = 32;

impl Extent {
    pub(super) const EMPTY: Extent = Extent { min: 0.0, max: 0.0, poison: 0.0 };

    compiled_for! {
        /// The extent of a row.
        pub(super) fn new(isa: Isa, x: &[f32]) -> Extent {
            let [mut min, mut max, mut poison] = [[0.0f32; LANES]; 3];
            let mut add = |lane: usize, x: f32| {
                min[lane] = if x < min[lane] { x } else { min[lane] };
                max[lane] = if x > max[lane] { x } else { max[lane] };
                poison[lane] += x * 0.0;
            };
            let (chunks, rest) = x.as_chunks::<LANES>();
            for chunk in chunks {
                (0..LANES).for_each(|lane| add(lane, chunk[lane]));
            }
            rest.iter().enumerate().for_each(|(lane, &x)| add(lane, x));
            let lanes = (0..LANES).map(|lane| Extent { min: min[lane], max: max[lane], poison: poison[lane] });
            lanes.fold(Extent::EMPTY, Extent::and)
        }
    }

    /// The extent of both.
    pub(super) fn and(self, other: Extent) -> Extent {
        Extent { min: self.min.min(other.min), max: self.max.max(other.max), poison: self.poison + other.poison }
    }
}

impl Int8Rule {
    /// The scale and zero point of numbers of this extent. One that is not finite makes the scale NaN, and so whatever is
    /// computed with it.
    pub(super) fn params(self, extent: Extent) -> QuantParams {
        let Extent { min, max, poison } = extent;
        match self {
            Int8Rule::Static { scale_bits, zero } => {
                QuantParams { scale: f32::from_bits(scale_bits) + poison, zero: i32::from(zero) }
            }
            Int8Rule::Token { symmetric: true } | Int8Rule::Tensor { symmetric: true } => {
                QuantParams { scale: max.max(-min) / 127.0 + poison, zero: 0 }
            }
            Int8Rule::Token { symmetric: false } | Int8Rule::Tensor { symmetric: false } => {
                let scale = (max - min) / 255.0 + poison;
                let zero = if scale > 0.0 { (-128.0 - min / scale).round_ties_even() as i32 } else { 0 };
                QuantParams { scale, zero: zero.clamp(-128, 127) }
            }
        }
    }
}

compiled_for! {
    /// Writes the integers of `x` and returns their sum. Panics unless both have one length.
    pub(super) fn quantize(isa: Isa, x: &[f32], params: QuantParams, bytes: &mut [i8]) -> i32 {
        assert_eq!(x.len(), bytes.len(), "lengths of a row");
        // A scale of 0 is that of zeros, which any divisor leaves as they are.
        let divisor = if params.scale > 0.0 { params.scale } else { 1.0 };
        let mut sum = 0;
        for (byte, &x) in bytes.iter_mut().zip(x) {
            // The bounds are far outside of what is kept, and integers: they change no rounding.
            let quotient = (x / divisor).clamp(-1024.0, 1024.0);
            let rounded = (quotient + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
            let q = rounded.wrapping_add(params.zero).clamp(-128, 127);
            *byte = q as i8;
            sum += q;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, each_isa};

    /// The rule as its documentation says it, by the standard library's rounding.
    fn oracle(rule: Int8Rule, x: &[f32]) -> (f32, i32, Vec<i8>) {
        let min = x.iter().fold(0.0f32, |a, &b| a.min(b));
        let max = x.iter().fold(0.0f32, |a, &b| a.max(b));
        let (scale, zero) = match rule {
            Int8Rule::Static { scale_bits, zero } => (f32::from_bits(scale_bits), f32::from(zero)),
            Int8Rule::Token { symmetric: true } | Int8Rule::Tensor { symmetric: true } => {
                (x.iter().fold(0.0f32, |a, b| a.max(b.abs())) / 127.0, 0.0)
            }
            _ if max == min => (0.0, 0.0),
            _ => {
                let scale = (max - min) / 255.0;
                (scale, (-128.0 - min / scale).round_ties_even().clamp(-128.0, 127.0))
            }
        };
        let q =
            |x: f32| if scale == 0.0 { 0 } else { ((x / scale).round_ties_even() + zero).clamp(-128.0, 127.0) as i8 };
        (scale, zero as i32, x.iter().map(|&x| q(x)).collect())
    }

    #[test]
    fn follows_the_rule_to_the_bit_on_every_instruction_set() {
        let mut random = Random::new(31);
        let half = Int8Rule::Static { scale_bits: 0.5f32.to_bits(), zero: 0 };
        let tiny = Int8Rule::Static { scale_bits: 1e-12f32.to_bits(), zero: -37 };
        let rules = [Int8Rule::Token { symmetric: true }, Int8Rule::Token { symmetric: false }, half, tiny];
        let mut extremes = 0;
        for len in [1, 15, 16, 17, 64, 100, 1000] {
            let noise = random.floats(len);
            let ties: Vec<f32> = (0..len).map(|i| (i as f32 - len as f32 / 2.0) * 0.25).collect();
            let positive: Vec<f32> = noise.iter().map(|x| x.abs() + 1.0).collect();
            for x in [noise, ties, positive, vec![0.0; len], vec![-3.0; len], vec![1e-42; len]] {
                for rule in rules {
                    let (scale, zero, expected) = oracle(rule, &x);
                    for isa in each_isa() {
                        let params = rule.params(Extent::new(isa, &x));
                        assert_eq!(
                            (params.scale.to_bits(), params.zero),
                            (scale.to_bits(), zero),
                            "{isa} {rule:?} {len}"
                        );
                        let mut bytes = vec![0; len];
                        let sum = quantize(isa, &x, params, &mut bytes);
                        assert_eq!(bytes, expected, "{isa} {rule:?} {len}");
                        assert_eq!(sum, bytes.iter().map(|&q| i32::from(q)).sum::<i32>());
                    }
                    extremes += expected.iter().filter(|q| **q == -128 || **q == 127).count();
                }
            }
        }
        assert!(extremes > 100, "only {extremes} integers at the ends of the range");
    }

    #[test]
    fn a_number_that_is_not_finite_makes_the_scale_so() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![0.5; 33];
            x[20] = bad;
            for rule in [
                Int8Rule::Token { symmetric: true },
                Int8Rule::Token { symmetric: false },
                Int8Rule::Static { scale_bits: 1.0f32.to_bits(), zero: 3 },
            ] {
                assert!(!rule.params(Extent::new(Isa::detect(), &x)).scale.is_finite(), "{rule:?}");
            }
        }
    }
}
