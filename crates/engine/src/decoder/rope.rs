//! Rotary position embedding: frequencies from the spec, angles in double precision.
//!
//! Formulas: transformers `modeling_rope_utils.py` (default, linear, llama3, yarn, longrope); GGUF factors divide the
//! frequency.

use crate::error::{Error, Result};
use crate::input::Rows;
use crate::kernels::{Isa, rotate_half, rotate_pairs};
use crate::memory;
use crate::weights::Weights;
use model_factory_format::header::TensorInfo;
use model_factory_spec::spec::{
    AxialRope, FrequencyFactors, Grid, PatchOrder, Rope, RopeLayout, RopeScaling, RopeSections,
};
use std::f64::consts::TAU;
use std::ops::Range;

#[derive(Clone, Debug)]
pub(crate) struct RopeFrequencies {
    layout: RopeLayout,
    sections: Option<RopeSections>,
    short: Frequencies,
    /// Frequencies of sequences longer than a limit, in models that have them.
    long: Option<(usize, Frequencies)>,
}

#[derive(Clone, Debug)]
struct Frequencies {
    /// Radians per position, one for each pair of elements.
    radians: Vec<f64>,
    /// The factor of cosines and sines.
    magnitude: f64,
}

/// One of the ways in which a model rotates, chosen by the length of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rotation {
    /// The only rotation, or the rotation of sequences up to the original context.
    Short,
    /// The rotation of longer sequences, in models with longrope scaling.
    Long,
}

/// Cosines and sines of some positions, `[positions, pairs]` each.
#[derive(Debug)]
#[non_exhaustive]
pub struct Angles {
    /// All cosines.
    pub cos: Vec<f32>,
    /// All sines.
    pub sin: Vec<f32>,
    pairs: usize,
    layout: RopeLayout,
}

impl RopeFrequencies {
    /// The frequencies of `rope`; `Files` when one that follows from the model is not a positive number.
    pub(crate) fn new(rope: &Rope, weights: &Weights) -> Result<RopeFrequencies> {
        let pairs = rope.dimensions / 2;
        let plain = |i: usize| rope.theta.powf(-2.0 * i as f64 / rope.dimensions as f64);
        let each = |frequency: &dyn Fn(usize) -> f64| (0..pairs).map(frequency).collect::<Vec<f64>>();
        let (radians, long) = match &rope.scaling {
            RopeScaling::Default => (each(&plain), None),
            RopeScaling::Linear { factor } => (each(&|i| plain(i) / factor), None),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let context = *original_context as f64;
                let (long, short) = (context / low_freq_factor, context / high_freq_factor);
                (each(&|i| llama3(plain(i), *factor, long, short, context)), None)
            }
            RopeScaling::Factors { tensor } => (divided(plain, &stored(weights, tensor)), None),
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate } => {
                let pair = |turns| yarn_pair(turns, *original_context as f64, rope.theta, rope.dimensions as f64);
                let ramp = yarn_ramp(pair(*beta_fast), pair(*beta_slow), *truncate, rope.dimensions);
                (each(&|i| plain(i) * (1.0 - ramp(i)) + plain(i) / factor * ramp(i)), None)
            }
            RopeScaling::Proportional { factor, pairs } => {
                (each(&|i| if i < *pairs { plain(i) / factor } else { 0.0 }), None)
            }
            RopeScaling::LongRope { short, long, long_magnitude, original_context } => {
                let radians = divided(plain, &values(weights, long));
                let long = Frequencies { radians, magnitude: *long_magnitude };
                (divided(plain, &values(weights, short)), Some((*original_context, long)))
            }
        };
        let all = radians.iter().chain(long.iter().flat_map(|(_, long)| &long.radians));
        let turning = if let RopeScaling::Proportional { pairs, .. } = rope.scaling { pairs } else { pairs };
        let unsound =
            |&(pair, frequency): &(usize, &f64)| (!frequency.is_normal() || *frequency < 0.0) && pair % pairs < turning;
        match all.enumerate().find(unsound) {
            None => {
                let Rope { layout, magnitude, sections, .. } = *rope;
                Ok(RopeFrequencies { layout, sections, short: Frequencies { radians, magnitude }, long })
            }
            Some((pair, frequency)) => Err(unusable(rope, weights, pair % pairs, *frequency)),
        }
    }

    pub(crate) fn rotation(&self, length: usize) -> Rotation {
        match &self.long {
            Some((limit, _)) if length > *limit => Rotation::Long,
            _ => Rotation::Short,
        }
    }

    pub(crate) fn no_angles(&self) -> Angles {
        let pairs = self.short.radians.len();
        Angles { cos: Vec::new(), sin: Vec::new(), pairs, layout: self.layout }
    }

    /// Whether rows of images have three positions.
    pub(crate) fn has_sections(&self) -> bool {
        self.sections.is_some()
    }

    /// Appends the angles of rows at `positions`; where `images` are among the rows, of those at the places that it gives, in
    /// families that tell three positions apart.
    pub(crate) fn extend(
        &self,
        angles: &mut Angles,
        rotation: Rotation,
        positions: Range<usize>,
        images: Option<Rows<'_>>,
    ) -> Result<()> {
        let Frequencies { radians, magnitude } = match (&self.long, rotation) {
            (Some((_, long)), Rotation::Long) => long,
            _ => &self.short,
        };
        for list in [&mut angles.cos, &mut angles.sin] {
            memory::grow(list, positions.len() * radians.len(), "angles of rotary positions")?;
        }
        let mut push = |position: usize, frequency: f64| {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            angles.cos.push((cos * magnitude) as f32);
            angles.sin.push((sin * magnitude) as f32);
        };
        match self.sections.zip(images) {
            None => positions.for_each(|position| radians.iter().for_each(|frequency| push(position, *frequency))),
            Some((sections, rows)) => rows.places().for_each(|place| {
                let pairs = radians.iter().enumerate();
                pairs.for_each(|(pair, frequency)| push(place[sections.axis(pair)], *frequency));
            }),
        }
        Ok(())
    }
}

