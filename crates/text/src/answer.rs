//! Pieces -> a whole answer: its text, its thoughts and its tool calls.

mod budget;
mod piece;
mod stop;
mod thinking;

use crate::chat::Message;
use crate::error::{Error, Result};
use crate::tools::ToolCall;
use model_factory_dtypes::memory;

pub use piece::{LogProbs, Piece};
pub use stop::{FinishReason, StopStrings, StopTokens};
pub(crate) use thinking::MARKS;
pub use thinking::{Thinking, TokenClass};

/// What a model said, once it is complete.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The text of the answer, without the thoughts.
    pub text: String,
    /// The thoughts before the text, without their marks and the blanks around them; empty if there are none.
    pub thinking: String,
    /// The tool calls of the answer.
    pub tool_calls: Vec<ToolCall>,
    /// The log-probability of each token, including thoughts, if
    /// `GenerateOptions::logprobs` asks for them.
    pub logprobs: Vec<f64>,
    /// How probable the model found each token of the prompt after the first, if `GenerateOptions::prompt_logprobs` asks for it.
    pub prompt_logprobs: Vec<LogProbs>,
    /// Whether a message with calls has either thoughts or content, but not both (gpt-oss).
    either: bool,
}

impl Answer {
    /// The answer of all `pieces`. If `either`, a message with calls has either thoughts or content, but not both (gpt-oss).
    ///
    /// # Errors
    /// The first error of the pieces, or `OutOfMemory`.
    pub fn of<E: From<Error>>(pieces: impl Iterator<Item = Result<Piece, E>>, either: bool) -> Result<Answer, E> {
        let mut answer = Answer { either, ..Answer::default() };
        let mut reader = AnswerReader::default();
        for piece in pieces {
            let mut piece = piece?;
            answer.prompt_logprobs.extend(piece.prompt_logprobs.take().into_iter().flatten());
            answer.logprobs.extend(piece.logprobs.take().map(|of| of.chosen));
            answer.add(reader.push(piece))?;
        }
        answer.add(reader.flush())?;
        Ok(answer)
    }

    /// The mean log-probability of the tokens; negative infinity if it is not known.
    pub fn mean_logprob(&self) -> f64 {
        match self.logprobs.len() {
            0 => f64::NEG_INFINITY,
            tokens => self.logprobs.iter().sum::<f64>() / tokens as f64,
        }
    }

    fn add(&mut self, delta: AnswerDelta) -> Result<()> {
        memory::append(&mut self.thinking, &delta.thinking, "the text of a generation")?;
        memory::append(&mut self.text, &delta.text, "the text of a generation")?;
        self.tool_calls.extend(delta.tool_call);
        Ok(())
    }
}

/// What a piece adds to an answer.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AnswerDelta {
    /// What the piece adds to the thoughts, which come before the text.
    pub thinking: String,
    /// What the piece adds to the text.
    pub text: String,
    /// The tool call of the piece.
    pub tool_call: Option<ToolCall>,
}

/// Pieces -> an [`Answer`] as it comes. Thoughts have no marks and no blanks around them from the first delta on, so
/// text that may become a mark is held back until the rest of it comes.
///
/// ```
/// use model_factory_text::answer::{AnswerReader, Piece};
///
/// let (mut thought, mut said) = (Piece::default(), Piece::default());
/// (thought.text, thought.thinking) = ("<think>It is far.</think>".into(), true);
/// said.text = "No.".into();
/// let mut reader = AnswerReader::default();
/// let mut deltas = vec![reader.push(thought), reader.push(said)];
/// deltas.push(reader.flush());
/// let texts: Vec<_> = deltas.iter().map(|delta| (delta.thinking.as_str(), delta.text.as_str())).collect();
/// assert_eq!(texts, [("It is far.", ""), ("", "No."), ("", "")]);
/// ```
#[derive(Debug, Default)]
pub struct AnswerReader {
    /// The end of the thought so far that may be blanks or a mark.
    held: String,
    /// Whether the thought has begun, so that no opening mark can follow.
    begun: bool,
    /// Whether there was an earlier thought.
    again: bool,
}

