//! Why a text could not become ids.

/// Why a text could not become ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A step makes far more of the text than any published tokenizer does.
    #[error(
        "{step} makes more than {limit} bytes of a text of {bytes}; no known tokenizer does, so its file is damaged or hostile"
    )]
    TooLong {
        /// The step.
        step: &'static str,
        /// Bytes of the text.
        bytes: usize,
        /// Bytes that it may become.
        limit: usize,
    },
    /// A pattern takes far more steps at this text than any published one.
    #[error("the tokenizer's pattern {pattern:?} gives up on it: {reason}")]
    Pattern {
        /// The pattern, or its beginning.
        pattern: String,
        /// Why.
        reason: String,
    },
    /// A character has no token, and the vocabulary has not the one that is to stand for it.
    #[error("{text:?} has no token, and the tokenizer's {unknown:?} in its place is none")]
    NoToken {
        /// The character, or what begins with it.
        text: String,
        /// The token in its place, or the key that should name it.
        unknown: String,
    },
}
