//! How texts become vectors.

use crate::cancel::CancellationToken;
use model_factory_diagnostics::spec::Pooling;
use serde::{Deserialize, Serialize};

/// Options of [`Model::embeddings`](crate::Model::embeddings). What is not given is as the model's files say.
///
/// As JSON, what is left out has its default, and unknown names are refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
#[non_exhaustive]
pub struct EmbedOptions {
    /// Which of the tokens' vectors make that of the text. A model whose files do not say it embeds nothing without.
    pub pooling: Option<Pooling>,
    /// Whether vectors are brought to length one. Without evidence they stay as they come.
    pub normalize: Option<bool>,
    /// How many elements are kept, the first ones, before vectors are brought to length one: for models that were trained for it
    /// (Matryoshka embeddings, as Qwen3-Embedding), which no file says.
    pub dimensions: Option<usize>,
    /// A text in front of each, in place of the model's default prompt; an empty one for none.
    pub prompt: Option<String>,
    /// The name of the model's prompt in front of each text, such as `query`.
    pub prompt_name: Option<String>,
    /// Whether texts that are too long are cut, as sentence-transformers does, in place of an error: what is after the last token
    /// that fits is dropped, and the special token at the end stays.
    pub truncate: bool,
    /// Whether special tokens that a text spells become these tokens, as sentence-transformers does. Without it they are letters,
    /// and only those of a prompt are special.
    pub trust_special_tokens: bool,
    /// Gives up with `Cancelled` once it is cancelled. No part of the JSON.
    #[serde(skip)]
    pub cancel: Option<CancellationToken>,
}

crate::generate::setters! {
    EmbedOptions:
    /// With this pooling.
    pooling(pooling: Pooling) => pooling = Some(pooling);
    /// With vectors of length one, or as they come.
    normalize(normalize: bool) => normalize = Some(normalize);
    /// With the first so many elements.
    dimensions(dimensions: usize) => dimensions = Some(dimensions);
    /// With this text in front of each; an empty one for none.
    prompt(prompt: impl Into<String>) => prompt = Some(prompt.into());
    /// With the model's prompt of this name in front of each.
    prompt_name(name: impl Into<String>) => prompt_name = Some(name.into());
    /// Whether texts that are too long are cut.
    truncate(truncate: bool) => truncate = truncate;
    /// Whether special tokens that a text spells become these tokens.
    trust_special_tokens(trust: bool) => trust_special_tokens = trust;
    /// With an end when `cancel` is cancelled.
    cancel(cancel: &CancellationToken) => cancel = Some(cancel.clone());
}
