//! Token and text -> text told apart by whether it is thought: what a reasoning model says from `<think>` to `</think>`.

use crate::tokenizer::Tokenizer;
use std::collections::VecDeque;

/// Where a generation is in the blocks that its model thinks in.
#[derive(Debug)]
pub(super) struct Thinking {
    /// The ids of the two marks; `None` for a model that has not both.
    marks: Option<(u32, u32)>,
    inside: bool,
    /// Bytes of text that were decoded and not given out yet, in order, each run with whether it is thought.
    held: VecDeque<(usize, bool)>,
}

impl Thinking {
    /// Begins after `prompt`: inside a block when nothing but blanks follows its last opening mark.
    pub(super) fn after(tokenizer: &Tokenizer, prompt: &[u32]) -> Thinking {
        let marks = tokenizer.added_token("<think>").zip(tokenizer.added_token("</think>"));
        let blank = |id: &&u32| {
            let bytes = tokenizer.token_bytes(**id).unwrap_or_default();
            !bytes.is_empty() && bytes.iter().all(u8::is_ascii_whitespace)
        };
        let last = prompt.iter().rev().find(|id| !blank(id));
        let inside = marks.is_some_and(|(open, _)| last == Some(&open));
        Thinking { marks, inside, held: VecDeque::new() }
    }

    /// Takes `token`, whose own text has `own` of the `decoded` bytes that came with it (bytes before them were left of
    /// an unfinished character). Whether the token is thought; a mark is, a closing one outside of a block is not.
    pub(super) fn token(&mut self, token: u32, decoded: usize, own: usize) -> bool {
        let before = self.inside;
        let is = |mark: fn((u32, u32)) -> u32| self.marks.map(mark) == Some(token);
        let thought = before || is(|(open, _)| open);
        self.inside = thought && !is(|(_, close)| close);
        let left = decoded.saturating_sub(own);
        self.text(left, before);
        self.text(decoded - left, thought);
        thought
    }

    /// Takes `bytes` of text that were left over when the generation ended.
    pub(super) fn rest(&mut self, bytes: usize) {
        self.text(bytes, self.inside);
    }

    fn text(&mut self, bytes: usize, thought: bool) {
        match self.held.back_mut() {
            Some((run, same)) if *same == thought => *run += bytes,
            _ if bytes > 0 => self.held.push_back((bytes, thought)),
            _ => {}
        }
    }

    /// Splits `text`, the next that is given out, where thought begins or ends.
    pub(super) fn split(&mut self, mut text: &str) -> Vec<(String, bool)> {
        let mut parts = Vec::new();
        while let Some((run, thought)) = self.held.front_mut().filter(|_| !text.is_empty()) {
            let (part, rest) = text.split_at((*run).min(text.len()));
            parts.push((part.to_owned(), *thought));
            *run -= part.len();
            text = rest;
            if *run == 0 {
                self.held.pop_front();
            }
        }
        parts
    }
}
