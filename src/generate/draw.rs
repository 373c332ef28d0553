//! Logits -> one of them, by its probability.

use super::steps::Candidate;
use crate::error::Result;
use crate::memory;
use crate::tensor::with_floats;
use candle_core::{Device, Tensor};
use rand::SeedableRng;
use rand::distr::{Distribution, Uniform};
use rand::rngs::StdRng;

const WHAT: &str = "the probabilities of a draw";

/// Draws by the softmax of what it is given, one after another from a seed.
///
/// The draws of a seed are those of candle's `LogitsProcessor` at temperature 1, to the bit. That one computes its softmax
/// on rayon's global pool: threads beside those of the model, and a panic where none can be started.
#[derive(Clone, Debug)]
pub(super) struct Draw(StdRng);

impl Draw {
    pub(super) fn new(seed: u64) -> Draw {
        Draw(StdRng::seed_from_u64(seed))
    }

    /// Whether something happens that does so with `probability`.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        Uniform::new(0.0, 1.0).is_ok_and(|range| range.sample(&mut self.0) < probability)
    }

    /// The place of one of `candidates`, whose logits are finite; `None` of none.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn place(&mut self, candidates: &[Candidate]) -> Result<Option<usize>> {
        let max = candidates.iter().map(|candidate| candidate.logit).fold(f32::NEG_INFINITY, f32::max);
        let weights = candidates.iter().map(|candidate| (candidate.logit - max).exp());
        let weights = Tensor::from_vec(memory::collected(weights, WHAT)?, candidates.len(), &Device::Cpu)?;
        // candle's sum of a row, on this thread: its order, which decides the last bit, is that of its softmax.
        let sum: f32 = weights.sum_all()?.to_scalar()?;
        // Where each but the last ends in the sum of all, as `rand::distr::weighted::WeightedIndex` has it.
        let (mut ends, mut total) = (memory::reserved(candidates.len(), WHAT)?, 0.0);
        with_floats(&weights, |weights| {
            for weight in weights {
                total += weight / sum;
                ends.push(total);
            }
        })?;
        ends.pop();
        let Ok(range) = Uniform::new(0.0, total) else { return Ok(None) };
        let drawn = range.sample(&mut self.0);
        Ok(Some(ends.partition_point(|end| *end <= drawn)))
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
                    let candidates: Vec<Candidate> =
                        (0..).zip(&logits).map(|(id, &logit)| Candidate { id, logit }).collect();
                    let found = ours.place(&candidates).unwrap();
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
        assert_eq!(Draw::new(1).place(&[]).unwrap(), None);
    }
}
