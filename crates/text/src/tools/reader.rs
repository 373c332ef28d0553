//! Text and special tokens of an answer, as they come -> calls, and the other text. Text that breaks the format stays text.

use super::ToolCall;
use crate::answer::Piece;
use crate::tokenizer::Tokenizer;
use model_factory_format::tool_calls::{
    Arguments, Description, SPECIAL, Several, Tool, ToolCallFormat, Written, members,
};
use std::collections::VecDeque;

/// The calls in `body`, and where they begin. If it does not parse, the text after the last opening mark in it is tried, as
/// another call may follow a broken one.
fn calls(format: &Description, body: &str, tools: &[Tool], opens: &[String]) -> Option<(Vec<Written>, usize)> {
    if let Some(calls) = (format.read)(body, tools) {
        return Some((calls, 0));
    }
    let (at, len) = opens.iter().filter_map(|open| Some((body.rfind(open.as_str())?, open.len()))).max()?;
    Some(((format.read)(&body[at + len..], tools)?, at))
}

/// Like `calls`, for a body that no mark closes: text may follow its calls, and the end of the calls is returned.
fn calls_and_text(
    format: &Description,
    body: &str,
    tools: &[Tool],
    opens: &[String],
) -> Option<(Vec<Written>, usize, usize)> {
    let ends = body.rmatch_indices(ENDS).map(|(at, end)| at + end.len()).take(TRIES);
    [body.len()].into_iter().chain(ends).find_map(|end| {
        let (calls, at) = calls(format, &body[..end], tools, opens)?;
        Some((calls, at, end))
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    Open,
    Close,
    Frame,
    /// It is part of a call whose opening mark is missing.
    Unmarked,
}

#[derive(Debug, PartialEq)]
enum Place {
    Text,
    Call(Open),
    /// The place is in a message to a tool (gpt-oss).
    Message {
        name: String,
        body: String,
    },
}

/// A call that has begun.
#[derive(Debug, Default, PartialEq)]
struct Open {
    /// The opening mark as spelled; empty if the answer itself may be the call.
    mark: &'static str,
    /// The text since the mark.
    body: String,
    /// No mark begins before this offset.
    searched: usize,
    /// How often parsing it failed.
    tries: usize,
}

/// The most blanks, in bytes, that wait for the text after them.
const BLANKS: usize = 256;

/// The last character of a call.
const ENDS: [char; 5] = ['}', ']', ')', '>', '`'];

/// How often parsing is tried for a call that may contain its closing mark.
const TRIES: usize = 64;

/// Parses the calls of one answer.
pub struct CallReader {
    format: &'static Description,
    /// Whether an answer that begins with `{` may be a call without a mark.
    bare: bool,
    tools: Vec<Tool>,
    /// Marks that are tokens.
    tokens: Vec<(u32, &'static str, Mark)>,
    /// Marks that are spelled.
    spelled: Vec<(&'static str, Mark)>,
    /// Marks that begin a call, as a body has them.
    opens: Vec<String>,
    place: Place,
    /// Marks around calls that came before any call.
    frames: String,
    /// Held-back text: the possible beginning of a mark, or blanks that may lie before one.
    held: String,
    /// Whether text was returned since the last call.
    said: bool,
    /// A number of this answer, with which ids of calls begin.
    answer: u32,
    calls: usize,
    /// Whether an answer is either calls from its beginning on, or no call.
    all_or_none: bool,
}

/// The id of a call in the answer of this number.
fn own_id(mut answer: u32, call: usize) -> String {
    let digit = |_| {
        let digit = char::from_digit(answer % 36, 36);
        answer /= 36;
        digit
    };
    let answer: String = (0..6).filter_map(digit).collect();
    format!("{answer}{:03}", call % 1000)
}

impl CallReader {
    /// A reader of an answer. Calls that the model gives no ids have some of nine letters and digits, as Mistral's templates need them, made
    /// of the number `answer`.
    pub fn new(format: ToolCallFormat, tools: Vec<Tool>, tokenizer: &Tokenizer, answer: u32) -> CallReader {
        let format = format.description();
        let frames = format.frames.as_ref().map_or(&[][..], |frames| frames);
        let kinds = [(format.opens, Mark::Open), (format.closes, Mark::Close), (frames, Mark::Frame)];
        let (mut tokens, mut spelled) = (Vec::new(), Vec::new());
        for (text, mark) in kinds.into_iter().flat_map(|(texts, mark)| texts.iter().map(move |text| (*text, mark))) {
            match tokenizer.added_token(text) {
                Some(id) => tokens.push((id, text, mark)),
                None => spelled.push((text, mark)),
            }
        }
        let open = |text: &str| tokenizer.added_token(text).map_or(text.into(), |_| format!("{SPECIAL}{text}"));
        let opens = format.opens.iter().map(|text| open(text)).collect();
        spelled.extend(format.unmarked.map(|text| (text, Mark::Unmarked)));
        CallReader {
            format,
            bare: matches!(format.several, Several::Bare),
            tools,
            tokens,
            spelled,
            opens,
            place: Place::Text,
            frames: String::new(),
            held: String::new(),
            said: false,
            answer,
            calls: 0,
            all_or_none: false,
        }
    }

    /// Reads an answer that is either only calls, or something else that may spell their marks.
    pub fn all_or_none(mut self) -> CallReader {
        self.spelled.retain(|(_, mark)| *mark != Mark::Unmarked || self.opens.is_empty());
        self.all_or_none = true;
        self
    }

    /// Reads only calls that are opened by tokens: those are held to schemas.
    pub fn strict(mut self) -> CallReader {
        self.spelled.retain(|(_, mark)| !matches!(mark, Mark::Open | Mark::Unmarked));
        self.opens.retain(|open| open.starts_with(SPECIAL));
        self
    }

    /// Whether `token` is a mark.
    pub fn is_mark(&self, token: u32) -> bool {
        self.tokens.iter().any(|(id, ..)| *id == token)
    }

    /// Whether the current text is part of a call; its special tokens then are too.
    pub fn is_calling(&self) -> bool {
        self.place != Place::Text
    }

    /// Takes a token that [is a mark](Self::is_mark).
    pub fn mark(&mut self, token: u32, pieces: &mut VecDeque<Piece>) {
        if let Some((_, text, mark)) = self.tokens.iter().find(|(id, ..)| *id == token).copied() {
            self.marked(text, mark, pieces);
        }
    }

    /// Takes a special token, which is spelled `text`, as part of a call.
    pub fn special(&mut self, text: &str) {
        if let Place::Call(Open { body, .. }) | Place::Message { body, .. } = &mut self.place {
            body.push(SPECIAL);
            body.push_str(text);
        }
    }

    /// A message to `recipient` begins (gpt-oss), or one to the user.
    pub fn message_to(&mut self, recipient: Option<&str>, pieces: &mut VecDeque<Piece>) {
        self.close("", pieces);
        if let Some(recipient) = recipient {
            let name = recipient.strip_prefix("functions.").unwrap_or(recipient).to_owned();
            self.place = Place::Message { name, body: String::new() };
        }
    }

    /// Takes text.
    pub fn text(&mut self, text: &str, pieces: &mut VecDeque<Piece>) {
        let mut rest = text.to_owned();
        // The text after a mark may have marks again.
        while !rest.is_empty() {
            rest = self.text_to_mark(&rest, pieces);
        }
    }

    /// Takes text up to the first mark in it, and returns the text after the mark.
    fn text_to_mark(&mut self, text: &str, pieces: &mut VecDeque<Piece>) -> String {
        match &mut self.place {
            Place::Message { body, .. } => body.push_str(text),
            Place::Call(Open { mark: "", body, .. }) => {
                body.push_str(text);
                match self.format.unmarked {
                    None if may_be_call(body) => {}
                    None => self.close("", pieces),
                    Some(begin) if calls_one_of(&self.tools, begin, body) => return self.search_call(pieces),
                    Some(begin) => {
                        self.held.push_str(begin);
                        let rest = body.split_off(begin.len());
                        self.place = Place::Text;
                        self.say(self.held.len(), pieces);
                        return rest;
                    }
                }
            }
            Place::Call(Open { body, .. }) => {
                body.push_str(&text.replace(SPECIAL, "\u{fffd}"));
                return self.search_call(pieces);
            }
            Place::Text => {
                self.held.push_str(text);
                if self.all_or_none && self.calls == 0 && !self.may_begin_calls() {
                    self.spelled.clear();
                    self.bare = false;
                }
                let bare = self.bare && !self.said && self.calls == 0;
                if bare && self.held.trim_start().starts_with('{') {
                    self.place = Place::Call(Open::default());
                    return std::mem::take(&mut self.held);
                }
                return self.search_text(pieces);
            }
        }
        String::new()
    }

    /// Whether the text so far may be the beginning of an answer that is only calls.
    fn may_begin_calls(&self) -> bool {
        let text = self.held.trim_start();
        let is_marked = |(mark, _): &(&str, Mark)| mark.starts_with(text) || text.starts_with(mark);
        !self.said && (self.spelled.iter().any(is_marked) || (self.bare && (text.is_empty() || text.starts_with('{'))))
    }

    /// Returns all held-back text as nothing follows.
    pub fn finish(&mut self, pieces: &mut VecDeque<Piece>) {
        self.close("", pieces);
        // Blanks after a call belong to the format.
        if self.said || self.calls == 0 || !self.held.trim().is_empty() {
            self.say(self.held.len(), pieces);
        }
        self.held.clear();
        self.frames.clear();
    }

    /// Returns `to` bytes of the held-back text, and the marks before it.
    fn say(&mut self, to: usize, pieces: &mut VecDeque<Piece>) {
        let rest = self.held.split_off(to);
        let text = std::mem::take(&mut self.frames) + &std::mem::replace(&mut self.held, rest);
        if !text.is_empty() {
            self.said = true;
            pieces.push_back(Piece { text, ..Piece::default() });
        }
    }

    /// Returns the held-back text before `end`, except for the blanks at its end.
    fn say_to_blanks(&mut self, end: usize, pieces: &mut VecDeque<Piece>) {
        let blank = self.held[..end].trim_end().len();
        if blank > 0 || end > BLANKS {
            self.say(if end - blank > BLANKS { end } else { blank }, pieces);
        }
    }

    /// Returns the held-back text that cannot be a mark, and takes the first mark in it; the result is the text after the mark.
    fn search_text(&mut self, pieces: &mut VecDeque<Piece>) -> String {
        let held = &self.held;
        let marks = || self.spelled.iter().filter(|(_, mark)| *mark != Mark::Close);
        let found = marks().filter_map(|(text, mark)| Some((held.find(text)?, *text, *mark)));
        if let Some((at, text, mark)) = found.min_by_key(|(at, ..)| *at) {
            let after = self.held.split_off(at + text.len());
            self.held.truncate(at);
            self.say_to_blanks(at, pieces);
            self.marked(text, mark, pieces);
            return after;
        }
        let begins = |from: &usize| marks().any(|(text, _)| text.starts_with(&held[*from..]));
        let partial = held.char_indices().map(|(at, _)| at).find(begins).unwrap_or(held.len());
        self.say_to_blanks(partial, pieces);
        String::new()
    }

    /// Takes the first spelled mark that ends the call, and returns the text after it. A value may spell marks: one ends the
    /// call if the text before it parses as a call.
    fn search_call(&mut self, pieces: &mut VecDeque<Piece>) -> String {
        let Place::Call(Open { body, searched, tries, .. }) = &mut self.place else { return String::new() };
        loop {
            let found = self
                .spelled
                .iter()
                .filter(|(_, mark)| *mark != Mark::Unmarked)
                .filter_map(|(text, mark)| Some((*searched + body.get(*searched..)?.find(text)?, *text, *mark)));
            let Some((at, text, mark)) = found.min_by_key(|(at, ..)| *at) else { break };
            let may_end = body[..at].trim_end().ends_with(ENDS) && *tries < TRIES;
            if may_end && calls(self.format, &body[..at], &self.tools, &self.opens).is_some() {
                let after = body.split_off(at + text.len());
                body.truncate(at);
                self.marked(text, mark, pieces);
                return after;
            }
            *tries += usize::from(may_end);
            *searched = at + text.len();
        }
        // The end of the text may be the beginning of a mark.
        let longest = self.spelled.iter().map(|(text, _)| text.len()).max().unwrap_or(0);
        *searched = (*searched).max(body.floor_char_boundary(body.len().saturating_sub(longest)));
        String::new()
    }

    fn marked(&mut self, text: &'static str, mark: Mark, pieces: &mut VecDeque<Piece>) {
        match (mark, &mut self.place) {
            (Mark::Unmarked, _) => {
                self.place = Place::Call(Open { body: text.to_owned(), ..Open::default() });
            }
            // A value may contain an opening mark, which is then part of it.
            (Mark::Open, Place::Call(Open { body, tries, .. }))
                if *tries < TRIES && calls_and_text(self.format, body, &self.tools, &self.opens).is_none() =>
            {
                *tries += 1;
                body.push(SPECIAL);
                body.push_str(text);
            }
            (Mark::Open, _) => {
                self.close("", pieces);
                self.place = Place::Call(Open { mark: text, ..Open::default() });
            }
            (Mark::Close, Place::Call(_)) => self.close(text, pieces),
            (Mark::Frame, Place::Call(_)) => {
                self.close("", pieces);
                self.marked(text, mark, pieces);
            }
            (Mark::Frame, _) if self.calls > 0 && !self.said && self.held.trim().is_empty() => {}
            (Mark::Frame, _) => {
                self.say_to_blanks(self.held.len(), pieces);
                self.frames.push_str(&std::mem::take(&mut self.held));
                self.frames.push_str(text);
            }
            (Mark::Close, _) => self.held.push_str(text),
        }
    }

    /// Ends a call by `mark`: it is parsed, or returned as text.
    fn close(&mut self, mark: &str, pieces: &mut VecDeque<Piece>) {
        let (read, text, after) = match std::mem::replace(&mut self.place, Place::Text) {
            Place::Text => return,
            Place::Call(open) => self.read(open, mark),
            Place::Message { name, body } => {
                let arguments =
                    if body.trim().is_empty() { Some(Arguments::default()) } else { Arguments::json(&body) };
                match arguments {
                    Some(arguments) => {
                        (Some(vec![Written { id: None, name, arguments }]), String::new(), String::new())
                    }
                    None => (None, body, String::new()),
                }
            }
        };
        self.held.push_str(&text.replace(SPECIAL, ""));
        let Some(calls) = read else { return self.say(self.held.len(), pieces) };
        if !self.held.trim().is_empty() {
            self.say(self.held.len(), pieces);
        }
        self.held.clear();
        self.frames.clear();
        self.said = false;
        for Written { id, name, arguments } in calls {
            let own = || own_id(self.answer, self.calls);
            let id = id.filter(|id| !id.is_empty()).unwrap_or_else(own);
            self.calls += 1;
            let json = Some(arguments.to_json());
            let tool_call = Some(ToolCall { id, name, arguments: arguments.values, json });
            pieces.push_back(Piece { tool_call, ..Piece::default() });
        }
        if !after.trim().is_empty() {
            self.held = after.replace(SPECIAL, "");
            self.say(self.held.len(), pieces);
        }
    }

    /// The calls of `open`, which ends by `mark`, and the text before and after them. If there are none, all text is before
    /// them. If no mark ends the calls, text may follow them.
    fn read(&self, Open { mark: open, body, .. }: Open, mark: &str) -> (Option<Vec<Written>>, String, String) {
        let (tools, opens) = (&self.tools, &self.opens);
        // An answer that is not a call may have a name too.
        let is_call = || members(body.trim()).is_some_and(|all| all.iter().any(|(name, _)| name == "parameters"));
        let found = match mark {
            "" if self.all_or_none && self.format.unmarked.is_none() && open.is_empty() && !is_call() => None,
            "" => calls_and_text(self.format, &body, tools, opens),
            _ => calls(self.format, &body, tools, opens).map(|(calls, at)| (calls, at, body.len())),
        };
        match found {
            Some((calls, 0, end)) => (Some(calls), String::new(), body[end..].to_owned()),
            Some((calls, at, end)) => (Some(calls), [open, &body[..at]].concat(), body[end..].to_owned()),
            None => (None, [open, &body, mark].concat(), String::new()),
        }
    }
}

/// Whether text that begins with `begin` may name one of `tools` after it.
fn calls_one_of(tools: &[Tool], begin: &str, body: &str) -> bool {
    let Some(rest) = body.strip_prefix(begin) else { return false };
    match rest.split_once(['>', '(']) {
        Some((name, _)) => tools.iter().any(|tool| tool.name == name),
        None => tools.iter().any(|tool| tool.name.starts_with(rest)),
    }
}

/// Whether an object with this beginning may be a call: its first key is one of a call's.
fn may_be_call(text: &str) -> bool {
    const BEGINNINGS: [&str; 6] =
        ["{\"name\":", "{\"type\":\"function\"", "{\"function\":", "{\"parameters\":", "{\"arguments\":", "{\"id\":"];
    let longest = BEGINNINGS.iter().map(|text| text.len()).max().unwrap_or_default();
    let head = &text[..text.floor_char_boundary(BLANKS)];
    let begun: String = head.chars().filter(|c| !c.is_whitespace()).take(longest).collect();
    let whole = |known: &&str| begun.starts_with(*known);
    BEGINNINGS.iter().any(|known| whole(known) || (known.starts_with(&begun) && head.len() == text.len()))
}

impl std::fmt::Debug for CallReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallReader").field("place", &self.place).field("calls", &self.calls).finish_non_exhaustive()
    }
}
