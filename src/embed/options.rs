//! How texts become vectors.

use crate::adapter::Adapter;
use crate::cancel::CancellationToken;
use model_factory_diagnostics::spec::Pooling;
use serde::{Deserialize, Serialize};

/// Options of [`Model::embeddings`](crate::Model::embeddings). What is not given comes from the model's files.
///
/// In JSON, a missing option has its default, and an unknown name is an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
#[non_exhaustive]
pub struct EmbedOptions {
    /// How the vectors of the tokens become that of the text. Required where the model's files do not say it.
    pub pooling: Option<Pooling>,
    /// Whether vectors are normalized to length one. Where neither this nor a file says it, they are not.
    pub normalize: Option<bool>,
    /// How many elements are kept, the first ones, before vectors are brought to length one: for models that were trained for it
    /// (Matryoshka embeddings, as Qwen3-Embedding), which no file says.
    pub dimensions: Option<usize>,
    /// A text in front of each text, in place of the model's default prompt. An empty one means no prompt.
    pub prompt: Option<String>,
    /// The name of the model's prompt in front of each text, such as `query`.
    pub prompt_name: Option<String>,
    /// Whether texts that are too long are cut, as sentence-transformers does, in place of an error: what is after the last token
    /// that fits is dropped, and the special token at the end stays.
    pub truncate: bool,
    /// Whether special tokens that a text spells become these tokens, as sentence-transformers does. Without it they are letters,
    /// and only those of a prompt are special.
    pub trust_special_tokens: bool,
    /// Gives up with `Cancelled` once it is cancelled. It is not part of the JSON.
    #[serde(skip)]
    pub cancel: Option<CancellationToken>,
    /// What is added to the products of the model's weights: adapters, each with a scale, in the order of their sums. They are not part of
    /// the JSON.
    #[serde(skip)]
    pub adapters: Vec<(Adapter, f64)>,
}

impl EmbedOptions {
    /// Adds `adapter`, multiplied by `scale`, to those that texts are computed with: 1 is as it was trained.
    pub fn adapter(mut self, adapter: &Adapter, scale: f64) -> Self {
        self.adapters.push((adapter.clone(), scale));
        self
    }
}

/// Options of [`Model::label_logits_with`](crate::Model::label_logits_with) and [`Model::rank_with`](crate::Model::rank_with).
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct ClassifyOptions {
    /// What is added to the products of the model's weights: adapters, each with a scale, in the order of their sums.
    pub adapters: Vec<(Adapter, f64)>,
    /// Gives up with `Cancelled` once it is cancelled.
    pub cancel: Option<CancellationToken>,
}

impl ClassifyOptions {
    /// Adds `adapter`, multiplied by `scale`, to those that texts are computed with: 1 is as it was trained.
    pub fn adapter(mut self, adapter: &Adapter, scale: f64) -> Self {
        self.adapters.push((adapter.clone(), scale));
        self
    }
}

crate::generate::setters! {
    ClassifyOptions, ClassifyOptions:
    cancel(cancel: &CancellationToken) => cancel = Some(cancel.clone());
}

crate::generate::setters! {
    EmbedOptions, EmbedOptions:
    pooling(pooling: Pooling) => pooling = Some(pooling);
    normalize(normalize: bool) => normalize = Some(normalize);
    dimensions(dimensions: usize) => dimensions = Some(dimensions);
    prompt(prompt: impl Into<String>) => prompt = Some(prompt.into());
    prompt_name(name: impl Into<String>) => prompt_name = Some(name.into());
    truncate(truncate: bool) => truncate = truncate;
    trust_special_tokens(trust: bool) => trust_special_tokens = trust;
    cancel(cancel: &CancellationToken) => cancel = Some(cancel.clone());
}
