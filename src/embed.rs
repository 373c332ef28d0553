//! Texts -> vectors: many texts in one pass over the weights, and one vector of the hidden states of each.

mod options;
mod pass;

pub use crate::rank::Reranker;

use crate::error::{EmbedError, Error, Result};
use crate::generate::in_ranges;
use crate::memory;
use crate::model::Model;
pub use model_factory_diagnostics::spec::Pooling;
use model_factory_diagnostics::spec::{EmbeddingSpec, Embeds};
pub use options::{ClassifyOptions, EmbedOptions};
pub(crate) use pass::{Text, TextLimit};
use std::slice::ChunksExact;

/// The vectors of texts, F32 `[texts, dimensions]`.
///
/// With the feature `candle` they become a `Tensor` without a copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    numbers: Vec<f32>,
    dimensions: usize,
    tokens: usize,
}

impl Embeddings {
    /// The vector of each text, in their order.
    pub fn vectors(&self) -> ChunksExact<'_, f32> {
        self.numbers.chunks_exact(self.dimensions)
    }

    /// The number of elements of a vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The number of tokens that were computed.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// All numbers, vector after vector.
    pub fn into_vec(self) -> Vec<f32> {
        self.numbers
    }
}

impl Model {
    /// The vectors of `texts`. Pooling, length and prompt come from the model's files where the options leave them open.
    /// A text has the same bits in a batch as by itself.
    ///
    /// ```no_run
    /// use model_factory::{EmbedOptions, UnifiedModelFactory};
    ///
    /// let model = UnifiedModelFactory::load("models/all-MiniLM-L6-v2")?;
    /// let embeddings = model.embeddings(&["A cat sits on the mat.", "Two dogs run."], &EmbedOptions::default())?;
    /// for vector in embeddings.vectors() {
    ///     assert_eq!(vector.len(), 384);
    /// }
    /// # Ok::<(), model_factory::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Embed` where nothing says the pooling, a text is too long, or there is no such prompt; `Option` for dimensions out of
    /// range or a scale that is not finite; `Adapter` for one of another model; `EmptyPrompt` for a text without a token; `Encode`; `CacheBudget` and `OutOfMemory`; `Cancelled`.
    pub fn embeddings(&self, texts: &[impl AsRef<str>], options: &EmbedOptions) -> Result<Embeddings> {
        self.dimensions(options)?;
        let said = self.spec().embeds.by();
        let prompt = prompt(said, options)?;
        let limit = self.text_limit();
        let cancel = options.cancel.clone().unwrap_or_default();
        let skipped = if said.is_some_and(|said| !said.include_prompt) { self.prompt_tokens(prompt)? } else { 0 };
        let mut encoded = memory::reserved(texts.len(), "the texts")?;
        for (index, text) in texts.iter().enumerate() {
            cancel.check()?;
            let text = [prompt, text.as_ref()].concat();
            let trusted = 0..if options.trust_special_tokens { text.len() } else { prompt.len() };
            let own = if trusted.is_empty() { &[] } else { std::slice::from_ref(&trusted) };
            let text = Text { skipped, ..self.text(index, &text, own, limit, options.truncate)? };
            if text.ids.len() <= skipped {
                return Err(EmbedError::OnlyPrompt { index }.into());
            }
            encoded.push(text);
        }
        self.vectors(encoded, options)
    }

    /// The vectors of texts that are given as ids, which are computed as they are: without a prompt and without special tokens that
    /// are not among them.
    ///
    /// # Errors
    /// The errors of [`embeddings`](Self::embeddings), and `TokenOutOfVocabulary`.
    pub fn embeddings_of_ids(&self, texts: &[impl AsRef<[u32]>], options: &EmbedOptions) -> Result<Embeddings> {
        self.dimensions(options)?;
        let ((limit, why), vocab) = (self.text_limit(), self.spec().vocab);
        let text = |(index, ids): (usize, &[u32])| match (ids.len(), ids.iter().find(|id| **id as usize >= vocab)) {
            (0, _) => Err(Error::EmptyPrompt),
            (tokens, _) if tokens > limit => Err(EmbedError::TooLong { index, tokens, limit, why }.into()),
            (_, Some(id)) => Err(Error::TokenOutOfVocabulary { id: *id, vocab }),
            (_, None) => Ok(Text { ids: ids.to_vec(), second_text: None, skipped: 0 }),
        };
        let texts = texts.iter().map(AsRef::as_ref).enumerate().map(text).collect::<Result<_>>()?;
        self.vectors(texts, options)
    }

    /// The elements of a vector that `options` ask for.
    fn dimensions(&self, options: &EmbedOptions) -> Result<usize> {
        let width = self.vector_width(self.pooling(options)?)?;
        let dimensions = options.dimensions.unwrap_or(width);
        let expected = "between 1 and the width of the model's vectors";
        in_ranges([("dimensions", Some(dimensions as f64), 1.0..=width as f64, expected)])?;
        Ok(dimensions)
    }

