//! How probable the model found a token.

use super::LogProbs;
use super::steps::{Candidate, Candidates};
use crate::error::{Error, Result};

/// The log-probability of `id` by these logits, and whether no token is more likely.
///
/// # Errors
/// `NonFiniteLogits`, `TokenOutOfVocabulary`.
pub(crate) fn of_token(logits: &[f32], id: u32) -> Result<(f64, bool)> {
    finite(logits)?;
    let vocab = logits.len();
    let logit = logits.get(id as usize).ok_or(Error::TokenOutOfVocabulary { id, vocab })?;
    Ok((f64::from(*logit) - log_sum(logits), logits.iter().all(|other| other <= logit)))
}

/// Checks that all are numbers.
///
/// # Errors
/// `NonFiniteLogits`.
pub(super) fn finite(logits: &[f32]) -> Result<()> {
    match logits.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        Some((id, value)) => Err(Error::NonFiniteLogits { id, value: *value }),
        None => Ok(()),
    }
}

/// The log-probabilities of `chosen` and of the `top` most likely `tokens`. The ids ascend, and `logits` are finite.
pub(super) fn new(logits: &[f32], tokens: impl Iterator<Item = Candidate>, top: usize, chosen: u32) -> LogProbs {
    let log_sum = log_sum(logits);
    let mut likely = Candidates::default();
    if top > 0 {
        likely.fill(tokens, top);
    }
    let mut likely = likely.entries().to_vec();
    likely.sort_unstable_by(Candidate::rank);
    let log = |logit: f32| f64::from(logit) - log_sum;
    let top = likely.iter().map(|candidate| (candidate.id, log(candidate.logit))).collect();
    LogProbs::new(logits.get(chosen as usize).map_or(f64::NEG_INFINITY, |logit| log(*logit)), top)
}

/// The logarithm of the sum of the exponentials of `logits`.
fn log_sum(logits: &[f32]) -> f64 {
    let best = f64::from(logits.iter().copied().fold(f32::MIN, f32::max));
    best + logits.iter().map(|logit| (f64::from(*logit) - best).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(logits: &[f32], candidates: &[Candidate], top: usize, chosen: u32) -> LogProbs {
        new(logits, candidates.iter().copied(), top, chosen)
    }

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        // 0.1, 0.4, 0.2, 0.3, up to a constant that the softmax cancels; the last id has no row.
        let logits = [0.1_f32, 0.4, 0.2, 0.3].map(|p| p.ln() + 7.0);
        let candidates: Vec<Candidate> = (0..).zip(logits).take(3).map(|(id, logit)| Candidate { id, logit }).collect();
        let found = of(&logits, &candidates, 2, 0);
        assert!((found.chosen.exp() - 0.1).abs() < 1e-6);
        let top: Vec<(u32, f64)> = found.top.iter().map(|(id, log)| (*id, (log.exp() * 1e6).round() / 1e6)).collect();
        assert_eq!(top, [(1, 0.4), (2, 0.2)]);
        assert!(of(&logits, &candidates, 0, 0).top.is_empty());
        assert_eq!(of(&logits, &candidates, 9, 0).top.len(), 3);
    }

    #[test]
    fn equals_come_in_order_and_large_logits_stay_finite() {
        let candidates: Vec<Candidate> = (0..6).map(|id| Candidate { id, logit: 3e38 }).collect();
        let found = of(&[3e38; 6], &candidates, 2, 5);
        assert_eq!(found.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1]);
        // Compared with 3e38 the logarithm of six is nothing: F64 keeps 16 digits.
        assert_eq!(found.chosen, 0.0);
    }
}
