//! Why an answer cannot be held to a grammar.

/// A grammar that no answer can be held to: impossible, not supported, too large or too hard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum GrammarError {
    /// The grammar has more bytes, levels or texts than are allowed. Those beyond the limit may not be counted.
    #[error("{what}: {found} {unit}, expected at most {limit}")]
    TooLarge { what: &'static str, unit: &'static str, found: usize, limit: usize },
    /// A part of a JSON schema, by its JSON pointer, cannot be kept, or contradicts another.
    #[error("JSON schema, at {}: {reason}", if .place.is_empty() { "its root" } else { .place })]
    Schema { place: String, reason: String },
    /// A regular expression or a Lark grammar is malformed, unsupported or matches nothing.
    #[error("{what}: {reason}")]
    Malformed { what: &'static str, reason: String },
    /// There are no texts to choose among, or the one of this index, from 0, is empty.
    #[error("{}", match .index {
        Some(index) => format!("choice {index} is empty, expected at least one character"),
        None => "there is nothing to choose among, expected at least one text".into(),
    })]
    EmptyChoice { index: Option<usize> },
    /// The tokens of the vocabulary cannot spell what the grammar requires after this end of the answer.
    #[error(
        "no token of the vocabulary continues {text:?} as the grammar wants; take a model whose vocabulary has every byte"
    )]
    NoToken { text: String },
    /// Finding the allowed tokens after this end of the answer takes more work than one step may.
    #[error("the grammar is too hard after {text:?}: {reason}; bound its repetitions, or make its parts differ sooner")]
    TooHard { text: String, reason: String },
    /// The grammars of other running answers leave too little of the memory for grammars.
    #[error(
        "the grammar takes {bytes} bytes, and those of other answers leave less of {limit}; try again when some have ended"
    )]
    Memory { bytes: u64, limit: u64 },
    /// A token was given that is not allowed next.
    #[error("token {token} may not come next by the grammar")]
    NotAllowed { token: u32 },
    /// The vocabulary has too many different prefixes of tokens to hold its answers to a grammar.
    #[error(
        "no answer of this vocabulary can be held to a grammar: its tokens have {nodes} beginnings, expected at most {limit}"
    )]
    Vocabulary { nodes: usize, limit: usize },
    /// The answer ended before it was complete: `max_tokens` or the context was too small, or a stop string came.
    #[error("the answer ended by {finish} before it was complete: {text:?}")]
    Incomplete { finish: String, text: String },
    /// The answer matches the schema, but is not a value of the type.
    #[error("the answer is no value of the type: {reason}: {text:?}")]
    Value { reason: String, text: String },
}