impl AnswerReader {
    /// What `piece` adds to the answer.
    pub fn push(&mut self, piece: Piece) -> AnswerDelta {
        if piece.thinking {
            self.held.push_str(&piece.text);
            return AnswerDelta { thinking: self.take(false), ..AnswerDelta::default() };
        }
        let ends = !piece.text.is_empty() || piece.tool_call.is_some();
        let thinking = if ends { self.end() } else { String::new() };
        AnswerDelta { thinking, text: piece.text, tool_call: piece.tool_call }
    }

    /// What was held back, when there are no more pieces.
    pub fn flush(&mut self) -> AnswerDelta {
        AnswerDelta { thinking: self.end(), ..AnswerDelta::default() }
    }

    /// Ends a thought and returns the rest of it.
    fn end(&mut self) -> String {
        let rest = self.take(true);
        self.held.clear();
        self.again |= std::mem::take(&mut self.begun);
        rest
    }

    /// Takes the part of the thought that is neither a mark nor blanks around it; `ended` when nothing more of it comes.
    fn take(&mut self, ended: bool) -> String {
        let mut from = 0;
        if !self.begun {
            let opens = |text: &str| MARKS.iter().any(|(open, _)| text.len() < open.len() && open.starts_with(text));
            let text = self.held.trim_start();
            let after = MARKS.iter().find_map(|(open, _)| text.strip_prefix(open)).unwrap_or(text).trim_start();
            if after.is_empty() || (!ended && opens(after)) {
                return String::new();
            }
            from = self.held.len() - after.len();
        }
        let text = &self.held[from..];
        let whole = text.trim_end();
        let cut = MARKS.iter().find_map(|(_, close)| whole.strip_suffix(close)).unwrap_or_else(|| {
            let begins = |close: &str| (1..close.len()).rev().find(|some| text.ends_with(&close[..*some]));
            let waits = if ended { None } else { MARKS.iter().find_map(|(_, close)| begins(close)) };
            &text[..text.len() - waits.unwrap_or(0)]
        });
        let given = cut.trim_end();
        if given.is_empty() {
            return String::new();
        }
        let between = if self.again && !self.begun { "\n\n" } else { "" };
        let taken = [between, given].concat();
        self.begun = true;
        self.held.drain(..from + given.len());
        taken
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
        message.content = Some(text).filter(|text| tool_calls.is_empty() || !text.is_empty());
        if thinking.is_empty() { message } else { message.field("reasoning_content", thinking) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The concatenated deltas of pieces: given whole, and one character at a time.
    fn read(parts: &[(&str, bool)]) -> [(String, String); 2] {
        let whole: Vec<(String, bool)> = parts.iter().map(|(text, thinking)| ((*text).into(), *thinking)).collect();
        let letters = parts.iter().flat_map(|(text, thinking)| text.chars().map(|letter| (letter.into(), *thinking)));
        [whole, letters.collect()].map(|pieces: Vec<(String, bool)>| {
            let mut reader = AnswerReader::default();
            let (mut thought, mut text) = (String::new(), String::new());
            let pieces = pieces.into_iter().map(|(text, thinking)| Piece { text, thinking, ..Piece::default() });
            let mut deltas: Vec<AnswerDelta> = pieces.map(|piece| reader.push(piece)).collect();
            deltas.push(reader.flush());
            for delta in deltas {
                thought += &delta.thinking;
                text += &delta.text;
            }
            (thought, text)
        })
    }

    #[test]
    fn marks_of_a_thought_are_left_out_however_they_are_cut() {
        for (parts, thought, text) in [
            (&[("<think>\nso it is \n\n</think>\n", true), ("\n\nYes", false)][..], "so it is", "\n\nYes"),
            (&[("[THINK]a < b</thin[/THINK]", true), ("Yes", false)], "a < b</thin", "Yes"),
            (&[("opened by the prompt</think>", true), ("Yes", false)], "opened by the prompt", "Yes"),
            (&[("<think>\n\n</think>\n\n", true), ("Yes", false)], "", "Yes"),
            (&[("<think>it ends in </thi", true)], "it ends in </thi", ""),
            (&[("<thi", true)], "<thi", ""),
            (&[("in a channel  ", true), ("Yes", false)], "in a channel", "Yes"),
            (&[("first", true), ("text", false), ("<think>second</think>", true)], "first\n\nsecond", "text"),
            (&[("<think> is text here</think>", false)], "", "<think> is text here</think>"),
        ] {
            assert_eq!(read(parts), [(); 2].map(|()| (thought.to_owned(), text.to_owned())), "{parts:?}");
        }
    }
}
