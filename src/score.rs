//! A text -> how probable the model finds it, token by token.

use crate::cancel::CancellationToken;
use crate::chat::ChatOptions;
use crate::embed::ClassifyOptions;
use crate::error::{Error, Result, SoftTokensError};
use crate::generate::logprobs;
use crate::input::Rows;
use crate::model::Model;
use crate::prompt::Prompt;
use crate::scheduler::TakeLogits;
use crate::session::Session;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How probable a model finds a text: natural log-probabilities of its tokens, as given by torch's `log_softmax`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Score {
    /// The scored tokens.
    pub ids: Vec<u32>,
    /// The log-probability of each token, given all tokens before it.
    pub logprobs: Vec<f64>,
    /// Whether each was the most likely token (lm-eval's `is_greedy`).
    pub is_greedy: bool,
}

impl Score {
    /// The log-likelihood of the text.
    pub fn total(&self) -> f64 {
        self.logprobs.iter().sum()
    }

    /// The perplexity: `exp` of the mean negative log-probability; NaN without tokens.
    pub fn perplexity(&self) -> f64 {
        (-self.total() / self.logprobs.len() as f64).exp()
    }
}

impl Model {
    /// How probable the model finds each token of `text` except the first, which nothing predicts: that is BOS, where
    /// the tokenizer adds it. The whole text is one sequence; the logits of one step
    /// are held at once.
    ///
    /// ```
    /// use model_factory::UnifiedModelFactory;
    ///
    /// let model = UnifiedModelFactory::load("fixtures/demo-q4_k_m.gguf")?;
    /// let (story, noise) = (model.score("Once upon a time there was a fox.")?, model.score("a fox there time upon Once")?);
    /// assert!(story.perplexity() < noise.perplexity());
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of tokenizing the prompt, `EmptyPrompt` for fewer than two tokens, `ContextOverflow`, `SoftTokens` for a prompt
    /// with images, and the errors of [`Session::next_logits`].
    pub fn score<'p>(&self, text: impl Into<Prompt<'p>>) -> Result<Score> {
        let text = text.into();
        if text.has_images() {
            return Err(SoftTokensError::NotScored.into());
        }
        let ids = self.prompt_ids_within(text, &ChatOptions::default(), self.context_length())?;
        if ids.len() < 2 {
            return Err(Error::EmptyPrompt);
        }
        self.session().score(&ids, 1, &CancellationToken::new())
    }

    /// How probable each of `texts` is after `prompt`, which is computed once: for multiple choice. Text and prompt are
    /// tokenized together, and the tokens that differ from the prompt's own are scored, as in lm-eval: with blanks in the
    /// text and none at the end of the prompt, no token of the prompt is scored.
    ///
    /// ```
    /// use model_factory::UnifiedModelFactory;
    ///
    /// let model = UnifiedModelFactory::load("fixtures/demo-q4_k_m.gguf")?;
    /// let scores = model.score_continuations("Once upon a", &[" time", " window"])?;
    /// assert!(scores[0].total() > scores[1].total());
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`score`](Self::score), and `EmptyPrompt` for a prompt or a text without tokens.
    pub fn score_continuations<S: AsRef<str>>(&self, prompt: &str, texts: &[S]) -> Result<Vec<Score>> {
        self.score_continuations_with(prompt, texts, &ClassifyOptions::default())
    }

    /// Like [`score_continuations`](Self::score_continuations), with options.
    ///
    /// # Errors
    /// The errors of [`score_continuations`](Self::score_continuations) and of [`label_logits_with`](Self::label_logits_with).
    pub fn score_continuations_with<S: AsRef<str>>(
        &self,
        prompt: &str,
        texts: &[S],
        options: &ClassifyOptions,
    ) -> Result<Vec<Score>> {
        let (adapters, cancel) = (self.adapters(&options.adapters)?, options.cancel.clone().unwrap_or_default());
        let before = self.prompt_ids_within(prompt.into(), &ChatOptions::default(), self.context_length())?;
        if before.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let mut session = self.session();
        session.use_adapters(adapters);
        session.next_logits_unless(&before, &cancel)?;
        let score = |text: &S| {
            cancel.check()?;
            let whole = [prompt, text.as_ref()].concat();
            let ids = self.prompt_ids_within(Prompt::Text(&whole), &ChatOptions::default(), self.context_length())?;
            let common = before.iter().zip(&*ids).take_while(|(a, b)| a == b).count().max(1);
            if common >= ids.len() {
                return Err(Error::EmptyPrompt);
            }
            let mut session = session.fork()?;
            session.truncate(common - 1);
            session.score(&ids, common, &cancel)
        };
        texts.iter().map(score).collect()
    }
}

impl Session {
    /// The scores of `ids` from `first` on, where this session holds fewer than `first`.
    fn score(&mut self, ids: &[u32], first: usize, cancel: &CancellationToken) -> Result<Score> {
        self.check_ids(ids)?;
        let skipped = first - 1 - self.len();
        let scored = Arc::new(Scored { ids: ids[first..].to_vec(), skipped, found: Mutex::new(Ok(Vec::new())) });
        let to: Arc<dyn TakeLogits> = Arc::<Scored>::clone(&scored);
        let run = self.begin_each(Rows::from(&ids[self.len()..ids.len() - 1]), &to, cancel)?;
        self.compute(run)?;
        let found = std::mem::replace(&mut *scored.found(), Ok(Vec::new()))?;
        let is_greedy = found.iter().all(|(_, is_best)| *is_best);
        let logprobs = found.into_iter().map(|(logprob, _)| logprob).collect();
        Ok(Score { ids: scored.ids.clone(), logprobs, is_greedy })
    }
}

/// The tokens of a text that are scored.
#[derive(Debug)]
struct Scored {
    ids: Vec<u32>,
    /// How many tokens are computed before the one whose logits the first is scored by.
    skipped: usize,
    /// The log-probability of each, and whether it is the most likely token.
    found: Mutex<Result<Vec<(f64, bool)>>>,
}

impl Scored {
    fn found(&self) -> MutexGuard<'_, Result<Vec<(f64, bool)>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakeLogits for Scored {
    fn take(&self, index: usize, logits: &[f32]) {
        let place = index.checked_sub(self.skipped);
        let mut found = self.found();
        if let (Some(id), Ok(so_far)) = (place.and_then(|place| self.ids.get(place)), &mut *found) {
            match logprobs::of_token(logits, *id) {
                Ok(score) => so_far.push(score),
                Err(error) => *found = Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests;
