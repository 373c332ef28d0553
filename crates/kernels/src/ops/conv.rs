//! A causal convolution of every channel by itself, over the last few positions.

use super::exp::exp;
use crate::isa::{Isa, compiled_for};

compiled_for! {
    /// Convolves `row` in place. `weights` `[kernel, channels]` has the current position last; `window` `[kernel, channels]` holds
    /// the rows of the positions up to the last one, the latest last, and of `row` as it was afterwards. Then comes the SiLU
    /// `x / (1 + e^-x)` where `silu`. Panics unless the lengths fit.
    pub fn convolve(isa: Isa, weights: &[f32], bias: Option<&[f32]>, silu: bool, window: &mut [f32], row: &mut [f32]) {
        assert!(window.len() == weights.len() && weights.len() >= row.len(), "lengths of a convolution");
        assert!(!row.is_empty() && weights.len().is_multiple_of(row.len()), "whole rows of a convolution");
        assert!(bias.is_none_or(|bias| bias.len() == row.len()), "a bias of a convolution");
        let channels = row.len();
        window.copy_within(channels.., 0);
        let last = window.len() - channels;
        window[last..].copy_from_slice(row);
        match bias {
            Some(bias) => row.copy_from_slice(bias),
            None => row.fill(0.0),
        }
        for (weights, x) in weights.chunks_exact(channels).zip(window.chunks_exact(channels)) {
            row.iter_mut().zip(weights).zip(x).for_each(|((y, weight), x)| *y += weight * x);
        }
        if silu {
            row.iter_mut().for_each(|y| *y /= 1.0 + exp::<false>(-*y));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, each_isa};

    #[test]
    fn sums_the_last_positions_and_is_the_same_bits_everywhere() {
        let mut random = Random::new(3);
        for (channels, kernel, positions) in [(1, 2, 5), (70, 4, 9), (64, 3, 4)] {
            let (weights, bias) = (random.floats(kernel * channels), random.floats(channels));
            let x = random.floats(positions * channels);
            let mut first: Option<Vec<u32>> = None;
            for isa in each_isa() {
                for silu in [false, true] {
                    let (mut window, mut y) = (vec![0f32; kernel * channels], x.clone());
                    y.chunks_exact_mut(channels)
                        .for_each(|row| convolve(isa, &weights, Some(&bias), silu, &mut window, row));
                    for (at, y) in y.iter().enumerate() {
                        let (t, channel) = (at / channels, at % channels);
                        let term = |back: usize| {
                            let before = (t + 1).checked_sub(kernel - back)?;
                            let product = f64::from(x[before * channels + channel]);
                            Some(product * f64::from(weights[back * channels + channel]))
                        };
                        let sum = f64::from(bias[channel]) + (0..kernel).filter_map(term).sum::<f64>();
                        let truth = if silu { sum / (1.0 + (-sum).exp()) } else { sum };
                        // The bound is for a few sums of numbers below 1, rounded each.
                        assert!((f64::from(*y) - truth).abs() < 1e-6, "{isa}: {y} for {truth}");
                    }
                    if silu {
                        let bits: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
                        assert_eq!(*first.get_or_insert_with(|| bits.clone()), bits, "{isa}");
                    }
                }
            }
        }
    }
}