fn stored(weights: &Weights, tensor: &TensorInfo) -> Vec<f64> {
    let view = weights.view(tensor);
    let values = view.bytes().as_chunks::<4>().0.iter();
    values.map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
}

fn values(weights: &Weights, factors: &FrequencyFactors) -> Vec<f64> {
    match factors {
        FrequencyFactors::Values(values) => values.clone(),
        FrequencyFactors::Stored(tensor) => stored(weights, tensor),
    }
}

fn divided(plain: impl Fn(usize) -> f64, factors: &[f64]) -> Vec<f64> {
    factors.iter().enumerate().map(|(i, factor)| plain(i) / factor).collect()
}

/// The index, as a fraction, of the pair that turns `turns` times in the original context.
fn yarn_pair(turns: f64, original_context: f64, theta: f64, dimensions: f64) -> f64 {
    dimensions * (original_context / (turns * TAU)).ln() / (2.0 * theta.ln())
}

/// How far a pair's frequency is divided: 0 up to the pair `low`, 1 from the pair `high` on.
fn yarn_ramp(low: f64, high: f64, truncate: bool, dimensions: usize) -> impl Fn(usize) -> f64 {
    let (low, high) = if truncate { (low.floor(), high.ceil()) } else { (low, high) };
    let (low, high) = (low.max(0.0), high.min(dimensions as f64 - 1.0));
    let high = if low == high { high + 0.001 } else { high };
    move |pair| ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0)
}

fn unusable(rope: &Rope, weights: &Weights, pair: usize, frequency: f64) -> Error {
    let (file, key) = match rope.tensors().next() {
        Some(tensor) => (weights.path(tensor.file), &tensor.name),
        None => (weights.path(0), &rope.source),
    };
    let found = format!("such that pair {pair} turns by {frequency} radians a position");
    let expected = "values that make every frequency a positive number";
    Error::from(model_factory_format::Error::key_value(file, key, found, expected))
}

/// Frequencies with a wavelength up to `short` tokens stay, those above `long` are divided by `factor`, and between
/// the two a ramp in `context / wavelength` blends them.
fn llama3(frequency: f64, factor: f64, long: f64, short: f64, context: f64) -> f64 {
    let wavelength = TAU / frequency;
    if wavelength < short {
        frequency
    } else if wavelength > long || long == short {
        frequency / factor
    } else {
        let smooth = (context / wavelength - context / long) / (context / short - context / long);
        (1.0 - smooth) * frequency / factor + smooth * frequency
    }
}

impl Angles {
    /// Those of the patches of `grid` in this order, for heads of `head_dim` elements.
    pub(crate) fn of_patches(rope: AxialRope, head_dim: usize, grid: Grid, order: PatchOrder) -> Result<Angles> {
        let (pairs, half) = (head_dim / 2, head_dim / 4);
        let radians = |pair: usize| rope.theta.powf(-2.0 * pair as f64 / head_dim as f64);
        let of_rows: Vec<f64> = (0..half).map(|i| radians(2 * i)).collect();
        let of_columns: Vec<f64> = (0..half).map(|i| radians(2 * i + usize::from(rope.alternating))).collect();
        let mut angles = Angles { cos: Vec::new(), sin: Vec::new(), pairs, layout: rope.layout };
        for list in [&mut angles.cos, &mut angles.sin] {
            memory::grow(list, grid.patches() * pairs, "angles of patches")?;
        }
        for (row, column) in (0..grid.patches()).map(|index| order.place(index, grid)) {
            let of_row = of_rows.iter().map(|frequency| row as f64 * frequency);
            for angle in of_row.chain(of_columns.iter().map(|frequency| column as f64 * frequency)) {
                angles.cos.push(angle.cos() as f32);
                angles.sin.push(angle.sin() as f32);
            }
        }
        Ok(angles)
    }

    /// Drops all rows but `kept`, which ascend.
    pub(crate) fn keep(&mut self, kept: &[Range<usize>]) {
        for (list, width) in [(&mut self.cos, self.pairs), (&mut self.sin, self.pairs)] {
            if list.is_empty() {
                continue;
            }
            let mut end = 0;
            for rows in kept {
                list.copy_within(rows.start * width..rows.end * width, end * width);
                end += rows.len();
            }
            list.truncate(end * width);
        }
    }

    /// Turns the leading elements of `head` by the angles of row `row`.
    pub(crate) fn rotate(&self, isa: Isa, row: usize, head: &mut [f32]) {
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
    fn yarn_keeps_fast_pairs_and_divides_slow_ones() {
        // theta 10000, 64 elements, 2048 tokens: pair 8.09 turns 32 times, pair 20.1 once.
        let pair = |turns| yarn_pair(turns, 2048.0, 10_000.0, 64.0);
        for turns in [32.0, 1.0] {
            let frequency = 10_000f64.powf(-2.0 * pair(turns) / 64.0);
            assert!((frequency * 2048.0 / TAU - turns).abs() < 1e-9);
        }
        let ramp = yarn_ramp(pair(32.0), pair(1.0), true, 64);
        assert_eq!((ramp(0), ramp(8), ramp(21), ramp(31)), (0.0, 0.0, 1.0, 1.0));
        assert!((ramp(9) - 1.0 / 13.0).abs() < 1e-12);
        let whole = yarn_ramp(pair(32.0), pair(1.0), false, 64);
        assert!((whole(9) - (9.0 - pair(32.0)) / (pair(1.0) - pair(32.0))).abs() < 1e-12);
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
