//! How texts become vectors.

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
