//! Why a model makes no vectors of texts.

use super::ErrorKind;

/// Why a model made no vectors of texts, or makes only those.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum EmbedError {
    /// The model has no output head (exit code 10).
    #[error(
        "the model's files have no output head, so it generates and scores no text: models of this kind make vectors of texts, by `Model::embeddings`"
    )]
    NoHead,
    /// Nothing says how the vectors of the tokens become that of the text (exit code 2).
    #[error(
        "no file of the model says which of the tokens' vectors make that of a text: {wanted}; name it by `EmbedOptions::pooling` if the model's makers say it elsewhere"
    )]
    NoPooling { wanted: &'static str },
    /// The files ask for something that this library does not compute (exit code 10).
    #[error(
        "{file} asks for {what}, which is not computed; of vectors `EmbedOptions::pooling` names another pooling, if one is known to fit"
    )]
    Unsupported { file: String, what: String },
    /// A text, by its index from 0, has more tokens than the model takes, special ones included (exit code 2).
    #[error(
        "text {index} has {tokens} tokens, the model takes {limit} ({why}); shorten it, or cut it where the call has an option `truncate`"
    )]
    TooLong { index: usize, tokens: usize, limit: usize, why: &'static str },
    /// The model has no prompt of this name (exit code 2).
    #[error("the model has no prompt named {name:?}, it has {known:?}")]
    Prompt { name: String, known: Vec<String> },
    /// A text, by its index from 0, has no tokens after the prompt, whose tokens the model's vectors leave out (exit code 2).
    #[error(
        "text {index} has no tokens after the prompt, which the model's vectors leave out (include_prompt false); give a longer text, or no prompt"
    )]
    OnlyPrompt { index: usize },
    /// The vocabulary has no such token (exit code 2).
    #[error("the vocabulary has no token {text:?}; spell it as the vocabulary's file does")]
    Token { text: String },
    /// The model has no classification head (exit code 10).
    #[error(
        "the model's files have no classification head, so it scores no labels: models whose class ends in ForSequenceClassification do"
    )]
    NoClassifier,
    /// The tokenizer does not say how two texts become one sequence (exit code 10).
    #[error(
        "the tokenizer's files do not say how a pair of texts becomes one sequence; give a prompt with {{query}} and {{document}} to `Reranker::classifier`"
    )]
    NoPairs,
    /// The model has several labels, and none says how well a document answers a query; the first ones are named (exit code 2).
    #[error(
        "the model scores the labels {labels:?}, and documents are ranked by one label, or by yes and no; `Model::label_logits_of_pairs` gives the scores of all"
    )]
    Labels { labels: Vec<String> },
    /// The vector of a text, by its index from 0, has elements that are NaN or infinite (exit code 1).
    #[error("the vector of text {index} is not finite: the weights or the file are damaged")]
    NotFinite { index: usize },
    /// The device gives no hidden states (exit code 13).
    #[error("GPUs give no vectors of texts yet; load the model on the processor")]
    Device,
}

impl EmbedError {
    /// The exit code that the examples document.
    pub(super) fn code(&self) -> u8 {
        match self {
            EmbedError::NotFinite { .. } => 1,
            EmbedError::NoHead | EmbedError::Unsupported { .. } | EmbedError::NoClassifier | EmbedError::NoPairs => 10,
            EmbedError::Device => 13,
            _ => 2,
        }
    }

    /// What a caller can do about it.
    pub(super) fn kind(&self) -> ErrorKind {
        match (self, self.code()) {
            (EmbedError::TooLong { .. }, _) => ErrorKind::TooLong,
            (_, 1) => ErrorKind::Internal,
            (_, 2) => ErrorKind::InvalidRequest,
            _ => ErrorKind::Unsupported,
        }
    }
}
