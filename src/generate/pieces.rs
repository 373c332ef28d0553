//! Text, marks and calls as they come -> pieces.

use super::FinishReason;
use super::State;
use super::logprobs::LogProbs;
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
    /// How probable the token was, where [`GenerateOptions::logprobs`](super::GenerateOptions::logprobs) asks for it.
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
    pub(super) fn of(part: Part) -> Piece {
        let (text, tool_call) = match part {
            Part::Text(text) => (text, None),
            Part::Call(call) => (String::new(), Some(call)),
        };
        Piece { text, token: None, logprobs: None, thinking: false, tool_call }
    }
}

impl State {
    /// Takes `token`, shown as `bytes`, as what stands around a call of a tool, begins or ends a message to one, or is a
    /// special token within a call; whether it is no text therefore. What came before it, thought or not, is given out.
    pub(super) fn frames_call(&mut self, token: u32, bytes: &[u8], told: (bool, bool)) -> bool {
        let (before, thought) = told;
        let Some(calls) = &self.calls else { return false };
        let (is_mark, frames) = (calls.is_mark(token) && !thought, self.thinking.frames(token));
        let is_special = calls.is_calling() && bytes.is_empty() && !thought && !is_mark && !frames;
        if !(is_mark || frames || is_special) {
            return false;
        }
        // A stop string may be the mark itself, or end with it.
        let shown = if is_mark { String::from_utf8_lossy(bytes) } else { "".into() };
        let (mut text, mut decoded) = (String::new(), String::new());
        self.decoder.finish(&mut decoded);
        self.thinking.rest(decoded.len(), before);
        let stopped = self.stop_strings.push(&decoded, &mut text);
        let stopped = stopped.or_else(|| self.stop_strings.push(&shown, &mut text));
        if stopped.is_none() {
            self.stop_strings.finish(&mut text);
            text.truncate(text.len() - shown.len());
        }
        self.give(&text, None, None);
        if let Some(index) = stopped {
            self.finish = Some(FinishReason::StopString(index));
            return is_mark || is_special;
        }
        let mut parts = Vec::new();
        if let Some(calls) = &mut self.calls {
            if is_mark {
                calls.mark(token, &mut parts);
            } else if frames {
                calls.message_to(self.thinking.recipient(), &mut parts);
            } else {
                calls.special(&self.tokenizer.token_text(token).unwrap_or_default());
            }
        }
        self.ready.extend(parts.into_iter().map(Piece::of));
        is_mark || is_special
    }

    /// Makes ready what is left where the generation ends.
    pub(super) fn end(&mut self) {
        let mut text = String::new();
        self.flush(&mut text);
        self.give(&text, None, None);
        self.end_calls();
    }

    /// Makes ready what waited for the rest of a call.
    pub(super) fn end_calls(&mut self) {
        let mut parts = Vec::new();
        if let Some(calls) = &mut self.calls {
            calls.finish(&mut parts);
        }
        self.ready.extend(parts.into_iter().map(Piece::of));
    }

    /// Makes `text` ready, a piece for thought, one for what is none, and one for each call; the last one has the token.
    pub(super) fn give(&mut self, text: &str, token: Option<(u32, bool)>, logprobs: Option<LogProbs>) {
        let before = self.ready.len();
        for (text, thinking) in self.thinking.split(text) {
            let mut parts = Vec::new();
            match &mut self.calls {
                Some(calls) if !thinking => calls.text(&text, &mut parts),
                Some(calls) => calls.finish(&mut parts),
                None => {}
            }
            self.ready.extend(parts.into_iter().map(Piece::of));
            if thinking || self.calls.is_none() {
                self.ready.push_back(Piece { thinking, ..Piece::of(Part::Text(text)) });
            }
        }
        let Some((id, thinking)) = token else { return };
        let made = self.ready.len() > before;
        match self.ready.back_mut().filter(|last| made && last.thinking == thinking) {
            Some(last) => (last.token, last.logprobs) = (Some(id), logprobs),
            None => {
                let empty = Piece::of(Part::Text(String::new()));
                self.ready.push_back(Piece { token: Some(id), logprobs, thinking, ..empty });
            }
        }
    }

    /// Appends what waited for more: nothing follows. That may still be what completes a stop string.
    pub(super) fn flush(&mut self, text: &mut String) {
        let mut decoded = String::new();
        self.decoder.finish(&mut decoded);
        self.thinking.rest(decoded.len(), self.thinking.is_thinking());
        match self.stop_strings.push(&decoded, text) {
            Some(index) => self.finish = Some(FinishReason::StopString(index)),
            None => self.stop_strings.finish(text),
        }
    }
}
