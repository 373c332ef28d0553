//! A sequence on its way through the scheduler: what is wanted of it, how far it is, and what was computed.

use super::hidden::HiddenRows;
use super::text::Text;
use crate::adapter::Adapters;
use crate::cache_budget::Reservation;
use crate::cancel::CancellationToken;
use crate::decoder::{Compute, KvCache, Logits, OutputRows, Rotation, Segment};
use crate::error::{Error, Result};
use crate::input::{Input, Rows};
use crate::memory;
use model_factory_spec::plan::{KV_PAGE, PREFILL_CHUNK};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tracing::{Span, debug};

/// A sequence, or a text for a vector, on its way through the scheduler, with tokens to be computed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// The whole sequence. Rows from the length of `cache` on are computed.
    pub input: Input,
    /// The KV cache of the sequence.
    pub cache: KvCache,
    /// How the keys of the cache are rotated.
    pub rotation: Rotation,
    /// Tokens that the sequence had before this run.
    pub before: usize,
    /// Tokens whose keys and values were found in pages of other sequences.
    pub reused: usize,
    /// The wanted output of the run, as far as it is computed.
    pub output: RunOutput,
    /// The hidden states of the last tokens, where a prediction head reads them.
    pub hidden: Option<HiddenRows>,
    /// How many of the last tokens are guessed.
    pub guesses: usize,
    /// Cancels the run.
    pub cancel: CancellationToken,
    /// The reservation for its generation, made or to be made before it is computed.
    pub reservation: Option<Arc<Reservation>>,
    /// Whether a step computes all rows of an image, which attend to each other.
    pub whole_images: bool,
    /// Whether it is one of a batch that its caller made.
    pub batched: bool,
    /// Whether a step of it was shared with other sequences.
    pub shared_step: bool,
    /// The span that its steps are in.
    pub span: Span,
    /// A number by which its caller knows it.
    pub key: u64,
    pub(super) phase: Phase,
    /// The run's tokens in the current step.
    pub(super) tokens: usize,
}

/// Takes the logits of each token of a run as they are computed, so that they are not all held.
pub trait TakeLogits: Debug + Send + Sync {
    /// The logits `[vocab]` after the token at `index` of those that are new to the sequence. Each comes once, in order.
    fn take(&self, index: usize, logits: &[f32]);

    /// How many of the first tokens need no logits, as what is made of them is known; never all. It may grow while the run waits for
    /// another one that begins alike.
    fn known(&self) -> usize {
        0
    }
}

/// What is wanted of a run, and what of that was computed. Complete.
#[derive(Debug)]
pub enum RunOutput {
    /// The logits of the last token, `[vocab]`.
    Last(Option<Vec<f32>>),
    /// The logits of the tokens that are new to the sequence.
    All {
        /// `[tokens, vocab]`, with room for all of them.
        logits: Vec<f32>,
        /// Tokens whose logits are there. They are not computed again where the cache has forgotten these tokens.
        tokens: usize,
    },
    /// The logits of each token that is new to the sequence, which `to` takes as they come, and those of the last token.
    Each {
        /// What takes them.
        to: Arc<dyn TakeLogits>,
        /// Tokens whose logits were taken or are known. They are not computed again where the cache has forgotten these tokens.
        tokens: usize,
        /// The logits of the last token, `[vocab]`.
        last: Option<Vec<f32>>,
    },
    /// The vector of a text.
    Pooled(Text),
}

#[derive(Debug)]
pub(super) enum Phase {
    /// It has no pages yet.
    Waiting(Wait),
    Admitted,
    /// It has its pages, and is computed in a step of its own: one that it shared failed.
    Isolated,
    /// It was computed, or this error ended it.
    Finished(Result<()>),
}

#[derive(Debug, Default)]
pub(super) struct Wait {
    /// Whether other sequences hold the pages that it needs.
    pub(super) is_held: bool,
    /// When they were first found to be held.
    pub(super) held_since: Option<Instant>,
    /// Since when they have been held while no generation runs.
    pub(super) idle_since: Option<Instant>,
}

impl Run {
    /// A run that computes the rows of `input` that `cache` does not hold; rows from `before` on are new to the sequence.
    pub fn new(
        input: Input,
        before: usize,
        cache: KvCache,
        rotation: Rotation,
        cancel: &CancellationToken,
        span: Span,
    ) -> Run {
        Run {
            input,
            cache,
            rotation,
            before,
            reused: 0,
            output: RunOutput::Last(None),
            hidden: None,
            guesses: 0,
            cancel: cancel.clone(),
            reservation: None,
            whole_images: false,
            batched: false,
            shared_step: false,
            span,
            key: 0,
            phase: Phase::Waiting(Wait::default()),
            tokens: 0,
        }
    }

