//! One sequence on a model: its ids, its cache, and the way from ids to logits.

pub use crate::fingerprint::WeightsDigest;
pub use crate::prompt::IntoGenerationError;

mod draft;
mod guesses;
mod predict;

use crate::adapter::Adapter;
use crate::cache_budget::Reservation;
use crate::cancel::CancellationToken;
use crate::decoder::{Batching, KvCache, Rotation};
use crate::error::{EmbedError, Error, Result};
use crate::generate::Step;
use crate::input::{Input, Rows};
use crate::logits::Logits;
use crate::memory;
use crate::model::Model;
use crate::scheduler::queue::Caller;
use crate::scheduler::{Run, RunOutput, TakeLogits};
use guesses::Guesses;
pub(crate) use guesses::{Begun, guessed_wrong};
use model_factory_diagnostics::plan::KV_PAGE;
use model_factory_diagnostics::spec::ImageRows;
use model_factory_engine::adapter::Adapters;
use predict::Predicted;
use std::sync::{Arc, Weak};
use tracing::field::Empty;
use tracing::{Span, debug_span, info_span};

/// Bytes of the KV caches of a model's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheUsage {
    /// The bytes of all pages. A page that several sessions share counts once.
    pub bytes: u64,
    /// The bytes of pages that no session holds. They are kept for one that begins alike, until another needs the room.
    pub unused: u64,
    /// Bytes reserved, besides those, for running generations and not taken yet ([`Admission::Wait`](crate::Admission::Wait)).
    pub reserved: u64,
}

/// One sequence and its KV cache. Sessions of one model share its weights; those that compute at the same time, on any
/// threads, share passes over them.
#[derive(Debug)]
pub struct Session {
    model: Model,
    /// Keys and values of the first of `input`: of all, unless computing them again was interrupted; then those of `guesses`
    /// that were computed ahead. `None` while the sequence is being computed.
    cache: Option<KvCache>,
    /// How the cached keys are rotated.
    rotation: Rotation,
    /// The salt of the prompt cache: pages are shared only with sequences of the same one.
    salt: Option<Arc<str>>,
    adapters: Adapters,
    input: Input,
    guesses: Guesses,
    /// The session of the draft model, if it has guessed.
    draft: Option<Box<Session>>,
    /// The state of the prediction head for this sequence, if it guesses.
    predicted: Option<Box<Predicted>>,
    caller: Arc<Caller>,
    /// Tokens of the last run that were found in pages of other sequences.
    reused: usize,
    /// The reservation of the generation that runs on the session, where generations wait for pages: its pages are taken from that.
    pub(crate) reservation: Weak<Reservation>,
}

impl Session {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The ids of the sequence, in order. Those of images only hold their places.
    pub fn ids(&self) -> &[u32] {
        self.input.ids()
    }

    /// The sequence with its images.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Tokens of the sequence.
    pub fn len(&self) -> usize {
        self.input.len()
    }

    /// Whether the sequence has no token.
    pub fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    /// A sequence of `input`; `cache` holds the first of it, and its keys are rotated by `rotation`.
    pub(crate) fn from_parts(model: Model, input: Input, cache: Option<KvCache>, rotation: Rotation) -> Session {
        let adapters = cache.as_ref().map_or_else(Adapters::default, |cache| cache.adapters().clone());
        Session {
            model,
            adapters,
            cache,
            rotation,
            salt: None,
            input,
            guesses: Guesses::default(),
            draft: None,
            predicted: None,
            caller: Arc::default(),
            reused: 0,
            reservation: Weak::new(),
        }
    }

    /// The cache, where there is one yet, and how its keys are rotated.
    pub(crate) fn cache(&self) -> (Option<&KvCache>, Rotation) {
        (self.cache.as_ref(), self.rotation)
    }

    /// Forgets the tokens from position `len` on. An image that `len` is in the middle of is forgotten whole: what is held of its
    /// first rows depends on the others.
    pub fn truncate(&mut self, len: usize) {
        self.forget_guesses();
        let len = self.input.before_image(len);
        self.input.truncate(len);
        if let Some(predicted) = &mut self.predicted {
            predicted.truncate(len);
        }
        if let Some(cache) = &mut self.cache {
            cache.truncate(len);
            self.model.inner.scheduler.freed();
        }
    }

    /// From now on shares its beginning only with sequences of this salt, to the token. `None` shares whole pages of 256 tokens
    /// with others without a salt. The same as [`GenerateOptions::cache_salt`](crate::GenerateOptions::cache_salt), for a
    /// session that is stepped by hand. What it shared under another salt is computed again by the next step.
    pub fn set_cache_salt(&mut self, salt: Option<&str>) {
        self.salt = salt.map(Arc::from);
    }

