//! One sequence on a model: its ids, its cache, and the way from ids to logits.

use crate::cancel::CancellationToken;
use crate::decoder::{Cache, Logits, Rotation, Segment, with_floats};
use crate::error::{Error, Result};
use crate::generate::Step;
use crate::memory;
use crate::model::Model;
use candle_core::Tensor;
use model_diagnostics::plan::PREFILL_CHUNK;
use tracing::{debug_span, info_span};

/// Tokens of a prompt that are computed in one turn while others wait for theirs: they wait a quarter as long, and the
/// weights are still read for many tokens at once. The result is the same to the bit.
const SHARED_CHUNK: usize = PREFILL_CHUNK / 4;

/// One sequence and its KV cache. Sessions of one model share its weights; on different threads they
/// take turns.
#[derive(Debug)]
pub struct Session {
    model: Model,
    /// Keys and values of the first of `ids`: of all, unless computing them anew was broken off.
    cache: Box<dyn Cache>,
    /// How the cached keys are rotated.
    rotation: Rotation,
    ids: Vec<u32>,
}

impl Session {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The ids of the sequence, in order.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Tokens of the sequence.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether the sequence has no token.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// A sequence of `ids`, the first of which `cache` holds, with keys that are rotated so.
    pub(crate) fn from_parts(model: Model, ids: Vec<u32>, cache: Box<dyn Cache>, rotation: Rotation) -> Session {
        Session { model, cache, rotation, ids }
    }

    /// The cache, and how its keys are rotated.
    pub(crate) fn cache(&self) -> (&dyn Cache, Rotation) {
        (&*self.cache, self.rotation)
    }

