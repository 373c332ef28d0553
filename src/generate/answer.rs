//! Pieces -> a whole answer, apart from what was thought, with its calls of tools.

use super::{Generation, Piece, Step};
use crate::chat::Message;
use crate::error::Result;
use crate::memory;
use crate::tools::ToolCall;

/// What a model said, once it is whole.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The answer.
    pub text: String,
    /// What was thought before it, without its marks and the blanks around it; empty where nothing was.
    pub thinking: String,
    /// The tools that it calls.
    pub tool_calls: Vec<ToolCall>,
    /// The logarithm of each token's probability, thought included, where
    /// [`GenerateOptions::logprobs`](super::GenerateOptions::logprobs) asks for them.
    pub logprobs: Vec<f64>,
    /// Whether a message with calls has thought or content, and not both (gpt-oss).
    either: bool,
}

impl Answer {
    /// The mean logarithm of its tokens' probabilities; negative infinity where they are not known.
    pub fn mean_logprob(&self) -> f64 {
        match self.logprobs.len() {
            0 => f64::NEG_INFINITY,
            tokens => self.logprobs.iter().sum::<f64>() / tokens as f64,
        }
    }
}

/// Marks of a thought.
const MARKS: [(&str, &str); 2] = [("<think>", "</think>"), ("[THINK]", "[/THINK]")];

impl<S: Step> Generation<S> {
    /// Generates to the end and returns the answer, apart from what was thought.
    ///
    /// # Errors
    /// The first error of any step.
    pub fn answer(&mut self) -> Result<Answer> {
        let mut answer = Answer { either: self.state.thinking.has_messages(), ..Answer::default() };
        for piece in self {
            let Piece { text, thinking, tool_call, logprobs, .. } = piece?;
            answer.logprobs.extend(logprobs.map(|of| of.chosen));
            let to = if thinking { &mut answer.thinking } else { &mut answer.text };
            memory::append(to, &text, "the text of a generation")?;
            answer.tool_calls.extend(tool_call);
        }
        let mut thought = answer.thinking.trim();
        for (open, close) in MARKS {
            thought = thought.strip_prefix(open).unwrap_or(thought);
            thought = thought.strip_suffix(close).unwrap_or(thought).trim();
        }
        answer.thinking = thought.to_owned();
        Ok(answer)
    }
}

/// The turn of the assistant, for the next prompt of the conversation.
impl From<Answer> for Message {
    fn from(Answer { text, thinking, tool_calls, either, .. }: Answer) -> Message {
        let (text, thinking) = match either && !tool_calls.is_empty() && !thinking.is_empty() && !text.is_empty() {
            true => (String::new(), [thinking, text].join("\n\n")),
            false => (text, thinking),
        };
        let mut message = if tool_calls.is_empty() { Message::assistant("") } else { Message::calls(&tool_calls) };
        message.content = Some(text);
        if thinking.is_empty() { message } else { message.field("reasoning_content", thinking) }
    }
}
