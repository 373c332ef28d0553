//! Text and special tokens of an answer, as they come -> calls, and the text beside them. What breaks the format is text.

use super::read::{self, Read, Written};
use super::{Tool, ToolCall};
use crate::tokenizer::Tokenizer;
use model_diagnostics::tokenizer::ToolCallFormat;

/// Part of an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Call(ToolCall),
}

/// What stands around a call. A mark that the vocabulary has as an added token is that token, and its letters are text; any
/// other is spelled.
pub(super) struct Syntax {
    /// Each begins a call.
    pub(super) opens: &'static [&'static str],
    /// Each ends one; so does the end of the answer, or the next call.
    pub(super) closes: &'static [&'static str],
    /// Stand around calls, and say nothing.
    frames: &'static [&'static str],
    /// Whether an answer that begins with `{` may be a call without a mark.
    bare: bool,
    read: Read,
}

pub(super) fn syntax(format: ToolCallFormat) -> Syntax {
    let marked = |opens, closes, read| Syntax { opens, closes, frames: &[], bare: false, read };
    match format {
        ToolCallFormat::Hermes => marked(&["<tool_call>"], &["</tool_call>"], read::json),
        ToolCallFormat::Qwen3Xml => marked(&["<tool_call>"], &["</tool_call>"], read::xml),
        ToolCallFormat::Llama3Json => Syntax { bare: true, ..marked(&["<|python_tag|>"], &[], read::llama) },
        ToolCallFormat::DeepseekV3 | ToolCallFormat::DeepseekV31 => Syntax {
            frames: &["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
            ..marked(&["<｜tool▁call▁begin｜>"], &["<｜tool▁call▁end｜>"], read::deepseek)
        },
        ToolCallFormat::Phi4MiniJson => marked(&["<|tool_call|>"], &["<|/tool_call|>"], read::json),
        ToolCallFormat::Mistral | ToolCallFormat::MistralArgs => marked(&["[TOOL_CALLS]"], &[], read::mistral),
        ToolCallFormat::Harmony => marked(&[], &[], |_, _| None),
        ToolCallFormat::Gemma4 => marked(&["<|tool_call>"], &["<tool_call|>"], read::gemma),
        ToolCallFormat::Lfm2 => marked(&["<|tool_call_start|>"], &["<|tool_call_end|>"], read::python),
        ToolCallFormat::Olmo3 => marked(&["<function_calls>"], &["</function_calls>"], read::python),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    Open,
    Close,
    Frame,
}

#[derive(Debug, PartialEq)]
enum Place {
    Text,
    /// In a call: what opened it, as it is spelled, and what came since. `bare` has no mark.
    Call {
        open: String,
        body: String,
        bare: bool,
    },
    /// In a message to a tool (gpt-oss).
    Message {
        name: String,
        body: String,
    },
}

/// Reads the calls of one answer.
pub(crate) struct CallReader {
    syntax: Syntax,
    tools: Vec<Tool>,
    /// Marks that are tokens.
    tokens: Vec<(u32, &'static str, Mark)>,
    /// Marks that are spelled.
    spelled: Vec<(&'static str, Mark)>,
    place: Place,
    /// Text that may be the beginning of a mark, or blanks that may lie before one.
    held: String,
    /// Whether text was given out since the last call.
    said: bool,
    /// What ids of calls begin with.
    prompt_tokens: usize,
    calls: usize,
}

impl CallReader {
    /// For an answer behind `prompt_tokens` tokens.
    pub(crate) fn new(
        format: ToolCallFormat,
        tools: Vec<Tool>,
        tokenizer: &Tokenizer,
        prompt_tokens: usize,
    ) -> CallReader {
        let syntax = syntax(format);
        let kinds = [(syntax.opens, Mark::Open), (syntax.closes, Mark::Close), (syntax.frames, Mark::Frame)];
        let (mut tokens, mut spelled) = (Vec::new(), Vec::new());
        for (text, mark) in kinds.into_iter().flat_map(|(texts, mark)| texts.iter().map(move |text| (*text, mark))) {
            match tokenizer.added_token(text) {
                Some(id) => tokens.push((id, text, mark)),
                None => spelled.push((text, mark)),
            }
        }
        let (place, held) = (Place::Text, String::new());
        CallReader { syntax, tools, tokens, spelled, place, held, said: false, prompt_tokens, calls: 0 }
    }

    /// Whether `token` is a mark.
    pub(crate) fn is_mark(&self, token: u32) -> bool {
        self.tokens.iter().any(|(id, ..)| *id == token)
    }

    /// Whether what comes is part of a call: special tokens in it are spelled.
    pub(crate) fn is_calling(&self) -> bool {
        self.place != Place::Text
    }

    /// Takes a token that [is a mark](Self::is_mark).
    pub(crate) fn mark(&mut self, token: u32, parts: &mut Vec<Part>) {
        if let Some((_, text, mark)) = self.tokens.iter().find(|(id, ..)| *id == token).copied() {
            self.marked(text, mark, parts);
        }
    }

    /// A message to `recipient` begins (gpt-oss), or one to the user.
    pub(crate) fn message_to(&mut self, recipient: Option<&str>, parts: &mut Vec<Part>) {
        self.close(parts);
        if let Some(recipient) = recipient {
            let name = recipient.strip_prefix("functions.").unwrap_or(recipient).to_owned();
            self.place = Place::Message { name, body: String::new() };
        }
    }

    /// Takes text.
    pub(crate) fn text(&mut self, text: &str, parts: &mut Vec<Part>) {
        match &mut self.place {
            Place::Message { body, .. } => body.push_str(text),
            Place::Call { body, bare: true, .. } => {
                body.push_str(text);
                if !may_be_call(body) {
                    self.close(parts);
                }
            }
            Place::Call { body, .. } => {
                let from = body.len();
                body.push_str(text);
                self.search(from, parts);
            }
            Place::Text => {
                self.held.push_str(text);
                let bare = self.syntax.bare && !self.said && self.calls == 0;
                if bare && self.held.trim_start().starts_with('{') {
                    let body = std::mem::take(&mut self.held);
                    self.place = Place::Call { open: String::new(), body: String::new(), bare };
                    return self.text(&body, parts);
                }
                self.search_text(parts);
            }
        }
    }

    /// Gives out what nothing can follow.
    pub(crate) fn finish(&mut self, parts: &mut Vec<Part>) {
        self.close(parts);
        let held = std::mem::take(&mut self.held);
        // Blanks behind a call are the format's.
        if self.said || self.calls == 0 || !held.trim().is_empty() {
            self.say(held, parts);
        }
    }

    fn say(&mut self, text: String, parts: &mut Vec<Part>) {
        if !text.is_empty() {
            self.said = true;
            parts.push(Part::Text(text));
        }
    }

    /// Gives out what of the held text can be no mark, and takes the marks in it.
    fn search_text(&mut self, parts: &mut Vec<Part>) {
        let held = &self.held;
        let marks = || self.spelled.iter().filter(|(_, mark)| *mark != Mark::Close);
        let found = marks().filter_map(|(text, mark)| Some((held.find(text)?, *text, *mark)));
        if let Some((at, text, mark)) = found.min_by_key(|(at, ..)| *at) {
            let behind = self.held.split_off(at + text.len());
            self.held.truncate(at);
            self.say_to_blanks(at, parts);
            self.marked(text, mark, parts);
            return self.text(&behind, parts);
        }
        let begins = |from: &usize| marks().any(|(text, _)| text.starts_with(&held[*from..]));
        let partial = held.char_indices().map(|(at, _)| at).find(begins).unwrap_or(held.len());
        self.say_to_blanks(partial, parts);
    }

    /// Gives out what is held before `end`, but for the blanks at the end of that.
    fn say_to_blanks(&mut self, end: usize, parts: &mut Vec<Part>) {
        let blank = self.held[..end].trim_end().len();
        let rest = self.held.split_off(blank);
        let text = std::mem::replace(&mut self.held, rest);
        self.say(text, parts);
    }

    /// Looks for a spelled mark in the body of a call, of which what is behind `from` is new.
    fn search(&mut self, from: usize, parts: &mut Vec<Part>) {
        let Place::Call { body, .. } = &mut self.place else { return };
        let found = self.spelled.iter().filter_map(|(text, mark)| {
            let mut from = from.saturating_sub(text.len());
            while !body.is_char_boundary(from) {
                from -= 1;
            }
            Some((from + body.get(from..)?.find(text)?, *text, *mark))
        });
        if let Some((at, text, mark)) = found.min_by_key(|(at, ..)| *at) {
            let behind = body.split_off(at + text.len());
            // A value may spell the mark: the call then goes on.
            if mark != Mark::Close || (self.syntax.read)(&body[..at], &self.tools).is_some() {
                body.truncate(at);
                self.marked(text, mark, parts);
                return self.text(&behind, parts);
            }
            let from = body.len();
            body.push_str(&behind);
            self.search(from + text.len(), parts);
        }
    }

    fn marked(&mut self, text: &'static str, mark: Mark, parts: &mut Vec<Part>) {
        match (mark, &mut self.place) {
            (Mark::Open, _) => {
                self.close(parts);
                self.place = Place::Call { open: text.into(), body: String::new(), bare: false };
            }
            (Mark::Close, Place::Call { .. }) => self.close_by(text, parts),
            (Mark::Close, _) => self.held.push_str(text),
            (Mark::Frame, Place::Call { .. }) => self.close(parts),
            (Mark::Frame, _) => {}
        }
    }

    fn close(&mut self, parts: &mut Vec<Part>) {
        self.close_by("", parts);
    }

    /// Ends a call: it is read, or given out as it is spelled, `mark` behind it.
    fn close_by(&mut self, mark: &str, parts: &mut Vec<Part>) {
        let place = std::mem::replace(&mut self.place, Place::Text);
        let (read, text) = match place {
            Place::Text => return,
            Place::Call { open, body, .. } => {
                ((self.syntax.read)(&body, &self.tools), [open.as_str(), &body, mark].concat())
            }
            Place::Message { name, body } => {
                let arguments =
                    if body.trim().is_empty() { Some(Default::default()) } else { serde_json::from_str(&body).ok() };
                (arguments.map(|arguments| vec![Written { id: None, name, arguments }]), body)
            }
        };
        let Some(calls) = read else {
            let before = std::mem::take(&mut self.held);
            return self.say(before + &text, parts);
        };
        if !self.held.trim().is_empty() {
            let before = std::mem::take(&mut self.held);
            self.say(before, parts);
        }
        self.held.clear();
        self.said = false;
        for Written { id, name, arguments } in calls {
            let id = id.unwrap_or_else(|| format!("{:06}{:03}", self.prompt_tokens % 1_000_000, self.calls % 1000));
            self.calls += 1;
            parts.push(Part::Call(ToolCall { id, name, arguments }));
        }
    }
}

/// Whether an object that begins so may be a call: its first key is one of a call's.
fn may_be_call(text: &str) -> bool {
    const BEGINNINGS: [&str; 6] =
        ["{\"name\":", "{\"type\":\"function\"", "{\"function\":", "{\"parameters\":", "{\"arguments\":", "{\"id\":"];
    let longest = BEGINNINGS.iter().map(|text| text.len()).max().unwrap_or_default();
    let begun: String = text.chars().filter(|c| !c.is_whitespace()).take(longest).collect();
    BEGINNINGS.iter().any(|known| known.starts_with(&begun) || begun.starts_with(known))
}

impl std::fmt::Debug for CallReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallReader").field("place", &self.place).field("calls", &self.calls).finish_non_exhaustive()
    }
}
