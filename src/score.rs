//! A text -> how probable the model finds it, token by token.

use crate::chat::ChatOptions;
use crate::embed::ClassifyOptions;
use crate::error::{Error, Result, SoftTokensError};
use crate::generate::logprobs;
use crate::model::Model;
use crate::prompt::Prompt;
use crate::session::Session;

/// Bytes of logits that are held at once.
const LOGIT_BYTES: usize = 64 << 20;

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
    /// the tokenizer adds it. The whole text is one sequence. At most 64 MiB of logits are held at once, but all of them for a text
    /// beyond the original context of a model with longrope.
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
    /// with images, and the errors of [`Session::all_logits`].
    pub fn score<'p>(&self, text: impl Into<Prompt<'p>>) -> Result<Score> {
        let text = text.into();
        if text.has_images() {
            return Err(SoftTokensError::NotScored.into());
        }
        let ids = self.prompt_ids_within(text, &ChatOptions::default(), self.context_length())?;
        if ids.len() < 2 {
            return Err(Error::EmptyPrompt);
        }
        self.session().score(&ids, 1, LOGIT_BYTES)
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
            session.score(&ids, common, LOGIT_BYTES)
        };
        texts.iter().map(score).collect()
    }
}

impl Session {
    /// The scores of `ids` from `first` on, where this session holds fewer than `first`, with at most `bytes` of logits at once.
    fn score(&mut self, ids: &[u32], first: usize, bytes: usize) -> Result<Score> {
        self.check_ids(ids)?;
        let (held, model) = (self.len(), self.model().clone());
        let (compute, inputs) = (model.compute(), &ids[held..ids.len() - 1]);
        // A model that rotates by the length of the sequence (longrope) computes all rows with the rotation of the whole sequence.
        let whole = compute.rotation(held + 1) != compute.rotation(ids.len() - 1);
        let rows = bytes / size_of::<f32>() / compute.vocab();
        let rows = if whole { inputs.len() } else { rows.max(1) };
        let mut score = Score { ids: ids[first..].to_vec(), logprobs: Vec::new(), is_greedy: true };
        let mut next = ids[held + 1..].iter().zip(held + 1..);
        for chunk in inputs.chunks(rows) {
            let logits = self.all_logits(chunk)?;
            for (row, (id, place)) in logits.rows().zip(next.by_ref()) {
                if place >= first {
                    let (logprob, is_best) = logprobs::of_token(row, *id)?;
                    score.logprobs.push(logprob);
                    score.is_greedy &= is_best;
                }
            }
        }
        Ok(score)
    }
}

#[cfg(test)]
mod tests;
