//! The logits after each token of a prompt -> how probable the model found the next one.

use super::LogProbs;
use super::logprobs;
use super::steps::tokens;
use crate::decoder::Rotation;
use crate::error::Result;
use crate::scheduler::TakeLogits;
use crate::tokenizer::Tokenizer;
use model_factory_diagnostics::plan::KV_PAGE;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The bytes of the log-probabilities that a model keeps of earlier prompts.
const KEPT_BYTES: usize = 16 << 20;

/// The most prompts of which a model keeps them: each is compared with a new one.
const MOST_KEPT: usize = 64;

/// The log-probabilities of the tokens of a prompt after its first, as they are computed.
#[derive(Debug)]
pub(crate) struct PromptLogProbs {
    ids: Vec<u32>,
    top: usize,
    tokenizer: Arc<Tokenizer>,
    found: Mutex<Result<Vec<LogProbs>>>,
    /// Whose log-probabilities are the same where ids begin alike.
    shared: Option<(Weak<KeptLogProbs>, LogProbsKey)>,
}

/// What the log-probabilities of a prompt depend on, besides the ids.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogProbsKey {
    /// Who may share them.
    pub(crate) salt: Option<Arc<str>>,
    /// The digests of the adapters and the bits of their factors.
    pub(crate) adapters: Vec<([u8; 32], u64)>,
    pub(crate) rotation: Rotation,
}

/// The log-probabilities of the last prompts of a model for which they were asked.
#[derive(Debug, Default)]
pub(crate) struct KeptLogProbs(Mutex<VecDeque<Arc<PromptLogProbs>>>);

impl PromptLogProbs {
    /// Those of `ids`, with those of the `top` most likely tokens at each place.
    pub(super) fn new(ids: &[u32], top: usize, tokenizer: &Arc<Tokenizer>) -> PromptLogProbs {
        let (ids, tokenizer) = (ids.to_vec(), Arc::clone(tokenizer));
        PromptLogProbs { ids, top, tokenizer, found: Mutex::new(Ok(Vec::new())), shared: None }
    }

    /// The same, but what prompts of the same key in `kept` have in common with it is not computed again.
    pub(super) fn shared(&self, kept: &Arc<KeptLogProbs>, key: LogProbsKey) -> Arc<PromptLogProbs> {
        let mut own = PromptLogProbs::new(&self.ids, self.top, &self.tokenizer);
        own.shared = Some((Arc::downgrade(kept), key));
        let own = Arc::new(own);
        kept.add(&own);
        own
    }

    /// Those of all tokens but the first.
    ///
    /// # Errors
    /// `NonFiniteLogits`.
    pub(super) fn all(&self) -> Result<Vec<LogProbs>> {
        self.found().clone()
    }

    fn found(&self) -> MutexGuard<'_, Result<Vec<LogProbs>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn len(&self) -> usize {
        self.found().as_ref().map_or(0, Vec::len)
    }

    /// The first of them, of the tokens that this prompt and the one of `ids` begin with.
    fn common(&self, ids: &[u32]) -> usize {
        let alike = self.ids.iter().zip(ids).take_while(|(a, b)| a == b).count();
        alike.saturating_sub(1).min(self.len())
    }

    /// The most bytes that they take.
    fn bytes(&self) -> usize {
        let of_token = size_of::<u32>() + size_of::<LogProbs>() + self.top * size_of::<(u32, f64)>();
        self.ids.len().saturating_mul(of_token)
    }
}

impl TakeLogits for PromptLogProbs {
    fn take(&self, index: usize, logits: &[f32]) {
        let mut found = self.found();
        if let (Some(id), Ok(so_far)) = (self.ids.get(index + 1), &mut *found) {
            let unused = self.tokenizer.unused_ids();
            match logprobs::finite(logits) {
                Ok(()) => so_far.push(logprobs::new(logits, tokens(logits, unused, &[]), self.top, *id)),
                Err(error) => *found = Err(error),
            }
        }
    }

    fn known(&self) -> usize {
        let own = self.len();
        if self.found().is_err() {
            return 0;
        }
        let kept = self.shared.as_ref().and_then(|(kept, key)| Some((kept.upgrade()?, key)));
        let longest = kept.and_then(|(kept, key)| kept.longest(self, key)).filter(|(len, _)| *len > own);
        let known = longest.and_then(|(len, other)| Some(other.found().as_ref().ok()?.get(..len)?.to_vec()));
        if let Some(known) = known {
            *self.found() = Ok(known);
        }
        self.len()
    }
}

impl KeptLogProbs {
    fn add(&self, own: &Arc<PromptLogProbs>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(Arc::clone(own));
        let mut bytes: usize = kept.iter().map(|kept| kept.bytes()).sum();
        while kept.len() > MOST_KEPT || bytes > KEPT_BYTES {
            bytes -= kept.pop_front().map_or(bytes, |oldest| oldest.bytes());
        }
    }

    /// The prompt of the same key that has most in common with `own`, and how many log-probabilities.
    fn longest(&self, own: &PromptLogProbs, key: &LogProbsKey) -> Option<(usize, Arc<PromptLogProbs>)> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = kept.iter().filter(|other| !std::ptr::eq(&***other, own) && other.top == own.top);
        let others = others.filter(|other| other.shared.as_ref().is_some_and(|(_, of)| of == key));
        let (len, other) = others.map(|other| (other.common(&own.ids), other)).max_by_key(|(len, _)| *len)?;
        // Without a salt they are shared by whole pages, as the pages are, so that no time tells more of another's prompt.
        let len = if key.salt.is_some() { len } else { len / KV_PAGE * KV_PAGE };
        Some((len, Arc::clone(other)))
    }
}
