//! How probable the model itself found a token.

use super::steps::Candidate;
use crate::error::{Error, Result};
use crate::memory;

/// Natural logarithms of the model's own probabilities at one step: the softmax of all its logits, rows that pad the
/// vocabulary included, as `log_softmax` in torch has it, before penalties, temperature and what else the options change.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LogProbs {
    /// Of the token that was chosen.
    pub chosen: f64,
    /// Of the most likely tokens, in order; among equals the lower id comes first.
    pub top: Vec<(u32, f64)>,
}

/// The most likely tokens that may be asked for: as many as the OpenAI API gives.
pub(super) const MOST: usize = 20;

/// The softmax's denominator and best tokens of one step, before a token is chosen.
pub(super) struct Distribution {
    /// `ln(sum(exp(logit)))`.
    log_sum: f64,
    /// Before anything changes them, in ascending order of ids.
    logits: Vec<Candidate>,
    top: Vec<(u32, f64)>,
}

impl Distribution {
    /// Of finite `logits`, with the `top` most likely of `candidates`, whose ids ascend.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn new(logits: &[f32], candidates: &[Candidate], top: usize) -> Result<Distribution> {
        let best = f64::from(logits.iter().copied().fold(f32::MIN, f32::max));
        let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - best).exp()).sum();
        let log_sum = best + sum.ln();
        let copy = || memory::copied(candidates, "the probabilities of a token");
        let mut ranked = copy()?;
        let top = top.min(ranked.len());
        if let Some(last) = top.checked_sub(1) {
            ranked.select_nth_unstable_by(last, Candidate::rank);
        }
        ranked.truncate(top);
        ranked.sort_unstable_by(Candidate::rank);
        let top = ranked.iter().map(|candidate| (candidate.id, f64::from(candidate.logit) - log_sum)).collect();
        Ok(Distribution { log_sum, logits: copy()?, top })
    }

    /// Once `token` is chosen.
    pub(super) fn chosen(self, token: u32) -> Option<LogProbs> {
        let index = self.logits.binary_search_by_key(&token, |candidate| candidate.id).ok()?;
        Some(LogProbs { chosen: f64::from(self.logits[index].logit) - self.log_sum, top: self.top })
    }
}

/// Whether so many can be asked for.
pub(super) fn check(top: Option<usize>) -> Result<()> {
    match top {
        Some(top) if top > MOST => {
            Err(Error::Option { option: "logprobs", value: top as f64, expected: "a whole number from 0 to 20" })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        // 0.1, 0.4, 0.2, 0.3, up to a constant that the softmax takes out; the last row is of no token.
        let logits = [0.1_f32, 0.4, 0.2, 0.3].map(|p| p.ln() + 7.0);
        let candidates: Vec<Candidate> = (0..).zip(logits).take(3).map(|(id, logit)| Candidate { id, logit }).collect();
        let found = Distribution::new(&logits, &candidates, 2).unwrap().chosen(0).unwrap();
        assert!((found.chosen.exp() - 0.1).abs() < 1e-6);
        let top: Vec<(u32, f64)> = found.top.iter().map(|(id, log)| (*id, (log.exp() * 1e6).round() / 1e6)).collect();
        assert_eq!(top, [(1, 0.4), (2, 0.2)]);
        assert!(Distribution::new(&logits, &candidates, 0).unwrap().chosen(0).unwrap().top.is_empty());
        assert_eq!(Distribution::new(&logits, &candidates, 9).unwrap().chosen(0).unwrap().top.len(), 3);
        assert!(Distribution::new(&logits, &candidates, 1).unwrap().chosen(3).is_none(), "3 is no candidate");
    }

    #[test]
    fn equals_come_in_order_and_large_logits_stay_finite() {
        let candidates: Vec<Candidate> = (0..6).map(|id| Candidate { id, logit: 3e38 }).collect();
        let found = Distribution::new(&[3e38; 6], &candidates, 2).unwrap().chosen(5).unwrap();
        assert_eq!(found.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1]);
        // Beside 3e38 the logarithm of six is nothing: F64 keeps 16 digits.
        assert_eq!(found.chosen, 0.0);
    }
}
