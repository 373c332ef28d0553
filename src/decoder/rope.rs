//! Rotary position embedding: frequencies from the spec, angles in double precision.
//!
//! Formulas: transformers `modeling_rope_utils.py` (default, linear, llama3); GGUF divisors divide the frequency.

use crate::error::{Error, Result};
use crate::kernels::{Isa, rotate_half, rotate_pairs};
use crate::weights::Weights;
use model_diagnostics::error::FormatErrorKind;
use model_diagnostics::spec::{Rope, RopeLayout, RopeScaling};
use std::f64::consts::TAU;

/// The frequencies of one model.
#[derive(Clone, Debug)]
pub(super) struct RopeFrequencies {
    layout: RopeLayout,
    /// Radians a position, one for each pair of elements.
    frequencies: Vec<f64>,
}

/// Cosines and sines of some positions, `[positions, pairs]` each.
#[derive(Debug)]
pub(super) struct Angles {
    cos: Vec<f32>,
    sin: Vec<f32>,
    pairs: usize,
    layout: RopeLayout,
}

impl RopeFrequencies {
    /// The frequencies of `rope`; divisors are read from the file where it stores them.
    ///
    /// # Errors
    /// `Files` when a frequency that follows from the model is no positive number.
    pub(super) fn new(rope: &Rope, weights: &Weights) -> Result<RopeFrequencies> {
        let pairs = rope.dimensions / 2;
        let plain = |i: usize| rope.theta.powf(-2.0 * i as f64 / rope.dimensions as f64);
        let frequencies: Vec<f64> = match &rope.scaling {
            RopeScaling::Linear { factor } => (0..pairs).map(|i| plain(i) / factor).collect(),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => (0..pairs)
                .map(|i| {
                    let context = *original_context as f64;
                    llama3(plain(i), *factor, context / low_freq_factor, context / high_freq_factor, context)
                })
                .collect(),
            RopeScaling::Divisors { tensor } => {
                let view = weights.view(tensor);
                let divisors = view.bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                divisors.enumerate().map(|(i, divisor)| plain(i) / f64::from(divisor)).collect()
            }
            _ => (0..pairs).map(plain).collect(),
        };
        match frequencies.iter().position(|frequency| !frequency.is_normal() || *frequency < 0.0) {
            None => Ok(RopeFrequencies { layout: rope.layout, frequencies }),
            Some(pair) => Err(unusable(rope, weights, pair, frequencies[pair])),
        }
    }

    /// The angles of `positions`.
    pub(super) fn angles(&self, positions: impl Iterator<Item = usize>) -> Angles {
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in positions {
            for frequency in &self.frequencies {
                let (s, c) = (position as f64 * frequency).sin_cos();
                cos.push(c as f32);
                sin.push(s as f32);
            }
        }
        Angles { cos, sin, pairs: self.frequencies.len(), layout: self.layout }
    }
}

fn unusable(rope: &Rope, weights: &Weights, pair: usize, frequency: f64) -> Error {
    let (file, key) = match &rope.scaling {
        RopeScaling::Divisors { tensor } => (weights.path(tensor.file), tensor.name.clone()),
        _ => (weights.path(0), rope.source.clone()),
    };
    let found = format!("such that pair {pair} turns by {frequency} radians a position");
    let expected = "values that make every frequency a positive number".into();
    let kind = FormatErrorKind::KeyValue { key, found, expected };
    Error::from(model_diagnostics::Error::format(file, kind))
}

/// Frequencies with a wavelength up to `short` tokens stay, those above `long` are divided by `factor`, and between
/// the two a ramp in `context / wavelength` blends them.
fn llama3(frequency: f64, factor: f64, long: f64, short: f64, context: f64) -> f64 {
    let wavelength = TAU / frequency;
    if wavelength < short {
        frequency
    } else if wavelength > long {
        frequency / factor
    } else {
        let smooth = (context / wavelength - context / long) / (context / short - context / long);
        (1.0 - smooth) * frequency / factor + smooth * frequency
    }
}

impl Angles {
    /// Turns the leading elements of `head` by the angles of row `row`.
    pub(super) fn rotate(&self, isa: Isa, row: usize, head: &mut [f32]) {
        let range = row * self.pairs..(row + 1) * self.pairs;
        let (cos, sin) = (&self.cos[range.clone()], &self.sin[range]);
        match self.layout {
            RopeLayout::HalfSplit => rotate_half(isa, head, cos, sin),
            RopeLayout::Interleaved => rotate_pairs(isa, head, cos, sin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_keeps_short_waves_and_stretches_long_ones() {
        // Wavelengths of 6.28, 62.8 (between 16 and 64 it ramps) and 628 tokens, original context 64.
        let scaled = |frequency: f64| llama3(frequency, 8.0, 64.0, 16.0, 64.0);
        assert_eq!(scaled(1.0), 1.0);
        assert_eq!(scaled(0.01), 0.01 / 8.0);
        let ramp = scaled(0.1);
        let smooth = (64.0 / (TAU / 0.1) - 1.0) / 3.0;
        assert!((ramp - ((1.0 - smooth) * 0.1 / 8.0 + smooth * 0.1)).abs() < 1e-15);
    }

    #[test]
    fn both_layouts_turn_the_same_pairs() {
        let angles = |layout| Angles { cos: vec![0.6, 0.0], sin: vec![0.8, 1.0], pairs: 2, layout };
        let mut half = [1.0, 2.0, 3.0, 4.0, 9.0];
        angles(RopeLayout::HalfSplit).rotate(Isa::detect(), 0, &mut half);
        let mut pairs = [1.0, 3.0, 2.0, 4.0, 9.0];
        angles(RopeLayout::Interleaved).rotate(Isa::detect(), 0, &mut pairs);
        assert_eq!([half[0], half[2], half[1], half[3], half[4]], pairs);
        assert_eq!(half[1], -4.0);
    }
}