    /// Forgets the tokens from position `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.ids.truncate(len);
        self.cache.truncate(len);
    }

    /// Bytes the cache has allocated.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes() as usize
    }

    /// Appends `tokens` and returns the logits after the last one, F32 `[vocab]`.
    ///
    /// # Errors
    /// `EmptyPrompt` for no tokens, `ContextOverflow` when they do not fit, `CacheBudget` when the sessions of the model leave
    /// too little for them (nothing is computed then), `TokenOutOfVocabulary` for an id without an embedding row,
    /// `OutOfMemory`. The session is then as it was.
    pub fn forward(&mut self, tokens: &[u32]) -> Result<Tensor> {
        self.forward_unless(tokens, &CancellationToken::new())
    }

    /// As [`Session::forward`], until `cancel` is cancelled. The session then holds, beside all that it held before, the
    /// chunks of `tokens` that were complete, and goes on from there. Where the cancel came while what it held was computed
    /// anew for another rotation (longrope), the rest of that is computed by the next call.
    ///
    /// # Errors
    /// As [`Session::forward`], and `Cancelled`.
    pub fn forward_unless(&mut self, tokens: &[u32], cancel: &CancellationToken) -> Result<Tensor> {
        self.check(tokens)?;
        let mut last = None;
        self.advance(tokens, Logits::Last, cancel, |logits| {
            last = Some(logits.squeeze(0)?);
            Ok(())
        })?;
        last.ok_or_else(|| Error::Internal("the last chunk had no logits".into()))
    }

    /// Appends `tokens` and returns the logits after each of them, F32 `[tokens, vocab]`: `tokens * vocab * 4` bytes, and
    /// those of a chunk of up to 512 tokens once more meanwhile, which the memory plan does not count, as generating never
    /// needs them.
    ///
    /// A model with longrope scaling rotates by the length that the sequence has with `tokens`, as transformers does: a call
    /// that ends beyond the original context rotates all its rows as those of a long sequence, so its first ones differ
    /// from those of a call that ends before. Rows of earlier calls stay as they were returned, while what the session
    /// holds of them is computed anew.
    ///
    /// # Errors
    /// As [`Session::forward`].
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Tensor> {
        let vocab = self.model.compute().vocab();
        self.check(tokens)?;
        let mut rows: Vec<f32> = memory::reserved(tokens.len().saturating_mul(vocab), "the logits of every token")?;
        self.advance(tokens, Logits::All, &CancellationToken::new(), |logits| {
            with_floats(logits, |logits| rows.extend_from_slice(logits))
        })?;
        Ok(Tensor::from_vec(rows, (tokens.len(), vocab), self.model.device())?)
    }

    /// Appends to each session its tokens, all in one pass over the weights, and returns the logits after the last of each,
    /// F32 `[sessions, vocab]`. At one token each, several sessions take little longer than one, for which reading the
    /// weights takes most of the time.
    ///
    /// More than a chunk of tokens together is computed session by session.
    ///
    /// # Errors
    /// As [`Session::forward`]; `OtherModel` when the sessions are not of one model. After an error all sessions hold what
    /// they held before.
    pub fn batch(steps: &mut [(&mut Session, &[u32])]) -> Result<Tensor> {
        let Some((first, _)) = steps.first() else { return Err(Error::EmptyPrompt) };
        let model = first.model.clone();
        for (session, tokens) in steps.iter() {
            if !session.model.is(&model) {
                return Err(Error::OtherModel);
            }
            session.check(tokens)?;
        }
        let total: usize = steps.iter().map(|(_, tokens)| tokens.len()).sum();
        if total > PREFILL_CHUNK {
            return Session::one_by_one(steps, &model);
        }
        let _span = info_span!("batch", sessions = steps.len(), tokens = total).entered();
        let logits = Session::together(steps, &model);
        for (session, tokens) in steps.iter_mut() {
            match logits {
                Ok(_) => session.ids.extend_from_slice(tokens),
                Err(_) => session.truncate(session.len()),
            }
        }
        logits
    }

    /// Computes a batch in one pass. The ids of its sessions stay as they are.
    fn together(steps: &mut [(&mut Session, &[u32])], model: &Model) -> Result<Tensor> {
        let cancel = CancellationToken::new();
        for (session, tokens) in steps.iter_mut() {
            session.reserve(tokens.len())?;
        }
        for (session, tokens) in steps.iter_mut() {
            session.rotate(session.len() + tokens.len(), &cancel)?;
        }
        let segments = steps.iter_mut().map(|(session, tokens)| {
            let reach = session.len() + tokens.len();
            Segment { tokens, cache: &mut *session.cache, reach, logits: Logits::Last }
        });
        let mut segments = memory::collected(segments, "the sequences of a batch")?;
        let turn = model.turns().take(&cancel)?;
        let computed = model.compute().forward(&mut segments, &cancel);
        drop(turn);
        computed?.ok_or_else(|| Error::Internal("a batch had no logits".into()))
    }

    /// Computes a batch session by session.
    fn one_by_one(steps: &mut [(&mut Session, &[u32])], model: &Model) -> Result<Tensor> {
        let held = memory::collected(steps.iter().map(|(session, _)| session.len()), "the lengths of a batch")?;
        let vocab = model.compute().vocab();
        let mut rows = memory::reserved(steps.len() * vocab, "the logits of a batch")?;
        let mut all = || {
            for (session, tokens) in steps.iter_mut() {
                session.reserve(tokens.len())?;
            }
            steps.iter_mut().try_for_each(|(session, tokens)| {
                let logits = Session::forward(session, tokens)?;
                with_floats(&logits, |logits| rows.extend_from_slice(logits))
            })
        };
        if let Err(error) = all() {
            steps.iter_mut().zip(held).for_each(|((session, _), held)| session.truncate(held));
            return Err(error);
        }
        Ok(Tensor::from_vec(rows, (steps.len(), vocab), model.device())?)
    }

    /// Appends `tokens`, which are checked, and hands over the wanted logits of each chunk that has some. After an error the sequence is as it
    /// was before; when it was cancelled, complete chunks stay.
    ///
    /// A model with longrope scaling rotates a sequence longer than its original context in another way. As in
    /// transformers, a sequence that grows past that length, or is truncated below it, is computed anew. Its ids stay all the
    /// while, so whatever ends that loses no token.
    fn advance(
        &mut self,
        tokens: &[u32],
        wanted: Logits,
        cancel: &CancellationToken,
        take: impl FnMut(&Tensor) -> Result<()>,
    ) -> Result<()> {
        let position = self.len();
        let span = match (position, tokens.len()) {
            (1.., 1) => debug_span!("decode", position),
            (_, tokens) => info_span!("prefill", tokens, position),
        };
        let _inside = span.enter();
        let reach = position + tokens.len();
        let done = self
            .reserve(tokens.len())
            .and_then(|()| self.rotate(reach, cancel))
            .and_then(|()| self.run(tokens, reach, wanted, cancel, take));
        if done.is_err() {
            // Cancelled, the session keeps the chunks that were complete.
            self.truncate(if matches!(done, Err(Error::Cancelled)) { self.len() } else { position });
        }
        done
    }

    /// Makes room for `more` tokens, before anything is computed.
    fn reserve(&mut self, more: usize) -> Result<()> {
        memory::grow(&mut self.ids, more, "the ids of a session")?;
        self.cache.reserve(self.ids.len() + more)
    }

    /// Whether `tokens` can be appended.
    fn check(&self, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if tokens.len() > self.room() {
            return Err(Error::ContextOverflow { limit: self.room(), asked: tokens.len() });
        }
        self.check_ids(tokens)
    }

    /// Computes the cache anew if a sequence of `reach` tokens is rotated in another way, or goes on where that was
    /// broken off.
    fn rotate(&mut self, reach: usize, cancel: &CancellationToken) -> Result<()> {
        let rotation = self.model.compute().rotation(reach);
        if rotation != self.rotation {
            self.cache.clear();
            self.rotation = rotation;
        }
        while self.cache.len() < self.ids.len() {
            let cached = self.cache.len();
            let missing = self.ids[cached..self.ids.len().min(cached + PREFILL_CHUNK)].to_vec();
            self.chunk(&missing, reach, Logits::None, cancel)?;
        }
        Ok(())
    }

    /// Runs `tokens` in chunks, a turn each, as a part of a sequence that will be `reach` long.
    fn run(
        &mut self,
        tokens: &[u32],
        reach: usize,
        wanted: Logits,
        cancel: &CancellationToken,
        mut take: impl FnMut(&Tensor) -> Result<()>,
    ) -> Result<()> {
        let mut rest = tokens;
        while !rest.is_empty() {
            let (count, logits) = self.chunk(rest, reach, wanted, cancel)?;
            logits.map_or(Ok(()), |logits| take(&logits))?;
            self.ids.extend_from_slice(&rest[..count]);
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Computes the first chunk of `tokens` behind what is cached, in one turn. Returns how many that are, and their logits,
    /// which of the last token are wanted only where the chunk has it.
    fn chunk(
        &mut self,
        tokens: &[u32],
        reach: usize,
        wanted: Logits,
        cancel: &CancellationToken,
    ) -> Result<(usize, Option<Tensor>)> {
        let turn = self.model.turns().take(cancel)?;
        let most = if turn.ahead > 0 { SHARED_CHUNK } else { PREFILL_CHUNK };
        let chunk = &tokens[..most.min(tokens.len())];
        let wanted = if wanted == Logits::All || chunk.len() == tokens.len() { wanted } else { Logits::None };
        let segment = Segment { tokens: chunk, cache: &mut *self.cache, reach, logits: wanted };
        let computed = self.model.compute().forward(&mut [segment], cancel);
        drop(turn);
        Ok((chunk.len(), computed?))
    }

    /// Whether every id has an embedding row.
    pub(crate) fn check_ids(&self, tokens: &[u32]) -> Result<()> {
        let vocab = self.model.compute().vocab();
        match tokens.iter().find(|id| **id as usize >= vocab) {
            Some(id) => Err(Error::TokenOutOfVocabulary { id: *id, vocab }),
            None => Ok(()),
        }
    }
}

impl Model {
    /// A new, empty sequence.
    pub fn session(&self) -> Session {
        Session { model: self.clone(), cache: self.compute().cache(), rotation: Rotation::Short, ids: Vec::new() }
    }

    /// The logits after each of `tokens`, F32 `[tokens, vocab]`.
    ///
    /// # Errors
    /// As [`Session::logits`].
    pub fn logits(&self, tokens: &[u32]) -> Result<Tensor> {
        self.session().logits(tokens)
    }
}

impl Step for Session {
    fn forward(&mut self, tokens: &[u32], cancel: &CancellationToken) -> Result<Tensor> {
        self.forward_unless(tokens, cancel)
    }

    fn room(&self) -> usize {
        self.model.context_length() - self.len()
    }
}