    /// A run that computes the vector of the text of `ids` with `adapters`, as `text` says. It shares no pages and takes its own
    /// step by step, as its steps come.
    pub fn of_text(
        ids: Vec<u32>,
        text: Text,
        adapters: &Adapters,
        compute: &dyn Compute,
        cancel: &CancellationToken,
    ) -> Run {
        let (rotation, mut cache) = (compute.rotation(ids.len()), compute.cache());
        cache.set_adapters(adapters);
        let run = Run::new(ids.into(), 0, cache, rotation, cancel, Span::current());
        Run { output: RunOutput::Pooled(text), phase: Phase::Admitted, ..run }
    }

    /// Reads pages that it begins with from the store into memory, where there is one that has them: it takes them from there when
    /// it is admitted.
    pub fn fetch(&self) {
        self.cache.fetch(self.input.rows().slice(0..self.adoptable()), self.rotation);
    }

    /// Takes its pages at once.
    ///
    /// # Errors
    /// `CacheBudget`, `OutOfMemory`, or the GPU's error.
    pub fn reserve(&mut self) -> Result<()> {
        self.adopt();
        self.cache.reserve(self.input.len())
    }

    /// Returns how it ended.
    ///
    /// # Errors
    /// The error because of which it was not computed.
    pub fn outcome(&self) -> Result<()> {
        match &self.phase {
            Phase::Finished(outcome) => outcome.clone(),
            _ => Err(Error::Internal("a sequence was not computed".into())),
        }
    }

    pub(super) fn text(&self) -> Option<&Text> {
        if let RunOutput::Pooled(text) = &self.output { Some(text) } else { None }
    }

    pub(super) fn finish(&mut self, outcome: Result<()>) {
        self.phase = Phase::Finished(outcome);
    }

