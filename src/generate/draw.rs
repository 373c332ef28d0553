//! Logits -> one of them, by its probability.

use crate::error::Result;
use candle_core::{Device, Tensor};
use rand::SeedableRng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::rngs::StdRng;

/// Draws by the softmax of what it is given, one after another from a seed.
///
/// The draws of a seed are those of candle's `LogitsProcessor` at temperature 1, to the bit. That one computes its softmax
/// on rayon's global pool: threads beside those of the model, and a panic where none can be started.
pub(super) struct Draw(StdRng);

impl Draw {
    pub(super) fn new(seed: u64) -> Draw {
        Draw(StdRng::seed_from_u64(seed))
    }

    /// The index of one of `logits`, all finite; `None` of none.
    pub(super) fn index(&mut self, logits: impl Iterator<Item = f32> + Clone) -> Result<Option<usize>> {
        let max = logits.clone().fold(f32::NEG_INFINITY, f32::max);
        let mut weights: Vec<f32> = logits.map(|logit| (logit - max).exp()).collect();
        // candle's sum of a row, on this thread: its order, which decides the last bit, is that of its softmax.
        let sum: f32 = Tensor::from_slice(&weights, weights.len(), &Device::Cpu)?.sum_all()?.to_scalar()?;
        weights.iter_mut().for_each(|weight| *weight /= sum);
        Ok(WeightedIndex::new(&weights).ok().map(|weights| weights.sample(&mut self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_transformers::generation::{LogitsProcessor, Sampling};

    /// Logits of many shapes: flat, peaked, rising, wide apart, at the edge of F32, and of a whole vocabulary.
    fn shapes() -> Vec<Vec<f32>> {
        let noise = |index: usize| ((index * 2_654_435_761) % 1_000_003) as f32 / 1_000_003.0;
        let mut shapes = vec![vec![0.0], vec![-3.5, 2.0], vec![f32::MAX, f32::MIN, 0.0, f32::MAX], vec![-0.0, 0.0]];
        for len in [3, 7, 8, 9, 31, 32, 33, 63, 64, 65, 1000, 32_003] {
            shapes.push(vec![1.25; len]);
            shapes.push((0..len).map(|index| 12.0 * noise(index)).collect());
            shapes.push((0..len).map(|index| 200.0 * noise(index) - 100.0).collect());
            shapes.push((0..len).map(|index| -(index as f32).ln_1p()).collect());
            shapes.push((0..len).map(|index| if index == len / 2 { 9.0 } else { 1e-3 * noise(index) }).collect());
        }
        shapes
    }

    #[test]
    fn draws_are_those_of_candle_to_the_bit() {
        let (mut draws, mut differ) = (0, Vec::new());
        for seed in [0, 1, 7, 42, 1 << 40, u64::MAX] {
            let mut candle = LogitsProcessor::from_sampling(seed, Sampling::All { temperature: 1.0 });
            let mut ours = Draw::new(seed);
            for (index, shape) in shapes().iter().enumerate() {
                for (temperature, round) in [(1.0, 0), (0.7, 1), (0.1, 2), (2.5, 3), (50.0, 4)] {
                    let logits: Vec<f32> = shape
                        .iter()
                        .map(|logit| logit / temperature)
                        .map(|logit| logit.clamp(f32::MIN, f32::MAX))
                        .collect();
                    let tensor = Tensor::new(logits.as_slice(), &Device::Cpu).unwrap();
                    let expected = candle.sample(&tensor).unwrap();
                    let found = ours.index(logits.iter().copied()).unwrap();
                    draws += 1;
                    if found != Some(expected as usize) {
                        differ.push((seed, index, round, found, expected));
                    }
                }
            }
        }
        assert_eq!((draws, differ), (6 * 64 * 5, Vec::new()));
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(Draw::new(1).index([].into_iter()).unwrap(), None);
    }
}
