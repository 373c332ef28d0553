//! How texts become vectors.

use crate::cancel::CancellationToken;
use model_factory_diagnostics::spec::Pooling;

/// Options of [`Model::embeddings`](crate::Model::embeddings). What is not given is as the model's files say.
#[derive(Clone, Debug, Default)]
pub struct EmbedOptions {
    pub(super) pooling: Option<Pooling>,
    pub(super) normalize: Option<bool>,
    pub(super) dimensions: Option<usize>,
    pub(super) prompt: Option<String>,
    pub(super) prompt_name: Option<String>,
    pub(super) truncate: bool,
    pub(super) trust_special_tokens: bool,
    pub(super) cancel: CancellationToken,
}

impl EmbedOptions {
    /// Which of the tokens' vectors make that of the text. A model whose files do not say it embeds nothing without.
    pub fn pooling(mut self, pooling: Pooling) -> Self {
        self.pooling = Some(pooling);
        self
    }

    /// Whether vectors are brought to length one. Without evidence they stay as they come.
    pub fn normalize(mut self, normalize: bool) -> Self {
        self.normalize = Some(normalize);
        self
    }

    /// Keeps the first so many elements, before vectors are brought to length one: for models that were trained for it
    /// (Matryoshka embeddings, as Qwen3-Embedding), which no file says.
    pub fn dimensions(mut self, dimensions: usize) -> Self {
        self.dimensions = Some(dimensions);
        self
    }

    /// A text in front of each, in place of the model's default prompt; an empty one for none.
    pub fn prompt(mut self, prompt: impl Into<String>) -> Self {
        self.prompt = Some(prompt.into());
        self
    }

    /// The model's prompt of this name in front of each text, such as `query`.
    pub fn prompt_name(mut self, name: impl Into<String>) -> Self {
        self.prompt_name = Some(name.into());
        self
    }

    /// Cuts texts that are too long, as sentence-transformers does, in place of an error: what is behind the last token that
    /// fits is dropped, and the special token at the end stays.
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Lets special tokens that a text spells become these tokens, as sentence-transformers does. Without it they are letters,
    /// and those of a prompt alone are special.
    pub fn trust_special_tokens(mut self, trust: bool) -> Self {
        self.trust_special_tokens = trust;
        self
    }

    /// Gives up with `Cancelled` once `cancel` is cancelled.
    pub fn cancel(mut self, cancel: &CancellationToken) -> Self {
        self.cancel = cancel.clone();
        self
    }
}
