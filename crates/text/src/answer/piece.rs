//! What a generation returns for each token.

use crate::tools::ToolCall;

/// A step of a generation. All pieces together are the whole text, except for what frames its channels.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Piece {
    /// The text that is complete with this token. It is empty while a character waits for its last byte, or while a possible
    /// stop string waits for its rest.
    pub text: String,
    /// The token, or `None` for text that was left over when the generation ended, or where a thought begins or ends. A special
    /// token has an id for which [`Tokenizer::is_special`](crate::tokenizer::Tokenizer::is_special) is true, and no text; a
    /// visible added token, such as `<tool_call>`, has the id given by
    /// [`Tokenizer::added_token`](crate::tokenizer::Tokenizer::added_token). If the model spells such a mark in letters, it is
    /// text of pieces with other ids.
    pub token: Option<u32>,
    /// How probable the token was, where `GenerateOptions::logprobs` asks for it.
    pub logprobs: Option<LogProbs>,
    /// Whether this is a thought of a reasoning model: it lies between `<think>` and `</think>` (Mistral: `[THINK]` and
    /// `[/THINK]`), or is one of these marks, so that all other pieces together are the answer. Marks are recognized by
    /// their ids: a model without the two as added tokens of its vocabulary never thinks, whatever it spells. A prompt
    /// that ends with `<think>` and blanks, as the templates of such models do, begins with a thought. If only the template
    /// has the marks and the vocabulary does not (OLMo 3), a `</think>` in letters ends it.
    ///
    /// Channels are treated likewise: `analysis` of gpt-oss and `thought` of Gemma 4 are thoughts, every other channel is the
    /// answer. What frames them (`<|channel|>`, `final`, `<|message|>`) belongs to neither text.
    pub thinking: bool,
    /// A tool call that is complete with this token, if [`ChatOptions::tools`](crate::ChatOptions::tools) has tools and
    /// the chat template shows the format of calls. The text of a call is then not in `text`, unless it breaks the format.
    pub tool_call: Option<ToolCall>,
    /// How probable the model found each token of the prompt after the first, where `GenerateOptions::prompt_logprobs` asks for
    /// it. It comes once, in a piece of its own before all others.
    pub prompt_logprobs: Option<Vec<LogProbs>>,
}

/// Natural log-probabilities of the model at one step, before penalties, temperature and all other options: by the softmax
/// of all its logits, including rows that pad the vocabulary, as given by torch's `log_softmax`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LogProbs {
    /// The log-probability of the token that was chosen, or that the prompt has.
    pub chosen: f64,
    /// The most likely tokens and their log-probabilities, in order; on a tie the lower id comes first.
    pub top: Vec<(u32, f64)>,
}

impl LogProbs {
    /// The log-probability of the token that was chosen, and those of the most likely ones.
    pub fn new(chosen: f64, top: Vec<(u32, f64)>) -> LogProbs {
        LogProbs { chosen, top }
    }
}