    /// The salt of the prompt cache.
    pub(crate) fn salt(&self) -> Option<&Arc<str>> {
        self.salt.as_ref()
    }

    /// From now on computes with these adapters, each with its scale. The same as
    /// [`GenerateOptions::adapter`](crate::GenerateOptions::adapter), for a session that is stepped by hand; here none means none. What it
    /// computed with others is computed again by the next step.
    ///
    /// # Errors
    /// `Adapter` for one that was loaded for another model, `Option` for a scale that is not finite; the session is as it was.
    pub fn set_adapters(&mut self, adapters: &[(Adapter, f64)]) -> Result<()> {
        let adapters = self.model.adapters(adapters)?;
        self.use_adapters(adapters);
        Ok(())
    }

    pub(crate) fn use_adapters(&mut self, adapters: Adapters) {
        if self.adapters != adapters {
            self.forget_guesses();
            self.adapters = adapters;
        }
    }

    /// The adapters that it computes with.
    pub(crate) fn adapters(&self) -> &Adapters {
        &self.adapters
    }

    /// Bytes the cache has allocated.
    pub fn cache_bytes(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.bytes() as usize)
    }

    /// Appends `tokens` and returns the logits after the last one, `[vocab]`.
    ///
    /// # Errors
    /// `EmptyPrompt` for no tokens, `ContextOverflow` when they do not fit, `CacheBudget` when the sessions of the model leave
    /// too little for them (nothing is computed then), `TokenOutOfVocabulary` for an id without an embedding row,
    /// `OutOfMemory`. The session is then as it was.
    pub fn next_logits(&mut self, tokens: &[u32]) -> Result<Logits> {
        self.next_logits_unless(tokens, &CancellationToken::new())
    }

    /// Like [`Session::next_logits`], until `cancel` is cancelled. The session then holds, besides what it held before, the
    /// complete chunks of `tokens`, and goes on from there; in models that have layers with a state, those up to the
    /// last page at which the state was kept. If it was cancelled while what it held was computed
    /// again for another rotation (longrope), the rest of that is computed by the next call.
    ///
    /// # Errors
    /// The errors of [`Session::next_logits`], and `Cancelled`.
    pub fn next_logits_unless(&mut self, tokens: &[u32], cancel: &CancellationToken) -> Result<Logits> {
        self.next_logits_of_unless(tokens.into(), cancel)
    }

    /// Like [`Session::next_logits`], for ids and images.
    ///
    /// ```no_run
    /// use model_factory::{Input, SoftTokens, UnifiedModelFactory};
    /// use std::sync::Arc;
    ///
    /// let model = UnifiedModelFactory::load("path/to/gemma-3")?;
    /// let (hidden, placeholder) = (model.spec().hidden, 262_144);
    /// # let (vectors, digest) = (vec![0.0; 256 * hidden], [0; 32]);
    /// let image = Arc::new(SoftTokens::new(vectors, hidden, digest)?); // what the vision tower made
    /// let mut input = Input::from(vec![2, 105, 2364, 107, 255_999]);
    /// input.push_soft_tokens(placeholder, &image)?;
    /// input.push_ids(&[256_000, 106])?;
    /// let logits = model.session().next_logits_of(&input)?;
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Session::next_logits`], and `SoftTokens` where the model does not take the images.
    pub fn next_logits_of<'r>(&mut self, rows: impl Into<Rows<'r>>) -> Result<Logits> {
        self.next_logits_of_unless(rows.into(), &CancellationToken::new())
    }

    fn next_logits_of_unless(&mut self, rows: Rows<'_>, cancel: &CancellationToken) -> Result<Logits> {
        loop {
            let run = match self.begin_step(rows, cancel)? {
                Begun::Ahead(logits) => return Ok(logits),
                Begun::Run(run) => run,
            };
            let guesses = run.guesses;
            return match self.compute(run) {
                Err(error) if guessed_wrong(guesses, &error) => continue,
                outcome => outcome,
            };
        }
    }

    /// Appends `tokens` and returns the logits after each of them, `[tokens, vocab]`: `tokens * vocab * 4` bytes, which the
    /// memory plan does not count, as generating never needs them. Where sequences are computed in steps of their own (on a
    /// GPU, and with one scale of int8 activations for all rows) the logits of up to 512 tokens are held twice meanwhile.
    ///
    /// A model with longrope scaling rotates by the length that the sequence has with `tokens`, as transformers does: a call
    /// that ends beyond the original context rotates all its rows as those of a long sequence, so its first ones differ
    /// from those of a call that ends before. Rows of earlier calls stay as they were returned, but what the session
    /// holds of them is computed again.
    ///
    /// # Errors
    /// The errors of [`Session::next_logits`].
    pub fn all_logits(&mut self, tokens: &[u32]) -> Result<Logits> {
        self.all_logits_of(tokens)
    }

    /// Like [`Session::all_logits`], for ids and images. Where the rows of an image attend to each other, the logits of all of
    /// them are held twice meanwhile.
    ///
    /// # Errors
    /// The errors of [`Session::next_logits_of`].
    pub fn all_logits_of<'r>(&mut self, rows: impl Into<Rows<'r>>) -> Result<Logits> {
        let (rows, vocab) = (rows.into(), self.model.compute().vocab());
        let logits = memory::reserved(rows.len().saturating_mul(vocab), "the logits of every token")?;
        let run = self.begin(rows, RunOutput::All { logits, tokens: 0 }, &CancellationToken::new())?;
        self.compute(run)
    }

    /// Appends to each session its tokens, in one pass over the weights if they are no more than a chunk of a prompt, and
    /// returns the logits after the last of each, `[sessions, vocab]`. At one token each, several sessions take little
    /// longer than one, as reading the weights takes most of the time. Sessions that are used by threads of their
    /// own share passes without this method.
    ///
    /// # Errors
    /// The errors of [`Session::next_logits`], and `OtherModel` when the sessions are not of one model. After an error all
    /// sessions hold what they held before.
    pub fn batch_logits(steps: &mut [(&mut Session, &[u32])]) -> Result<Logits> {
        let mut all = memory::reserved(steps.len(), "the sessions of a batch")?;
        all.extend(steps.iter_mut().map(|(session, tokens)| (&mut **session, Rows::from(*tokens))));
        Session::batch_logits_of(&mut all)
    }

    /// Like [`Session::batch_logits`], for ids and images.
    ///
    /// # Errors
    /// The errors of [`Session::batch_logits`], and `SoftTokens`.
    pub fn batch_logits_of(steps: &mut [(&mut Session, Rows<'_>)]) -> Result<Logits> {
        let Some((first, _)) = steps.first() else { return Err(Error::EmptyPrompt) };
        let (model, caller) = (first.model.clone(), Arc::clone(&first.caller));
        for (session, tokens) in steps.iter() {
            if !session.model.is(&model) {
                return Err(Error::OtherModel);
            }
            session.check(*tokens)?;
        }
        let vocab = model.compute().vocab();
        let mut rows = memory::reserved(steps.len() * vocab, "the logits of a batch")?;
        let mut held = memory::reserved(steps.len(), "the lengths of a batch")?;
        let total: usize = steps.iter().map(|(_, tokens)| tokens.len()).sum();
        let _span = info_span!("batch", sessions = steps.len(), tokens = total).entered();
        let (cancel, mut runs, mut failed) = (CancellationToken::new(), Vec::new(), None);
        for (session, tokens) in steps.iter_mut() {
            match session.begin(*tokens, RunOutput::Last(None), &cancel) {
                Ok(mut run) => {
                    (run.batched, run.span) = (true, Span::current());
                    // Either all are computed, or none.
                    failed = run.reserve().err().map(Error::from);
                    runs.push(run);
                }
                Err(error) => failed = Some(error),
            }
            if failed.is_some() {
                break;
            }
        }
        if failed.is_none() {
            runs = model.inner.scheduler.run(model.compute(), &caller, runs);
        }
        for ((session, _), run) in steps.iter_mut().zip(runs) {
            held.push(run.before);
            if let RunOutput::Last(Some(logits)) = &run.output {
                rows.extend_from_slice(logits);
            }
            failed = failed.or(session.end(run).err());
        }
        match failed {
            None => Ok(Logits::new(rows, vocab)),
            Some(error) => {
                steps.iter_mut().zip(held).for_each(|((session, _), held)| session.truncate(held));
                Err(error)
            }
        }
    }

    /// Hands the sequence with `tokens` after it over to be computed. Until [`end`](Self::end) takes it back, the session is
    /// empty. `output` says which logits are wanted.
    ///
    /// A model with longrope scaling rotates a sequence longer than its original context in another way. As in
    /// transformers, a sequence that grows past that length, or is truncated below it, is computed again; so is one that was shared
    /// under another salt, or computed with other adapters. Its ids are kept meanwhile, so an interruption loses no token.
    ///
    /// # Errors
    /// The errors of [`Session::next_logits`]; the session is as it was.
    pub(crate) fn begin(&mut self, tokens: Rows<'_>, output: RunOutput, cancel: &CancellationToken) -> Result<Run> {
        self.check(tokens)?;
        self.forget_guesses();
        let (before, reach) = (self.len(), self.len() + tokens.len());
        let span = match (before, tokens.len()) {
            (1.., 1) => debug_span!("decode", position = before, guesses = Empty),
            (_, tokens) => info_span!("prefill", tokens, position = before),
        };
        self.input.extend(tokens)?;
        let compute = self.model.compute();
        let cache = self.cache.get_or_insert_with(|| compute.cache());
        let (rotation, held) = (compute.rotation(reach), cache.len());
        let reservation = self.reservation.upgrade();
        cache.set_salt(self.salt.as_ref());
        cache.set_adapters(&self.adapters);
        if rotation != self.rotation || cache.len() < held {
            cache.clear();
            self.rotation = rotation;
            // Other sessions may hold its pages now: it begins like a new one, with no page held.
            if let Some(reservation) = &reservation {
                cache.truncate(0);
                reservation.release();
            }
        }
        let input = std::mem::take(&mut self.input);
        let has_images = !input.spans().is_empty();
        let cache = self.cache.take().unwrap_or_else(|| compute.cache());
        let mut run = Run::new(input, before, cache, rotation, cancel, span);
        run.reservation = reservation;
        run.whole_images = has_images && matches!(compute.images(), Ok(ImageRows::BothSides { .. }));
        run.output = output;
        run.hidden = self.predicted.as_mut().and_then(|predicted| predicted.rows.take());
        run.fetch();
        Ok(run)
    }

    /// Reads the pages of `prompt` that the folder of prompts has into memory, so that the thread of the steps, which others share, waits
    /// for no disk. What is freed again before it is needed is read once more by [`begin`](Self::begin).
    pub(crate) fn fetch(&mut self, prompt: Rows<'_>, rotation: Rotation) {
        if self.model.inner.prompt_cache.is_none() {
            return;
        }
        let compute = self.model.compute();
        let cache = self.cache.get_or_insert_with(|| compute.cache());
        if cache.len() == 0 {
            cache.set_salt(self.salt.as_ref());
            cache.set_adapters(&self.adapters);
        } else if rotation != self.rotation || cache.salt() != self.salt.as_ref() || cache.adapters() != &self.adapters
        {
            return;
        }
        cache.fetch(prompt.slice(0..prompt.len() - 1), rotation);
    }

    /// Like [`begin`](Self::begin), where `to` takes the logits of each of `tokens`.
    pub(crate) fn begin_each(
        &mut self,
        tokens: Rows<'_>,
        to: &Arc<dyn TakeLogits>,
        cancel: &CancellationToken,
    ) -> Result<Run> {
        self.reused = 0;
        self.begin(tokens, RunOutput::Each { to: Arc::clone(to), tokens: 0, last: None }, cancel)
    }

    /// Takes the sequence of `run` back, with its tokens and the logits after the last one, or after each if those were wanted.
    /// If computing failed, the session is as it was before; if it was cancelled, complete chunks stay.
    pub(crate) fn end(&mut self, run: Run) -> Result<Logits> {
        let (cached, outcome) = (run.cache.len(), run.outcome().map_err(Error::from));
        let Run { input, cache, before, reused, guesses, output, hidden, shared_step, .. } = run;
        match (&mut self.predicted, hidden) {
            (Some(predicted), Some(hidden)) => predicted.rows = Some(hidden),
            (predicted, _) => *predicted = None,
        }
        let known = input.len() - guesses;
        if known > before + 1 && known / KV_PAGE > before / KV_PAGE {
            // The next prompt may go on from here, and have another answer.
            cache.save_last();
        }
        (self.input, self.cache, self.reused, self.guesses.shared_step) = (input, Some(cache), reused, shared_step);
        let outcome = outcome.and_then(|()| {
            let logits = match output {
                RunOutput::Last(logits) | RunOutput::Each { last: logits, .. } => logits.map(Logits::from),
                RunOutput::All { logits, .. } if guesses > 0 => self.keep_ahead(guesses, logits),
                RunOutput::All { logits, .. } => Some(Logits::new(logits, self.model.compute().vocab())),
                RunOutput::Pooled(_) => None,
            };
            logits.ok_or_else(|| Error::Internal("a sequence without logits".into()))
        });
        match &outcome {
            Ok(_) => {}
            Err(Error::Cancelled) => self.truncate(before.max(cached).min(known)),
            Err(_) => {
                self.truncate(before);
                if guesses > 0 {
                    self.guesses.pause = self.len() + guesses::PAUSE; // a guess may have caused the failure
                }
            }
        }
        outcome
    }

    /// Computes `run` and takes its sequence back.
    pub(crate) fn compute(&mut self, run: Run) -> Result<Logits> {
        let mut runs = self.model.inner.scheduler.run(self.model.compute(), &self.caller, vec![run]);
        let run = runs.pop().ok_or_else(|| Error::Internal("a sequence did not come back".into()))?;
        self.end(run)
    }

    /// Checks that `tokens` can be appended.
    fn check(&self, tokens: Rows<'_>) -> Result<()> {
        if self.model.spec().weights.head.is_none() {
            return Err(EmbedError::NoHead.into());
        }
        self.check_within(tokens, self.room())
    }

    /// Checks that there are tokens, at most `limit`, that every id has an embedding row, and that the model takes the images.
    pub(crate) fn check_within(&self, tokens: Rows<'_>, limit: usize) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if tokens.len() > limit {
            return Err(Error::ContextOverflow { limit, asked: tokens.len() });
        }
        tokens.check_whole()?;
        for span in tokens.own_spans() {
            self.model.compute().check_soft_tokens(&span.tokens)?;
        }
        self.check_ids(tokens.ids())
    }

    /// A session that continues the same sequence independently. Pages of 256 positions are shared, the last one is copied; on a
    /// GPU its positions are computed again.
    ///
    /// # Errors
    /// `CacheBudget`, `OutOfMemory`.
    pub fn fork(&self) -> Result<Session> {
        let mut cache = self.cache.as_ref().map(|cache| cache.fork()).transpose()?;
        if let Some(cache) = &mut cache {
            cache.truncate(self.input.len()); // drops the guesses after them
        }
        let mut input = Input::default();
        input.extend(self.input.rows())?;
        let mut fork = Session::from_parts(self.model.clone(), input, cache, self.rotation);
        fork.salt.clone_from(&self.salt);
        fork.adapters = self.adapters.clone();
        Ok(fork)
    }

    /// Checks that every id has an embedding row.
    pub(crate) fn check_ids(&self, tokens: &[u32]) -> Result<()> {
        let vocab = self.model.compute().vocab();
        match tokens.iter().find(|id| **id as usize >= vocab) {
            Some(id) => Err(Error::TokenOutOfVocabulary { id: *id, vocab }),
            None => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(cache) = self.cache.take() {
            cache.retire(self.input.rows(), self.rotation);
            self.model.inner.scheduler.freed();
        }
    }
}

impl Model {
    /// Bytes of the KV caches of the model's sessions.
    pub fn cache_usage(&self) -> CacheUsage {
        let pages = self.compute().pages();
        let (bytes, unused) = pages.bytes();
        CacheUsage { bytes, unused, reserved: pages.budget().reserved() }
    }

    /// A new, empty sequence.
    pub fn session(&self) -> Session {
        Session::from_parts(self.clone(), Input::default(), None, Rotation::Short)
    }

    /// The logits after each of `tokens`, `[tokens, vocab]`.
    ///
    /// # Errors
    /// The errors of [`Session::all_logits`].
    pub fn all_logits(&self, tokens: &[u32]) -> Result<Logits> {
        self.session().all_logits(tokens)
    }
}

impl Step for Session {
    fn forward(&mut self, tokens: &[u32], cancel: &CancellationToken) -> Result<Logits> {
        self.next_logits_unless(tokens, cancel)
    }

    fn forward_rows(&mut self, rows: Rows<'_>, cancel: &CancellationToken) -> Result<Logits> {
        self.next_logits_of_unless(rows, cancel)
    }

    fn forward_each(&mut self, rows: Rows<'_>, to: &Arc<dyn TakeLogits>, cancel: &CancellationToken) -> Result<Logits> {
        let run = self.begin_each(rows, to, cancel)?;
        self.compute(run)
    }

    fn room(&self) -> usize {
        self.model.context_length() - self.len()
    }

    fn reused(&self) -> usize {
        self.reused
    }

    fn joins(&self) -> bool {
        self.model.compute().batching() == Batching::Any
    }

    fn guess(&mut self, tokens: &[u32], likely: Option<f64>) -> usize {
        self.take_guesses(tokens, likely)
    }

    fn draft_tokens(&self, most: usize, likely: Option<f64>) -> usize {
        self.paying_drafts(most, likely)
    }

    fn draft(&mut self, sequence: &[u32], cancel: &CancellationToken) -> Result<Option<Logits>> {
        match self.model.inner.engine.predictor {
            Some(_) => self.predict_after(sequence, cancel),
            None => self.draft_after(sequence, cancel),
        }
    }
}
