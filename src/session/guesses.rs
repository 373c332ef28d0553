//! Guessed tokens of a sequence: computed together with a known one, and accepted if they turn out to be the next ones.

use super::Session;
use crate::cancel::CancellationToken;
use crate::decoder::Batching;
use crate::error::{Error, Result};
use crate::input::Rows;
use crate::logits::Logits;
use crate::memory;
use crate::scheduler::costs::MOST_GUESSES;
use crate::scheduler::{Run, RunOutput};
use model_factory_diagnostics::plan::KV_PAGE;

/// The number of positions without guesses after computing some failed.
pub(super) const PAUSE: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Guesses {
    /// Guesses that the next step computes too.
    next: Vec<u32>,
    /// Guesses that were computed after the sequence: the cache holds them, the ids do not.
    ahead: Option<Ahead>,
    /// Whether the last step was shared with other sequences, which gains more than guesses do.
    pub(super) shared_step: bool,
    /// The length below which nothing is guessed.
    pub(super) pause: usize,
}

/// Tokens that were computed before they are known.
#[derive(Debug)]
struct Ahead {
    tokens: Vec<u32>,
    /// How many of the tokens turned out right.
    right: usize,
    /// The logits before the first token and after each, `[1 + tokens, vocab]`.
    rows: Logits,
}

#[allow(clippy::large_enum_variant)] // it is short-lived
pub(crate) enum Begun {
    /// The logits of the step were computed ahead.
    Ahead(Logits),
    Run(Run),
}

impl Session {
    /// Takes `tokens` as guesses for those after the next step, and returns how many it will compute: those that pay off if each
    /// is right with the probability `likely`, or as many as possible.
    pub(super) fn take_guesses(&mut self, tokens: &[u32], likely: Option<f64>) -> usize {
        self.guesses.next.clear();
        let compute = self.model.compute();
        let vocab = compute.vocab();
        let known = tokens.iter().take_while(|id| (**id as usize) < vocab).count().min(self.most_guesses());
        let paying = match likely {
            Some(likely) => self.model.inner.scheduler.costs().paying_guesses(likely, known, 0.0),
            None => known,
        };
        let room = memory::grow(&mut self.guesses.next, paying, "guessed tokens");
        let paying = if room.is_ok() { paying } else { 0 };
        self.guesses.next.extend_from_slice(&tokens[..paying]);
        paying
    }

    /// How many guesses a step of one token may have. They take no page that the token does not need itself, and do not change
    /// how it is computed.
    pub(super) fn most_guesses(&self) -> usize {
        let (compute, reach) = (self.model.compute(), self.len() + 1);
        if compute.batching() != Batching::Any || self.guesses.shared_step || self.len() < self.guesses.pause {
            return 0;
        }
        let room = self.model.context_length().saturating_sub(reach);
        let undoable = self.cache.as_ref().map_or(0, |cache| cache.undoable(reach));
        let most = MOST_GUESSES.min(room).min(reach.next_multiple_of(KV_PAGE) - reach).min(undoable);
        let rotation = compute.rotation(reach);
        (1..=most).rev().find(|guesses| compute.rotation(reach + guesses) == rotation).unwrap_or(0)
    }

    /// Like [`begin`](Self::begin), but uses logits that were computed ahead, and computes guesses that were given.
    pub(crate) fn begin_step(&mut self, tokens: Rows<'_>, cancel: &CancellationToken) -> Result<Begun> {
        let guesses = std::mem::take(&mut self.guesses.next);
        self.reused = 0;
        let is_id = tokens.len() == 1 && tokens.own_spans().is_empty();
        if is_id && let Some(logits) = self.ahead(tokens.ids(), cancel)? {
            return Ok(Begun::Ahead(logits));
        }
        let count = if is_id { guesses.len().min(self.most_guesses()) } else { 0 };
        let mut run = self.begin(tokens, RunOutput::Last(None), cancel)?;
        let vocab = self.model.compute().vocab();
        // Without memory for the guesses it goes on without them.
        if count > 0
            && run.input.grow(count).is_ok()
            && let Ok(rows) = memory::reserved((1 + count) * vocab, "the logits of guessed tokens")
        {
            guesses[..count].iter().for_each(|guess| run.input.push(*guess));
            (run.guesses, run.output) = (count, RunOutput::All { logits: rows, tokens: 0 });
            run.span.record("guesses", count);
        }
        Ok(Begun::Run(run))
    }

    /// The logits after `tokens`, if that is one token that was computed ahead; it becomes part of the sequence.
    fn ahead(&mut self, tokens: &[u32], cancel: &CancellationToken) -> Result<Option<Logits>> {
        let (Some(ahead), [token]) = (&mut self.guesses.ahead, tokens) else { return Ok(None) };
        if ahead.tokens.get(ahead.right) != Some(token) {
            return Ok(None);
        }
        cancel.check()?;
        self.input.grow(1)?;
        let Some(logits) = ahead.rows.row(ahead.right + 1) else { return Ok(None) };
        ahead.right += 1;
        self.input.push(*token);
        Ok(Some(logits))
    }

    /// Forgets the tokens that were computed ahead and did not turn out right.
    pub(super) fn forget_guesses(&mut self) {
        self.guesses.next.clear();
        self.guesses.pause = self.guesses.pause.min(self.len() + PAUSE);
        if self.guesses.ahead.take().is_some()
            && let Some(cache) = &mut self.cache
        {
            cache.truncate(self.input.len());
            if let Some(predicted) = &mut self.predicted {
                predicted.forget_states(self.input.len());
            }
        }
    }

    /// Keeps the computed guesses, the last `count` of the ids, and returns the logits before them.
    pub(super) fn keep_ahead(&mut self, count: usize, rows: Vec<f32>) -> Option<Logits> {
        let rows = Logits::new(rows, self.model.compute().vocab());
        let logits = rows.row(0)?;
        let tokens = self.input.split_ids(count);
        self.guesses.ahead = Some(Ahead { tokens, right: 0, rows });
        Some(logits)
    }
}

/// Whether `error`, which ended a run with `guesses` guesses, may be about one of them: the run is then to be repeated without
/// guesses.
pub(crate) fn guessed_wrong(guesses: usize, error: &Error) -> bool {
    guesses > 0 && !matches!(error, Error::Cancelled)
}