    /// The vectors of `texts`.
    fn vectors(&self, texts: Vec<Text>, options: &EmbedOptions) -> Result<Embeddings> {
        let (said, pooling, dimensions) = (self.spec().embeds.by(), self.pooling(options)?, self.dimensions(options)?);
        let (adapters, cancel) = (self.adapters(&options.adapters)?, options.cancel.clone().unwrap_or_default());
        let tokens = texts.iter().map(|text| text.ids.len()).sum();
        let normalize = options.normalize.unwrap_or(said.is_some_and(|said| said.normalize));
        let mut numbers = memory::zeros(texts.len() * dimensions, "vectors of texts")?;
        self.compute_texts(texts, pooling, &adapters, &cancel, |index, pooled| {
            let vector = &mut numbers[index * dimensions..][..dimensions];
            let dense: Vec<f64> = match self.spec().weights.dense.is_empty() {
                true => Vec::new(),
                false => {
                    let made = self.compute().dense(pooled.iter().map(|x| *x as f32).collect())?;
                    made.into_iter().map(f64::from).collect()
                }
            };
            let pooled = if dense.is_empty() { &pooled[..dimensions] } else { &dense[..dimensions] };
            let length = pooled.iter().map(|x| x * x).sum::<f64>().sqrt();
            if !length.is_finite() {
                return Err(EmbedError::NotFinite { index }.into());
            }
            let factor = if normalize { 1.0 / length.max(1e-12) } else { 1.0 };
            vector.iter_mut().zip(pooled).for_each(|(to, x)| *to = (x * factor) as f32);
            Ok(())
        })?;
        Ok(Embeddings { numbers, dimensions, tokens })
    }

    /// Elements of a vector by `pooling`.
    fn vector_width(&self, pooling: &[Pooling]) -> Result<usize> {
        let (layers, pooled) = (&self.spec().weights.dense, pooling.len() * self.spec().hidden);
        let Some(first) = layers.first() else { return Ok(pooled) };
        if first.linear.weight.shape[1] as usize != pooled {
            let (file, what) = ("modules.json".into(), "a dense layer over the vectors of other poolings".into());
            return Err(EmbedError::Unsupported { file, what }.into());
        }
        Ok(self.spec().vector_width())
    }

    /// The tokens of a text that are those of `prompt`, as sentence-transformers counts them: all that it has by itself, without a
    /// special token at the end.
    fn prompt_tokens(&self, prompt: &str) -> Result<usize> {
        if prompt.is_empty() {
            return Ok(0);
        }
        let ids = self.tokenizer().encode(prompt, true)?;
        Ok(ids.len() - usize::from(ids.last().is_some_and(|last| self.tokenizer().is_special(*last))))
    }

    /// How the vectors of the tokens become the vector of the text.
    fn pooling<'m>(&'m self, options: &'m EmbedOptions) -> Result<&'m [Pooling]> {
        match (&options.pooling, &self.spec().embeds) {
            (Some(given), _) => Ok(std::slice::from_ref(given)),
            (None, Embeds::By(said)) => Ok(&said.pooling),
            (None, Embeds::Unsupported { what, source }) => {
                Err(EmbedError::Unsupported { file: source.clone(), what: what.clone() }.into())
            }
            (None, Embeds::NotSaid) => {
                let wanted = if self.spec().quantization.starts_with("GGUF") {
                    "a GGUF file has a key pooling_type for it"
                } else {
                    "modules.json and 1_Pooling/config.json of its repository do"
                };
                Err(EmbedError::NoPooling { wanted }.into())
            }
        }
    }

    /// The limit on the length of a text.
    pub(crate) fn text_limit(&self) -> TextLimit {
        match self.spec().text_limit.filter(|limit| limit.tokens < self.context_length()) {
            Some(limit) => (limit.tokens, limit.key),
            None => (self.context_length(), "the context"),
        }
    }
}

/// The prompt that is put in front of texts.
fn prompt<'p>(said: Option<&'p EmbeddingSpec>, options: &'p EmbedOptions) -> Result<&'p str> {
    let named = |name: &String| {
        let prompts = said.map(|said| &said.prompts);
        let known = || prompts.into_iter().flat_map(|prompts| prompts.keys().cloned()).collect();
        let prompt = prompts.and_then(|prompts| prompts.get(name)).map(String::as_str);
        prompt.ok_or_else(|| EmbedError::Prompt { name: name.clone(), known: known() })
    };
    let default = said.and_then(|said| said.default_prompt.as_ref());
    Ok(match (&options.prompt, &options.prompt_name, default) {
        (Some(prompt), ..) => prompt,
        (None, Some(name), _) | (None, None, Some(name)) => named(name)?,
        (None, None, None) => "",
    })
}
