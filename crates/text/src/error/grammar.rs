//! Why an answer cannot be held to a grammar.

/// A grammar that no answer can be held to: impossible, not supported, too large or too hard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// The grammar has more of something than is allowed.
    #[error("{what}: {found} {unit}, expected at most {limit}")]
    TooLarge {
        /// Which grammar.
        what: &'static str,
        /// What is counted: bytes, levels, texts.
        unit: &'static str,
        /// How many there are; those beyond the limit may not be counted.
        found: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// A part of a JSON schema cannot be kept, or contradicts another.
    #[error("JSON schema, at {}: {reason}", if .place.is_empty() { "its root" } else { .place })]
    Schema {
        /// The JSON pointer of that part: `/properties/age`; empty for the whole.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A regular expression or a Lark grammar is malformed, unsupported or matches nothing.
    #[error("{what}: {reason}")]
    Malformed {
        /// Which grammar.
        what: &'static str,
        /// What is wrong with it, with line and column where they are known.
        reason: String,
    },
    /// There are no texts to choose among, or one of them is empty.
    #[error("{}", match .index {
        Some(index) => format!("choice {index} is empty, expected at least one character"),
        None => "there is nothing to choose among, expected at least one text".into(),
    })]
    EmptyChoice {
        /// The index of the empty text, from 0; `None` if there are no texts.
        index: Option<usize>,
    },
    /// The tokens of the vocabulary cannot spell what the grammar requires.
    #[error(
        "no token of the vocabulary continues {text:?} as the grammar wants; take a model whose vocabulary has every byte"
    )]
    NoToken {
        /// The end of the answer so far.
        text: String,
    },
    /// Finding the allowed tokens takes more work than one step may.
    #[error("the grammar is too hard after {text:?}: {reason}; bound its repetitions, or make its parts differ sooner")]
    TooHard {
        /// The end of the answer so far.
        text: String,
        /// Which limit was reached.
        reason: String,
    },
    /// The grammars of other running answers leave too little of the memory for grammars.
    #[error(
        "the grammar takes {bytes} bytes, and those of other answers leave less of {limit}; try again when some have ended"
    )]
    Memory {
        /// The bytes that this grammar takes.
        bytes: u64,
        /// The bytes that all grammars of a model may take.
        limit: u64,
    },
    /// A token was given that is not allowed next.
    #[error("token {token} may not come next by the grammar")]
    NotAllowed {
        /// The token.
        token: u32,
    },
    /// The vocabulary is too large to hold its answers to a grammar.
    #[error(
        "no answer of this vocabulary can be held to a grammar: its tokens have {nodes} beginnings, expected at most {limit}"
    )]
    Vocabulary {
        /// The number of different prefixes of tokens.
        nodes: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// The answer ended before it was complete: `max_tokens` or the context was too small, or a stop string came.
    #[error("the answer ended by {finish} before it was complete: {text:?}")]
    Incomplete {
        /// Why it ended.
        finish: String,
        /// The answer.
        text: String,
    },
    /// The answer matches the schema, but is not a value of the type.
    #[error("the answer is no value of the type: {reason}: {text:?}")]
    Value {
        /// Why it is not.
        reason: String,
        /// The answer.
        text: String,
    },
}
