//! What a generation gives out with each token.

use crate::tools::{Part, ToolCall};

/// A step of a generation. Pieces put together are the whole text, but for what frames its channels.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Piece {
    /// The text that is complete with this token; empty while a character waits for its last byte, or what may become
    /// a stop string for the rest of it.
    pub text: String,
    /// The token, or `None` for text that was left over when the generation ended or where thought begins or ends. A special
    /// token has an id of which [`Tokenizer::is_special`](crate::tokenizer::Tokenizer::is_special) is true, and no text; an
    /// added one that is shown, such as `<tool_call>`, has the id that
    /// [`Tokenizer::added_token`](crate::tokenizer::Tokenizer::added_token) says. Spelled in ordinary letters the same marks are
    /// text of pieces with other ids.
    pub token: Option<u32>,
    /// How probable the token was, where `GenerateOptions::logprobs` asks for it.
    pub logprobs: Option<LogProbs>,
    /// Whether a reasoning model thinks this: it lies between `<think>` and `</think>` (Mistral: `[THINK]` and
    /// `[/THINK]`), or is one of these marks, so that all other pieces put together are the answer. Marks are told by
    /// their ids: a model without the two as added tokens of its vocabulary never thinks, whatever it spells. A prompt
    /// that ends with `<think>` and blanks, as the templates of such models do, begins with thought; where the template
    /// has the marks and the vocabulary has not (OLMo 3), a `</think>` that is spelled ends it.
    ///
    /// Channels are told apart likewise: `analysis` of gpt-oss and `thought` of Gemma 4 are thought, every other is the
    /// answer. What frames them (`<|channel|>`, `final`, `<|message|>`) is text of neither.
    pub thinking: bool,
    /// A call of a tool that is complete with this token, where [`ChatOptions::tools`](crate::ChatOptions::tools) has tools and
    /// the chat template tells the format of calls. How the model wrote it is no text then; what breaks the format is.
    pub tool_call: Option<ToolCall>,
}

impl Piece {
    /// A part of an answer, without a token.
    pub fn of(part: Part) -> Piece {
        let (text, tool_call) = match part {
            Part::Text(text) => (text, None),
            Part::Call(call) => (String::new(), Some(call)),
        };
        Piece { text, token: None, logprobs: None, thinking: false, tool_call }
    }
}

/// Natural logarithms of the model's own probabilities at one step: the softmax of all its logits, rows that pad the
/// vocabulary included, as `log_softmax` in torch has it, before penalties, temperature and what else the options change.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LogProbs {
    /// The logarithm for the token that was chosen.
    pub chosen: f64,
    /// The most likely tokens and their logarithms, in order; among equals the lower id comes first.
    pub top: Vec<(u32, f64)>,
}

impl LogProbs {
    /// The logarithm for the token that was chosen, and those for the most likely ones.
    pub fn new(chosen: f64, top: Vec<(u32, f64)>) -> LogProbs {
        LogProbs { chosen, top }
    }
}
