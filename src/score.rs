//! A text -> how probable the model finds it, token by token.

use crate::chat::ChatOptions;
use crate::error::{Error, Result};
use crate::generate::logprobs;
use crate::model::Model;
use crate::prompt::Prompt;
use crate::session::Session;

/// Bytes of logits that are held at once.
const LOGIT_BYTES: usize = 64 << 20;

/// How probable a model finds a text: natural logarithms of its own probabilities, as `log_softmax` in torch has them.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Score {
    /// The tokens that were scored.
    pub ids: Vec<u32>,
    /// The logarithm of each token's probability after all that is before it.
    pub logprobs: Vec<f64>,
    /// Whether each was the most likely token (lm-eval's `is_greedy`).
    pub is_greedy: bool,
}

impl Score {
    /// The log-likelihood of the text.
    pub fn total(&self) -> f64 {
        self.logprobs.iter().sum()
    }

    /// `exp` of the mean of the negative logarithms (perplexity); NaN of no tokens.
    pub fn perplexity(&self) -> f64 {
        (-self.total() / self.logprobs.len() as f64).exp()
    }
}

impl Model {
    /// How probable the model finds each token of `text` but the first, after which alone something can be expected: BOS, where
    /// the tokenizer puts it there. The whole text is one sequence. Logits of up to 64 MiB are held at once; all of them for a text
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
    /// Those of making ids of the prompt, `EmptyPrompt` for fewer than two tokens, `ContextOverflow`, and those of
    /// [`Session::all_logits`].
    pub fn score<'p>(&self, text: impl Into<Prompt<'p>>) -> Result<Score> {
        let ids = self.prompt_ids_within(text.into(), &ChatOptions::default(), self.context_length())?;
        if ids.len() < 2 {
            return Err(Error::EmptyPrompt);
        }
        self.session().score(&ids, 1, LOGIT_BYTES)
    }

    /// How probable each of `texts` is after `prompt`, which is computed once: what multiple choice needs. A text and the prompt are
    /// tokenized together, and what differs from the prompt's own tokens is scored, as the harness lm-eval does: with blanks in the
    /// text and none at the end of the prompt nothing of the prompt is among it.
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
    /// As [`score`](Self::score); `EmptyPrompt` for a prompt or a text without tokens.
    pub fn score_continuations<S: AsRef<str>>(&self, prompt: &str, texts: &[S]) -> Result<Vec<Score>> {
        let before = self.prompt_ids_within(prompt.into(), &ChatOptions::default(), self.context_length())?;
        if before.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let mut session = self.session();
        session.next_logits(&before)?;
        let score = |text: &S| {
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
    /// The scores of `ids` from `first` on, of which this session holds fewer than `first`, with so many `bytes` of logits at once.
    fn score(&mut self, ids: &[u32], first: usize, bytes: usize) -> Result<Score> {
        self.check_ids(ids)?;
        let (held, model) = (self.len(), self.model().clone());
        let (compute, inputs) = (model.compute(), &ids[held..ids.len() - 1]);
        // Of a model that rotates by the length of the sequence (longrope) all rows are those of the whole.
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
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn scores_do_not_depend_on_how_many_rows_are_computed_at_once() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models");
        for name in ["qwen3.5/q4_k_m.gguf", "phi-3.5/q8_0.gguf"] {
            let model = Model::load(models.join(name)).unwrap();
            // Phi 3.5's original context, beyond which all rows rotate as those of a long sequence, ends among these.
            let ids: Vec<u32> = (0..300).map(|place| 3 + place * 7 % 200).collect();
            let row = size_of::<f32>() * model.spec().vocab;
            let by = |rows| model.session().score(&ids, 1, rows * row).unwrap();
            let whole = by(ids.len());
            assert_eq!(whole.logprobs.len(), ids.len() - 1);
            for rows in [1, 7, 64] {
                assert_eq!(by(rows), whole, "{name}, {rows} rows");
            }
        }
    }
}
