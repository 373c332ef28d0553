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
mod shapes;

#[cfg(test)]
mod tests {
    use super::shapes::{SEEDS, TEMPERATURES, scaled, shapes};
    use super::*;

    /// The draws of candle's `LogitsProcessor`, which `benches/candle` recorded: a line for each seed.
    const CANDLE: &str = include_str!("draw/candle.txt");

    #[test]
    fn draws_are_those_of_candle_to_the_bit() {
        let (mut draws, mut differ) = (0, Vec::new());
        let recorded = CANDLE.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once(':').unwrap());
        for (seed, (recorded_seed, expected)) in SEEDS.into_iter().zip(recorded) {
            assert_eq!(recorded_seed.parse(), Ok(seed));
            let mut expected = expected.split_whitespace().map(|id| id.parse::<usize>().unwrap());
            let mut ours = Draw::new(seed);
            for (index, shape) in shapes().iter().enumerate() {
                for (round, temperature) in TEMPERATURES.into_iter().enumerate() {
                    let candidates: Vec<Candidate> =
                        (0..).zip(scaled(shape, temperature)).map(|(id, logit)| Candidate { id, logit }).collect();
                    let (found, expected) = (ours.place(&candidates).unwrap(), expected.next());
                    draws += 1;
                    if found != expected {
                        differ.push((seed, index, round, found, expected));
                    }
                }
            }
            assert_eq!(expected.next(), None);
        }
        assert_eq!((draws, differ), (6 * 64 * 5, Vec::new()));
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(Draw::new(1).place(&[]).unwrap(), None);
    }
}
