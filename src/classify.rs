//! Texts, or pairs of them -> scores of labels, by a model's classification head.

use crate::embed::{ClassifyOptions, Text, TextLimit};
use crate::error::{EmbedError, Error, Result};
use crate::logits::Logits;
use crate::model::Model;
use model_factory_diagnostics::spec::ClassifierWeights;
use std::ops::Range;

impl Model {
    /// The names of the labels that the model scores; none without a classification head.
    pub fn labels(&self) -> &[String] {
        self.spec().weights.classifier.as_ref().map(|head| &*head.labels).unwrap_or_default()
    }

    /// The scores of the [`labels`](Self::labels) for each of `texts`, `[texts, labels]`, as the head gives them (logits). Where
    /// one label holds, a softmax over them gives probabilities; where several may hold, a sigmoid of each does. They have the same
    /// bits in a batch as for the text by itself, and special tokens that a text spells are letters.
    ///
    /// ```no_run
    /// use model_factory::UnifiedModelFactory;
    ///
    /// let model = UnifiedModelFactory::load("models/distilled-sentiment")?;
    /// for scores in model.label_logits(&["I liked it.", "Not for me."])?.rows() {
    ///     println!("{:?}", model.labels().iter().zip(scores).collect::<Vec<_>>());
    /// }
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Embed` without a head, or for a text that is too long; `Encode`; `CacheBudget` and `OutOfMemory`.
    pub fn label_logits(&self, texts: &[impl AsRef<str>]) -> Result<Logits> {
        self.label_logits_with(texts, &ClassifyOptions::default())
    }

    /// Like [`label_logits`](Self::label_logits), with options.
    ///
    /// # Errors
    /// The errors of [`label_logits`](Self::label_logits), `Adapter` for one of another model, `Option` for a scale that is not finite,
    /// and `Cancelled`.
    pub fn label_logits_with(&self, texts: &[impl AsRef<str>], options: &ClassifyOptions) -> Result<Logits> {
        let text = |index: usize, limit| self.text(index, texts[index].as_ref(), &[], limit, false);
        self.scores_of(texts.len(), options, text)
    }

    /// Like [`label_logits`](Self::label_logits), for pairs of texts, such as a premise and a hypothesis.
    ///
    /// # Errors
    /// The errors of [`label_logits`](Self::label_logits), and `Embed` where the tokenizer does not say how to join a pair.
    pub fn label_logits_of_pairs(&self, pairs: &[(impl AsRef<str>, impl AsRef<str>)]) -> Result<Logits> {
        self.label_logits_of_pairs_with(pairs, &ClassifyOptions::default())
    }

    /// Like [`label_logits_of_pairs`](Self::label_logits_of_pairs), with options.
    ///
    /// # Errors
    /// The errors of [`label_logits_of_pairs`](Self::label_logits_of_pairs) and of [`label_logits_with`](Self::label_logits_with).
    pub fn label_logits_of_pairs_with(
        &self,
        pairs: &[(impl AsRef<str>, impl AsRef<str>)],
        options: &ClassifyOptions,
    ) -> Result<Logits> {
        self.scores_of(pairs.len(), options, |index, limit| {
            let (first, second) = &pairs[index];
            self.pair(index, [first.as_ref(), second.as_ref()], limit, false)
        })
    }

    fn scores_of(
        &self,
        count: usize,
        options: &ClassifyOptions,
        text: impl Fn(usize, TextLimit) -> Result<Text>,
    ) -> Result<Logits> {
        let limit = self.text_limit();
        let texts = (0..count).map(|index| text(index, limit)).collect::<Result<Vec<_>>>()?;
        Ok(Logits::new(self.label_scores(texts, options)?.concat(), self.labels().len()))
    }

    /// The classification head.
    ///
    /// # Errors
    /// `Embed` without one.
    pub(crate) fn classifier(&self) -> Result<&ClassifierWeights> {
        self.spec().weights.classifier.as_deref().ok_or_else(|| EmbedError::NoClassifier.into())
    }

    /// The text at `index` with the tokens around it, cut where it is too long and `cut` is wanted; special tokens are only in
    /// the spans of `own`.
    ///
    /// # Errors
    /// `Embed` for one that is too long, `EmptyPrompt`, `Encode`.
    pub(crate) fn text(
        &self,
        index: usize,
        text: &str,
        own: &[Range<usize>],
        (limit, why): TextLimit,
        cut: bool,
    ) -> Result<Text> {
        let ids = self.tokenizer().encode_text(text, own, limit, cut)?;
        let ids = ids.map_err(|tokens| EmbedError::TooLong { index, tokens, limit, why })?;
        if ids.is_empty() { Err(Error::EmptyPrompt) } else { Ok(Text { ids, second_text: None, skipped: 0 }) }
    }

    /// The pair at `index`, of untrusted texts.
    ///
    /// # Errors
    /// The errors of [`text`](Self::text), and `Embed` where the tokenizer makes no pairs.
    pub(crate) fn pair(&self, index: usize, texts: [&str; 2], (limit, why): TextLimit, cut: bool) -> Result<Text> {
        let pair = self.tokenizer().encode_pair_within(texts, limit, cut)?.ok_or(EmbedError::NoPairs)?;
        let (ids, second_text) = pair.map_err(|tokens| EmbedError::TooLong { index, tokens, limit, why })?;
        let types = self.spec().weights.input.as_ref().and_then(|input| input.token_types.as_ref());
        // A model that does not distinguish token types has one row for all.
        let second_text = second_text.filter(|_| types.is_some_and(|types| types.weight.shape[0] > 1));
        if ids.is_empty() { Err(Error::EmptyPrompt) } else { Ok(Text { ids, second_text, skipped: 0 }) }
    }

    /// The scores of the labels of each of `texts`, in their order.
    ///
    /// # Errors
    /// `Embed` without a head, those of `options`, and the errors of the steps.
    pub(crate) fn label_scores(&self, texts: Vec<Text>, options: &ClassifyOptions) -> Result<Vec<Vec<f32>>> {
        let (pooling, adapters) = (self.classifier()?.pooling, self.adapters(&options.adapters)?);
        let cancel = options.cancel.clone().unwrap_or_default();
        let mut all = vec![Vec::new(); texts.len()];
        self.compute_texts(texts, &[pooling], &adapters, &cancel, |index, pooled| {
            let pooled = pooled.iter().map(|x| *x as f32).collect();
            let scores = self.compute().classify(pooled)?.ok_or(EmbedError::NoClassifier)?;
            if scores.iter().any(|score| !score.is_finite()) {
                return Err(EmbedError::NotFinite { index }.into());
            }
            all[index] = scores;
            Ok(())
        })?;
        Ok(all)
    }
}
