//! Text, marks and calls as they are generated -> pieces.

use super::{FinishReason, LogProbs, Piece, State};

impl State {
    /// Takes `token`, shown as `bytes`, if it is a mark around a tool call, begins or ends a message to a tool, or is a special
    /// token within a call. Returns whether it is one of those, and so no text. All text before it, thought or not, is given out.
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
        if let Some(calls) = &mut self.calls {
            if is_mark {
                calls.mark(token, &mut self.ready);
            } else if frames {
                calls.message_to(self.thinking.recipient(), &mut self.ready);
            } else {
                calls.special(&self.tokenizer.token_text(token).unwrap_or_default());
            }
        }
        is_mark || is_special
    }

    /// Makes ready what is left when the generation ends.
    pub(super) fn end(&mut self) {
        let mut text = String::new();
        self.flush(&mut text);
        self.give(&text, None, None);
        self.end_calls();
        self.end_after_call();
    }

    /// Ends the generation after its first call, if it may have only one: what else the same token completed is left out.
    pub(super) fn end_after_call(&mut self) {
        let call = self.ready.iter().position(|piece| piece.tool_call.is_some()).filter(|_| self.is_one_call);
        let Some(call) = call else { return };
        for mut rest in self.ready.split_off(call + 1) {
            if let (Some(token), Some(last)) = (rest.token.take(), self.ready.back_mut()) {
                (last.token, last.logprobs) = (Some(token), rest.logprobs.take());
            }
        }
        self.finish.get_or_insert(FinishReason::ToolCall);
    }

    /// Makes ready what was held back for the rest of a call.
    pub(super) fn end_calls(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.finish(&mut self.ready);
        }
    }

    /// Makes `text` ready: a piece for thought, one for other text, and one for each call. The last piece has the token.
    pub(super) fn give(&mut self, text: &str, token: Option<(u32, bool)>, logprobs: Option<LogProbs>) {
        let before = self.ready.len();
        for (text, thinking) in self.thinking.split(text) {
            match &mut self.calls {
                Some(calls) if !thinking => calls.text(&text, &mut self.ready),
                Some(calls) => calls.finish(&mut self.ready),
                None => {}
            }
            if thinking || self.calls.is_none() {
                let mut piece = Piece::default();
                (piece.text, piece.thinking) = (text, thinking);
                self.ready.push_back(piece);
            }
        }
        let Some((id, thinking)) = token else { return };
        let made = self.ready.len() > before;
        match self.ready.back_mut().filter(|last| made && last.thinking == thinking) {
            Some(last) => (last.token, last.logprobs) = (Some(id), logprobs),
            None => {
                let mut empty = Piece::default();
                (empty.token, empty.logprobs, empty.thinking) = (Some(id), logprobs, thinking);
                self.ready.push_back(empty);
            }
        }
    }

    /// Appends what was held back, as nothing follows. It may still complete a stop string.
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
