//! A sequence so far -> guesses at its next tokens, sampled from a draft model's logits.

use super::DraftContext;
use crate::error::Result;
use crate::generate::{Constraint, Next, Sampler};

/// The number of steps without guesses after which some are made, to see whether they pay off again. All tokens that the draft
/// model has missed are computed then.
const IDLE: usize = 64;

/// The number of guesses of such a try: the second one takes a step of one token, so that its time is measured again.
const TRIED: usize = 2;

/// Guesses by a draft model.
#[derive(Debug)]
pub(super) struct Draft {
    /// Made from the options of the generation. As it makes the same draws as the generation will, it draws the same token as far
    /// as the two models agree; the most likely token would be right less often.
    sampler: Sampler,
    /// Steps without guesses.
    idle: usize,
}

impl Draft {
    pub(super) fn new(sampler: Sampler) -> Draft {
        Draft { sampler, idle: 0 }
    }

    /// Appends to `guesses` as many tokens after `sequence` as pay off, at most `most`, if each is right with the probability
    /// `likely`. `sequence` has room for them, and holds them meanwhile.
    pub(super) fn guess(
        &mut self,
        sequence: &mut Vec<u32>,
        most: usize,
        likely: Option<f64>,
        now: &mut DraftContext<'_>,
        guesses: &mut Vec<u32>,
    ) -> Result<()> {
        let mut count = now.step.draft_tokens(most, likely).min(most);
        if count == 0 {
            self.idle += 1;
            if self.idle < IDLE {
                return Ok(());
            }
            count = now.step.draft_tokens(most.min(TRIED), None).min(most);
        }
        self.idle = 0;
        let known = sequence.len();
        let guessed = self.run_ahead(sequence, count, now);
        guesses.extend(sequence.drain(known..));
        guessed
    }

    /// Appends to `sequence` up to `count` tokens, none of which is a stop token.
    fn run_ahead(&mut self, sequence: &mut Vec<u32>, count: usize, now: &mut DraftContext<'_>) -> Result<()> {
        if count > 0 {
            self.sampler.follow(now.sampler)?;
        }
        let mut constraint = now.constraint.as_deref().map(Constraint::fork);
        for _ in 0..count {
            let next = constraint.as_mut().map(|constraint| constraint.next(None)).transpose()?;
            if matches!(next, Some(Next::End)) {
                break;
            }
            let Some(logits) = now.step.draft(sequence, now.cancel)? else { break };
            let token = self.sampler.sample_next(&logits, next.as_ref())?;
            if now.stop.contains(token) {
                break;
            }
            if let Some(constraint) = &mut constraint {
                constraint.take(token)?;
            }
            sequence.push(token);
        }
        Ok(())
    }
}
