//! Logits -> the place of one of them, drawn by its probability.

use super::steps::Candidate;
use crate::error::Result;
use crate::memory;
use rand::SeedableRng;
use rand::distr::{Distribution, Uniform};
use rand::rngs::StdRng;

const WHAT: &str = "the probabilities of a draw";

/// Draws by the softmax of what it is given, one after another from a seed.
///
/// The draws of a seed are those of candle's `LogitsProcessor` at temperature 1, to the bit. candle computes its softmax
/// on rayon's global pool, which would mean more threads, and a panic where none can be started.
#[derive(Clone, Debug)]
pub(super) struct Draw(StdRng);

impl Draw {
    pub(super) fn new(seed: u64) -> Draw {
        Draw(StdRng::seed_from_u64(seed))
    }

    /// Draws whether an event of this `probability` happens.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        Uniform::new(0.0, 1.0).is_ok_and(|range| range.sample(&mut self.0) < probability)
    }

    /// The place of one of `candidates`, whose logits are finite; `None` if there are none.
    pub(super) fn place(&mut self, candidates: &[Candidate]) -> Result<Option<usize>> {
        let max = candidates.iter().map(|candidate| candidate.logit).fold(f32::NEG_INFINITY, f32::max);
        let weights = candidates.iter().map(|candidate| (candidate.logit - max).exp());
        let mut ends = memory::collected(weights, WHAT)?;
        // The cumulative weights of all but the last, as in `rand::distr::weighted::WeightedIndex`.
        let (sum, mut total) = (sum(&ends), 0.0);
        for weight in &mut ends {
            total += *weight / sum;
            *weight = total;
        }
        ends.pop();
        let Ok(range) = Uniform::new(0.0, total) else { return Ok(None) };
        let drawn = range.sample(&mut self.0);
        Ok(Some(ends.partition_point(|end| *end <= drawn)))
    }
}

/// How many partial sums are added in parallel.
const LANES: usize = 32;

/// The sum of a row, in the order of candle's softmax with AVX2 (candle-core 0.11 `cpu/avx.rs`), which decides the last bit: 32
/// lanes, whose sums are added by halves, and the rest one after the other.
fn sum(row: &[f32]) -> f32 {
    let (whole, rest) = row.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in whole {
        lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane += x);
    }
    // Four registers of eight: neighbors are added, then registers two apart, then the halves of the last one and its neighbors.
    for distance in [8, 16, 4, 1, 2] {
        for lane in 0..LANES - distance {
            lanes[lane] += lanes[lane + distance];
        }
    }
    rest.iter().fold(lanes[0], |sum, x| sum + x)
}

#[cfg(test)]
mod tests {
    mod shapes;

    use super::*;
    use shapes::{SEEDS, TEMPERATURES, scaled, shapes};

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

    /// candle uses the order of AVX2 only where the processor has it.
    #[cfg(all(feature = "candle", target_arch = "x86_64"))]
    #[test]
    fn sums_are_those_of_candle_to_the_bit() {
        use candle_core::{Device, Tensor};
        if !std::arch::is_x86_feature_detected!("avx2") {
            return;
        }
        for shape in shapes() {
            let weights: Vec<f32> = shape.iter().map(|x| (x / 20.0).exp()).collect();
            let theirs: f32 = Tensor::new(&*weights, &Device::Cpu).unwrap().sum_all().unwrap().to_scalar().unwrap();
            assert_eq!(sum(&weights).to_bits(), theirs.to_bits(), "of {} numbers", weights.len());
        }
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(Draw::new(1).place(&[]).unwrap(), None);
    }
}