    pub(super) fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished(_))
    }

    pub(super) fn is_admitted(&self) -> bool {
        matches!(self.phase, Phase::Admitted | Phase::Isolated)
    }

    /// It has its pages from now on.
    pub(super) fn admitted(&mut self) {
        if let Phase::Waiting(Wait { held_since: Some(since), .. }) = &self.phase {
            debug!(parent: &self.span, tokens = self.input.len(), waited = ?since.elapsed(), "waited for pages");
        }
        self.phase = Phase::Admitted;
    }

    pub(super) fn adopt(&mut self) {
        self.adopt_by(usize::MAX, |cache, rows, rotation| cache.adopt(rows, rotation));
    }

    /// Like [`adopt`](Self::adopt), a part of a page too, when the step's tokens were chosen: a step with an image ends where
    /// it was to end, as that is not within an image.
    pub(super) fn adopt_part(&mut self) {
        let end = self.cache.len() + self.tokens;
        let in_images =
            self.whole_images && self.input.spans().last().is_some_and(|span| span.range().end > self.cache.len());
        let most = if in_images { end - 1 } else { usize::MAX };
        self.adopt_by(most, |cache, rows, rotation| cache.adopt_part(rows, rotation));
        self.tokens = if in_images { end - self.cache.len() } else { self.tokens.min(self.pending()) };
    }

    /// Takes up to `most` positions by `adopt`, and counts those that are new to the sequence.
    fn adopt_by(&mut self, most: usize, adopt: impl FnOnce(&mut KvCache, Rows<'_>, Rotation)) {
        if let RunOutput::Each { to, tokens, .. } = &mut self.output {
            *tokens = to.known().max(*tokens);
        }
        let start = self.cache.len().max(self.before);
        let adoptable = self.adoptable().min(most);
        adopt(&mut self.cache, self.input.rows().slice(0..adoptable), self.rotation);
        self.reused += self.cache.len().saturating_sub(start);
    }

    /// Tokens whose outputs are not wanted.
    fn adoptable(&self) -> usize {
        match self.output {
            RunOutput::Last(_) => self.input.len().saturating_sub(1),
            RunOutput::All { .. } => self.before,
            RunOutput::Each { tokens, .. } => self.before + tokens,
            RunOutput::Pooled(_) => 0,
        }
    }

    /// Like [`adoptable`](Self::adoptable), once `other` is computed.
    fn adoptable_of(&self, other: &Run) -> usize {
        match (&self.output, &other.output) {
            (RunOutput::Each { .. }, RunOutput::Each { .. }) => self.input.len().saturating_sub(1),
            _ => self.adoptable(),
        }
    }

    /// Whether `other` computes the page that this one, which may come after it in the queue, computes next.
    pub(super) fn awaits(&self, other: &Run, comes_after: bool) -> bool {
        let (own, cached) = (self.cache.len(), other.cache.len());
        let end = own + KV_PAGE;
        self.cache.shares()
            && other.cache.shares()
            && other.text().is_none()
            && own.is_multiple_of(KV_PAGE)
            && (cached > own || cached == own && comes_after)
            && cached < end
            && self.rotation == other.rotation
            && self.cache.salt() == other.cache.salt()
            && self.cache.adapters() == other.cache.adapters()
            && end <= self.adoptable_of(other).min(other.input.len())
            && self.input.rows().starts_with(other.input.rows().slice(0..end))
    }

    /// The most of the next `tokens` that a step may compute: it does not end within an image that it must compute whole.
    pub(super) fn uncut(&self, tokens: usize) -> usize {
        let start = self.cache.len();
        let image = self.input.rows().image_at(start + tokens).filter(|_| self.whole_images);
        image.map_or(
            tokens,
            |image| if image.start < start + tokens { image.start.saturating_sub(start) } else { tokens },
        )
    }

    /// The fewest tokens that a step may compute: 1, or the image that comes next.
    pub(super) fn least(&self) -> usize {
        let start = self.cache.len();
        let image = self.input.rows().image_at(start).filter(|_| self.whole_images);
        image.map_or(1, |image| image.end - start)
    }

    /// Tokens that one step may compute of it, as far as it goes.
    pub(super) fn pending(&self) -> usize {
        let cached = self.cache.len();
        let end = match self.output {
            RunOutput::All { tokens, .. } | RunOutput::Each { tokens, .. } if cached < self.before + tokens => {
                self.before + tokens
            }
            _ => self.input.len(),
        };
        end - cached
    }

    /// Whether the logits of every token that its next step computes are wanted.
    pub(super) fn wants_all(&self) -> bool {
        let all = match self.output {
            RunOutput::All { tokens, .. } | RunOutput::Each { tokens, .. } => Some(tokens),
            RunOutput::Last(_) | RunOutput::Pooled(_) => None,
        };
        all.is_some_and(|tokens| self.cache.len() >= self.before + tokens)
    }

    /// Whether the step computes positions whose hidden states are wanted: of a long prompt only the last ones.
    pub(super) fn wants_hidden(&self) -> bool {
        self.hidden.is_some() && self.cache.len() + self.tokens + PREFILL_CHUNK > self.input.len()
    }

    pub(super) fn segment(&mut self) -> Segment<'_> {
        let (start, reach) = (self.cache.len(), self.input.len());
        let end = start + self.tokens;
        let rows = match &self.output {
            RunOutput::Last(_) if end == reach => OutputRows::Last,
            RunOutput::All { .. } | RunOutput::Each { .. } if self.wants_all() => OutputRows::All,
            RunOutput::Pooled(text) => text.rows(start, end == reach),
            _ => OutputRows::None,
        };
        let second_text = self.text().and_then(|text| text.second_text);
        let tokens = self.input.rows().slice(start..end);
        Segment { tokens, cache: &mut self.cache, reach, second_text, rows }
    }

    /// Takes rows `rows` of the hidden states that a step of texts computed, each `width` wide.
    pub(super) fn pool(&mut self, hidden_states: &[f32], width: usize, rows: Range<usize>) {
        let (start, is_done) = (self.cache.len() - self.tokens, self.cache.len() == self.input.len());
        let added = match &mut self.output {
            RunOutput::Pooled(text) => {
                let states = &hidden_states[rows.start * width..rows.end * width];
                text.add(start, states, width).map_err(Error::from)
            }
            RunOutput::Last(_) | RunOutput::All { .. } | RunOutput::Each { .. } => Ok(()),
        };
        if is_done || added.is_err() {
            self.cache.truncate(0); // its pages are for those of the next step
            self.finish(added);
        }
    }

    /// Takes rows `rows` of the logits that a step computed.
    pub(super) fn take(&mut self, logits: &mut Option<Logits>, rows: Range<usize>) -> Result<()> {
        let Some(computed) = logits.as_ref().filter(|_| !rows.is_empty()) else { return Ok(()) };
        match &mut self.output {
            RunOutput::All { logits, tokens } => {
                *tokens += rows.len();
                rows.for_each(|row| logits.extend_from_slice(computed.row(row)));
            }
            RunOutput::Each { to, tokens, last } => {
                for row in rows {
                    let row = computed.row(row);
                    to.take(*tokens, row);
                    *tokens += 1;
                    if self.before + *tokens == self.input.len() {
                        *last = Some(memory::copied(row, "logits")?);
                    }
                }
            }
            // The only row there is.
            RunOutput::Last(last) if computed.rows() == 1 => *last = logits.take().map(Logits::into_values),
            // A copy of its own row: a caller may keep it, and would keep the rows of others.
            RunOutput::Last(last) => *last = Some(memory::copied(computed.row(rows.start), "logits")?),
            RunOutput::Pooled(_) => {}
        }
        Ok(())
    }
}
