//! A sequence so far -> guesses at its next tokens, by what would be chosen of a draft model's logits.

use super::DraftContext;
use crate::error::Result;
use crate::generate::{Constraint, Next, Sampler};

/// Steps without guesses after which some are made nevertheless, to see whether they would pay again. All that the draft model
/// has missed meanwhile is computed then.
const IDLE: usize = 64;

/// How many: the second takes a step of one token, so that its time is measured again.
const TRIED: usize = 2;

/// What chooses among a draft model's logits.
#[derive(Debug)]
pub(super) struct Draft {
    /// Made of the options of the generation. With the draws that the generation will make it draws the same token, as far as
    /// the two models agree; the most likely token would be right less often.
    sampler: Sampler,
    /// Steps without guesses.
    idle: usize,
}

impl Draft {
    pub(super) fn new(sampler: Sampler) -> Draft {
        Draft { sampler, idle: 0 }
    }

    /// Appends to `guesses` as many that may follow `sequence` as pay, each right with the probability `likely`, and at most
    /// `most`. In `sequence` there is room for them, which they use meanwhile.
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

    /// Appends to `sequence` up to `count` tokens, none of them one that ends it.
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
