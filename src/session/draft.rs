//! The draft model's session for a session: it follows the session's sequence, and runs ahead of it.

use super::Session;
use crate::cancel::CancellationToken;
use crate::error::Result;
use crate::logits::Logits;
use crate::memory;
use model_factory_diagnostics::plan::PREFILL_CHUNK;
use tracing::debug_span;

impl Session {
    /// How many tokens, at most `most`, the draft model or prediction head should guess after the next step: those that pay off,
    /// its own time counted, if each is right with the probability `likely`, or as many as possible.
    pub(super) fn paying_drafts(&self, most: usize, likely: Option<f64>) -> usize {
        let (context, each) = match (&self.model.inner.engine.predictor, self.model.draft()) {
            (Some(predictor), _) => (self.model.context_length(), predictor.seconds()),
            (None, Some(draft)) => (draft.context_length(), draft.inner.scheduler.costs().single()),
            (None, None) => return 0,
        };
        // The last guess is not computed.
        let most = most.min(self.most_guesses()).min(context.saturating_sub(self.len()));
        let Some(likely) = likely else { return most };
        // The second guess is the first that takes a step of one token, by which that time is measured.
        let Some(each) = each else { return most.min(2) };
        self.model.inner.scheduler.costs().paying_guesses(likely, most, each)
    }

    /// The logits of the draft model after `sequence`. It computes what its session does not hold, at most one chunk of a
    /// prompt at a time, so that nobody waits for long. `None` if that is not all, if there is no draft model, or if
    /// its context is full.
    pub(super) fn draft_after(&mut self, sequence: &[u32], cancel: &CancellationToken) -> Result<Option<Logits>> {
        let Some(model) = self.model.draft() else { return Ok(None) };
        let Some(last) = sequence.len().checked_sub(1).filter(|last| *last < model.context_length()) else {
            return Ok(None);
        };
        let draft = self.draft.get_or_insert_with(|| Box::new(model.session()));
        draft.salt.clone_from(&self.salt);
        let held = draft.ids().iter().zip(sequence).take_while(|(held, asked)| held == asked).count().min(last);
        let _span = debug_span!("draft", position = held, tokens = sequence.len() - held).entered();
        draft.truncate(held);
        let chunk = memory::copied(&sequence[held..sequence.len().min(held + PREFILL_CHUNK)], "the ids of a draft")?;
        let logits = draft.next_logits_unless(&chunk, cancel);
        let is_all = draft.len() == sequence.len();
        if logits.is_err() {
            self.draft = None; // its pages now belong to others
        }
        Ok(Some(logits?).filter(|_| is_all))
    }
}
