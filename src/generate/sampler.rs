//! Logits -> token.

use crate::error::{Error, Result};
use candle_core::{Device, Tensor};
use candle_transformers::generation::{LogitsProcessor, Sampling};
use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

/// How the next token is chosen. The default is greedy.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SamplingOptions {
    /// 0 takes the most likely token; above, logits are divided by it before one is drawn.
    pub temperature: f64,
    /// The seed of the draws; without one it is drawn, and reported in the timings.
    pub seed: Option<u64>,
}

/// Below this a division only makes numbers that F32 cannot hold; the most likely token is taken.
const GREEDY_BELOW: f64 = 1e-7;

/// Chooses tokens, one generation long.
pub struct Sampler {
    vocab: usize,
    seed: u64,
    /// `None` is greedy.
    processor: Option<LogitsProcessor>,
}

impl Sampler {
    /// A sampler that only ever chooses ids below `vocab`: rows that pad an embedding are no tokens.
    ///
    /// # Errors
    /// `Option` for a temperature that is negative or no finite number.
    pub fn new(options: &SamplingOptions, vocab: usize) -> Result<Sampler> {
        let SamplingOptions { temperature, seed } = *options;
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(Error::Option { option: "temperature", value: temperature, expected: "a number from 0 up" });
        }
        let seed = seed.unwrap_or_else(random_seed);
        let sampling = (temperature >= GREEDY_BELOW).then_some(Sampling::All { temperature });
        let processor = sampling.map(|sampling| LogitsProcessor::from_sampling(seed, sampling));
        Ok(Sampler { vocab, seed, processor })
    }

    /// The seed in use.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Chooses a token by its logits `[vocab]`, F32. Greedily the lowest id wins among equals.
    ///
    /// # Errors
    /// `NonFiniteLogits` when any logit, padding included, is NaN or infinite.
    pub fn sample(&mut self, logits: &Tensor) -> Result<u32> {
        let mut logits: Vec<f32> = logits.to_vec1()?;
        if let Some((id, value)) = logits.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            return Err(Error::NonFiniteLogits { id, value: *value });
        }
        logits.truncate(self.vocab);
        let token = match &mut self.processor {
            None => largest(&logits),
            Some(processor) => Some(processor.sample(&Tensor::new(logits, &Device::Cpu)?)?),
        };
        token.ok_or(Error::TokenOutOfVocabulary { id: 0, vocab: 0 })
    }
}

/// The index of the largest value, the first among equals; `None` of none.
fn largest(values: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (id, value) in (0..).zip(values) {
        if best.is_none_or(|(_, most)| *value > most) {
            best = Some((id, *value));
        }
    }
    best.map(|(id, _)| id)
}

/// 53 bits, so that a tool that reads JSON numbers as doubles repeats it exactly.
fn random_seed() -> u64 {
    RandomState::new().hash_one(SystemTime::now()) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits(values: &[f32]) -> Tensor {
        Tensor::new(values, &Device::Cpu).unwrap()
    }

    fn sampler(temperature: f64, seed: Option<u64>, vocab: usize) -> Sampler {
        Sampler::new(&SamplingOptions { temperature, seed }, vocab).unwrap()
    }

    #[test]
    fn greedy_takes_the_largest_and_the_lowest_id_among_equals() {
        assert_eq!(sampler(0.0, None, 4).sample(&logits(&[-1.0, 3.0, 2.0, 3.0])).unwrap(), 1);
        assert_eq!(sampler(0.0, None, 2).sample(&logits(&[-0.0, 0.0])).unwrap(), 0);
    }

    #[test]
    fn rows_beyond_the_vocabulary_are_never_chosen() {
        assert_eq!(sampler(0.0, None, 2).sample(&logits(&[1.0, 2.0, 9.0])).unwrap(), 1);
        let mut hot = sampler(100.0, Some(1), 2);
        assert!((0..200).all(|_| hot.sample(&logits(&[1.0, 2.0, 900.0])).unwrap() < 2));
    }

    #[test]
    fn a_seed_repeats_its_draws_and_a_drawn_one_is_reported() {
        let even = logits(&[0.0; 64]);
        let draws = |seed| {
            let mut sampler = sampler(1.0, seed, 64);
            ((0..20).map(|_| sampler.sample(&even).unwrap()).collect::<Vec<u32>>(), sampler.seed())
        };
        let (first, seed) = draws(None);
        assert_eq!(draws(Some(seed)), (first.clone(), seed));
        assert_ne!(draws(None).0, first);
        assert!(seed < 1 << 53);
    }

    #[test]
    fn draws_follow_the_softmax_of_the_scaled_logits() {
        // softmax([2, 0] / 2) is [0.731, 0.269]; 4000 draws stray by at most 4 standard deviations, 0.028.
        let mut sampler = sampler(2.0, Some(7), 2);
        let values = logits(&[2.0, 0.0]);
        let first = (0..4000).filter(|_| sampler.sample(&values).unwrap() == 0).count() as f64 / 4000.0;
        assert!((first - 0.731).abs() < 0.028, "{first}");
    }

    #[test]
    fn refuses_logits_that_are_no_numbers() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for temperature in [0.0, 1.0] {
                let error = sampler(temperature, Some(0), 2).sample(&logits(&[0.0, 1.0, value])).unwrap_err();
                assert!(matches!(error, Error::NonFiniteLogits { id: 2, .. }), "{error}");
            }
        }
    }

    #[test]
    fn refuses_a_temperature_out_of_range() {
        for temperature in [-0.1, f64::NAN, f64::INFINITY] {
            let options = SamplingOptions { temperature, seed: None };
            assert!(matches!(Sampler::new(&options, 2), Err(Error::Option { option: "temperature", .. })));
        }
    }
}
