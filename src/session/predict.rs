//! A prediction head for a session: it reads the hidden states of the model's steps, and runs ahead of them.

use super::Session;
use crate::cancel::CancellationToken;
use crate::decoder::KvCache;
use crate::error::Result;
use crate::logits::Logits;
use crate::memory;
use crate::model::Model;
use crate::predictor::Predictor;
use crate::scheduler::hidden::HiddenRows;
use tracing::debug_span;

/// The state of the prediction head for a sequence.
#[derive(Debug)]
pub(super) struct Predicted {
    /// Hidden states that the head did not read yet; a run holds them while it is computed.
    pub(super) rows: Option<HiddenRows>,
    /// The head's keys and values: a position for each of `read`, then for each guess.
    cache: KvCache,
    /// The positions of the sequence whose hidden states the head read, each with the token after it. Some may be missing: those
    /// not computed by this session, or long before it guessed. Its rotation depends only on distances, so it works as if the
    /// sequence were shorter.
    read: Vec<usize>,
    /// The head's own hidden state after the last guess.
    state: Vec<f32>,
}

impl Predicted {
    fn new(predictor: &Predictor) -> Predicted {
        let rows = Some(HiddenRows::new(predictor.width()));
        Predicted { rows, cache: predictor.cache(), read: Vec::new(), state: Vec::new() }
    }

    /// Forgets what was read at the positions from `len` on, their tokens included.
    pub(super) fn truncate(&mut self, len: usize) {
        self.forget_states(len);
        self.read.truncate(self.read.partition_point(|position| position + 1 < len));
        self.cache.truncate(self.read.len());
    }

    /// Forgets the hidden states of the positions from `len` on.
    pub(super) fn forget_states(&mut self, len: usize) {
        if let Some(rows) = &mut self.rows {
            rows.truncate(len);
        }
    }

    /// Reads the hidden states of the positions up to `last` with the tokens after them, and returns the logits after the last
    /// of these tokens; `None` if the hidden state of `last` is not known.
    fn read(
        &mut self,
        predictor: &Predictor,
        sequence: &[u32],
        cancel: &CancellationToken,
    ) -> Result<Option<Vec<f32>>> {
        self.cache.truncate(self.read.len());
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let first = self.read.last().map_or(0, |last| last + 1).max(rows.range().start);
        let end = sequence.len() - 1;
        if rows.range().end < end || first >= end {
            return Ok(None);
        }
        let _span = debug_span!("predict", position = first, tokens = end - first).entered();
        memory::grow(&mut self.read, end - first, "the positions that a prediction head has read")?;
        let (logits, state) =
            predictor.forward(&sequence[first + 1..], rows.of(first..end), &mut self.cache, cancel)?;
        self.read.extend(first..end);
        rows.clear();
        self.state = state;
        Ok(logits)
    }

    /// Reads the head's own hidden state with the last guess.
    fn go_on(&mut self, predictor: &Predictor, guess: u32, cancel: &CancellationToken) -> Result<Option<Vec<f32>>> {
        let _span = debug_span!("predict", position = self.cache.len(), tokens = 1).entered();
        let (logits, state) = predictor.forward(&[guess], &self.state, &mut self.cache, cancel)?;
        self.state = state;
        Ok(logits)
    }
}

impl Session {
    /// Starts or stops keeping the hidden states of what is computed for the prediction head.
    pub(crate) fn follow(&mut self, on: bool) {
        match self.model.inner.engine.predictor.as_ref().filter(|_| on) {
            None => self.predicted = None,
            Some(predictor) => {
                self.predicted.get_or_insert_with(|| Box::new(Predicted::new(predictor)));
            }
        }
    }

    /// The logits of the prediction head after `sequence`: that of the session, the token after it, and guesses. `None` if
    /// there is no head, or if it has not read the hidden states before them.
    ///
    /// # Errors
    /// The errors of the head, which has then forgotten everything.
    pub(super) fn predict_after(&mut self, sequence: &[u32], cancel: &CancellationToken) -> Result<Option<Logits>> {
        let model: Model = self.model.clone();
        let Some(predictor) = &model.inner.engine.predictor else { return Ok(None) };
        self.follow(true);
        let (held, Some(predicted)) = (self.input.len(), &mut self.predicted) else { return Ok(None) };
        let guesses = match (sequence.len().checked_sub(held + 1), sequence.split_last()) {
            (Some(guesses), Some((last, _))) if sequence.len() <= model.context_length() => Some((guesses, *last)),
            _ => None,
        };
        let logits = match guesses {
            None => Ok(None),
            Some((0, _)) => predicted.read(predictor, sequence, cancel),
            Some((guesses, last)) if predicted.cache.len() + 1 == predicted.read.len() + guesses => {
                predicted.go_on(predictor, last, cancel)
            }
            Some(_) => Ok(None),
        };
        if logits.is_err() {
            self.predicted = None;
        }
        Ok(logits?.map(Logits::from))
    }
}
