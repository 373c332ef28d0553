//! Token and text -> text marked as thought or not: a reasoning model's thoughts lie between two marks, or in a channel
//! of their own. What frames a channel is not part of the text.

use super::budget::Budget;
use super::stop::StopMatcher;
use crate::error::Result;
use crate::tokenizer::Tokenizer;
use std::collections::VecDeque;

/// The most bytes between the marks of a channel; anything longer is not a name.
const HEADER_BYTES: usize = 256;

/// The most tokens of a prompt that may spell an opening mark and the blanks after it.
const SPELLED_TOKENS: usize = 16;

/// How a model marks its thoughts.
#[derive(Clone, Copy, Debug)]
enum Marks {
    /// The model does not think.
    None,
    /// A token before and one after, both part of the thought: a pair of [`MARKS`].
    Tokens { open: u32, close: u32 },
    /// The template opens the block and the model closes it with `</think>`, of which the vocabulary has no token (OLMo 3).
    Spelled,
    /// Gemma 4: `<|channel>`, the channel's name and a line end before, `<channel|>` after. The answer follows.
    Block { open: u32, close: u32 },
    /// gpt-oss: `<|start|>` and the author, `<|channel|>` and its name, `<|message|>`, the text, `<|end|>`.
    Messages { start: u32, channel: u32, message: u32, end: u32 },
}

/// The marks before and after a thought: two tokens of the vocabulary, or letters.
pub(crate) const MARKS: [(&str, &str); 2] = [("<think>", "</think>"), ("[THINK]", "[/THINK]")];

/// Where the current text belongs.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    Answer,
    Thought,
    /// In the header of a channel: its name so far.
    Header(Vec<u8>),
}

/// Where a generation is in its model's thoughts.
#[derive(Debug)]
pub struct Thinking {
    marks: Marks,
    place: Place,
    /// Finds the closing mark of a thought where it is spelled in letters.
    closing: StopMatcher,
    /// Bytes of text that were decoded and not returned yet, in order, each run with whether it is thought.
    held: VecDeque<(usize, bool)>,
    /// The recipient of the current message (gpt-oss: `to=functions.NAME`); `None` for the user.
    to: Option<String>,
    /// The mark by which the model may begin to think, as long as it has said nothing.
    opening: Option<u32>,
    /// How long it may think, if that is limited.
    budget: Option<Budget>,
}

/// Whether a token is thought, text of the answer, or neither.
#[derive(Debug)]
pub struct TokenClass<'b> {
    /// The part of the token's bytes that is text.
    pub text: &'b [u8],
    /// Whether the token is thought; a mark is, but a closing mark outside of a block is not.
    pub thought: bool,
    /// Whether the text before the token is thought.
    pub before: bool,
    /// Bytes at the end of `text` that lie after a closing mark; with 0 they count as part of the mark's piece.
    pub after: usize,
}

impl Thinking {
    /// The state after `prompt`: in a thought if only blanks follow its last opening mark, or in the last
    /// channel that it opens.
    pub fn after(tokenizer: &Tokenizer, prompt: &[u32]) -> Thinking {
        let mut thinking = Thinking {
            to: None,
            marks: Marks::new(tokenizer),
            place: Place::Answer,
            closing: StopMatcher::new(MARKS[0].1),
            held: VecDeque::new(),
            opening: None,
            budget: None,
        };
        let bytes = |id: &u32| tokenizer.token_bytes(*id).unwrap_or_default();
        let last = |mark: u32| prompt.iter().rposition(|id| *id == mark);
        match thinking.marks {
            Marks::None => {}
            Marks::Tokens { open, close } => {
                let blank = |id: &&u32| !bytes(id).is_empty() && bytes(id).iter().all(u8::is_ascii_whitespace);
                match prompt.iter().rev().find(|id| !blank(id)) {
                    Some(last) if *last == open => thinking.place = Place::Thought,
                    // The thought has ended, or is left empty on purpose.
                    Some(last) if *last == close => {}
                    _ => thinking.opening = Some(open).filter(|_| tokenizer.template_thinks()),
                }
            }
            Marks::Spelled => {
                let from = prompt.len().saturating_sub(SPELLED_TOKENS);
                let end: Vec<u8> = prompt[from..].iter().flat_map(bytes).copied().collect();
                if end.trim_ascii_end().ends_with(MARKS[0].0.as_bytes()) {
                    thinking.place = Place::Thought;
                }
            }
            Marks::Block { open, close } => {
                thinking.follow(prompt, last(open), bytes);
                thinking.opening = Some(open).filter(|_| prompt.last() != Some(&close));
            }
            Marks::Messages { start, channel, .. } => thinking.follow(prompt, last(start).max(last(channel)), bytes),
        }
        thinking
    }

    /// These thoughts, which together may have `tokens` tokens from here on. A model without marks never thinks, and so stays within
    /// any budget.
    ///
    /// # Errors
    /// `Encode`, for a mark that is spelled in letters.
    pub fn within(mut self, tokens: usize, tokenizer: &Tokenizer) -> Result<Thinking> {
        let closing = match self.marks {
            Marks::None => return Ok(self),
            Marks::Tokens { close, .. } | Marks::Block { close, .. } => vec![close],
            Marks::Messages { end, .. } => vec![end],
            Marks::Spelled => tokenizer.encode(MARKS[0].1, false)?,
        };
        self.budget = Some(Budget::new(tokens, closing));
        Ok(self)
    }

    /// The token that must come next, as the thought has used its budget up: one of the mark that ends it. Where the text so far ends
    /// within a character, this is only known to be so after it, or after three more tokens.
    pub fn closing(&self, complete: bool) -> Option<u32> {
        let budget = self.budget.as_ref().filter(|_| self.is_thinking());
        budget.and_then(|budget| budget.closing(complete))
    }

    /// How many tokens may come before one is forced by [`closing`](Self::closing); more than there are where that is not known.
    pub fn free_tokens(&self) -> usize {
        let budget = self.budget.as_ref().filter(|_| self.is_thinking());
        budget.map_or(usize::MAX, Budget::left)
    }

    /// Follows the tokens of `prompt` from its opening mark at `from`.
    fn follow<'t>(&mut self, prompt: &[u32], from: Option<usize>, bytes: impl Fn(&u32) -> &'t [u8]) {
        for id in from.and_then(|from| prompt.get(from..)).unwrap_or_default() {
            self.token(*id, bytes(id));
        }
    }

    /// Whether the next token belongs to the answer, unless it is the mark that begins a thought.
    pub fn is_answering(&self) -> bool {
        match (&self.place, self.marks) {
            (Place::Answer, _) => true,
            // The header is too long to be one.
            (Place::Header(name), Marks::Messages { .. }) => {
                name.len() > HEADER_BYTES && !name.starts_with(b"analysis")
            }
            _ => false,
        }
    }

    /// The mark by which a thought may begin here, before the answer.
    pub fn opening(&self) -> Option<u32> {
        self.opening
    }

    /// Takes `token`, which has `bytes`.
    pub fn token<'b>(&mut self, token: u32, bytes: &'b [u8]) -> TokenClass<'b> {
        self.opening = None;
        let before = self.place == Place::Thought;
        let (mut text, mut thought, mut after) = (bytes, before, 0);
        match self.marks {
            Marks::None => {}
            Marks::Tokens { open, close } => match token {
                _ if token == open => self.place = Place::Thought,
                _ if token == close => self.place = Place::Answer,
                _ => {}
            },
            Marks::Spelled if before => after = self.spelled(bytes),
            Marks::Spelled => {}
            Marks::Block { open, close } => {
                if token == open {
                    self.place = Place::Header(Vec::new());
                    (text, thought) = (b"", true);
                } else if token == close {
                    (text, thought) = (b"", self.place != Place::Answer);
                    self.place = Place::Answer;
                } else if let Place::Header(name) = &mut self.place {
                    let line_end = bytes.iter().position(|byte| *byte == b'\n');
                    name.extend_from_slice(&bytes[..line_end.unwrap_or(bytes.len())]);
                    text = line_end.map_or(b"", |at| &bytes[at + 1..]);
                    thought = true;
                    if line_end.is_some() || name.len() > HEADER_BYTES {
                        self.place = if name.starts_with(b"thought") { Place::Thought } else { Place::Answer };
                    }
                }
            }
            Marks::Messages { start, channel, message, end } => {
                if token == start || token == channel || token == end {
                    if token == channel {
                        self.address();
                    } else {
                        self.to = None;
                    }
                    self.place = Place::Header(Vec::new());
                    text = b"";
                } else if let Place::Header(name) = &mut self.place {
                    if token != message && name.len() <= HEADER_BYTES {
                        // A special token, such as `<|constrain|>`, ends a word.
                        name.extend_from_slice(if bytes.is_empty() { b" " } else { bytes });
                        text = b"";
                    } else {
                        let analysis = name.starts_with(b"analysis");
                        self.address();
                        // A message to a tool is no thought, whatever its channel.
                        self.place = if analysis && self.to.is_none() { Place::Thought } else { Place::Answer };
                    }
                }
                if token == message {
                    text = b"";
                }
            }
        }
        let is_thinking = self.place == Place::Thought;
        if let Some(budget) = &mut self.budget {
            budget.count(token, before && is_thinking);
        }
        TokenClass { text, thought: thought || is_thinking, before, after }
    }

    /// Reads the recipient of the message from the header so far.
    fn address(&mut self) {
        let Place::Header(header) = &self.place else { return };
        let header = String::from_utf8_lossy(header);
        let to = header.split_once("to=").and_then(|(_, to)| to.split_whitespace().next());
        self.to = to.map(str::to_owned).or(self.to.take());
    }

    /// Whether the model writes messages in channels (gpt-oss).
    pub fn has_messages(&self) -> bool {
        matches!(self.marks, Marks::Messages { .. })
    }

    /// Whether `token` frames messages (gpt-oss).
    pub fn frames(&self, token: u32) -> bool {
        matches!(self.marks, Marks::Messages { start, channel, message, end } if [start, channel, message, end].contains(&token))
    }

    /// The recipient of the current text; `None` for the user, and between messages.
    pub fn recipient(&self) -> Option<&str> {
        self.to.as_deref().filter(|_| self.place == Place::Answer)
    }

    /// Takes `bytes` of a thought and returns how many of them lie after its closing mark.
    fn spelled(&mut self, bytes: &[u8]) -> usize {
        let Some(at) = bytes.iter().position(|byte| self.closing.step(*byte)) else { return 0 };
        self.closing.matched = 0;
        self.place = Place::Answer;
        bytes.len() - at - 1
    }

    /// Counts the `bytes` of text that were decoded with a token: its own, and before them the rest of an unfinished
    /// character.
    pub fn decoded(&mut self, class: &TokenClass, bytes: usize) {
        let left = bytes.saturating_sub(class.text.len());
        let after = class.after.min(bytes - left);
        self.rest(left, class.before);
        self.rest(bytes - left - after, class.thought);
        self.rest(after, false);
    }

    /// Whether the next text is thought.
    pub fn is_thinking(&self) -> bool {
        self.place == Place::Thought
    }

    /// Counts `bytes` of text that come next, such as what was left over at the end.
    pub fn rest(&mut self, bytes: usize, thought: bool) {
        match self.held.back_mut() {
            Some((run, same)) if *same == thought => *run += bytes,
            _ if bytes > 0 => self.held.push_back((bytes, thought)),
            _ => {}
        }
    }

    /// Splits `text`, the next part that is returned, where a thought begins or ends.
    pub fn split(&mut self, mut text: &str) -> Vec<(String, bool)> {
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

impl Marks {
    /// The marks that a vocabulary has as added tokens; spelled marks if only its template has them.
    fn new(tokenizer: &Tokenizer) -> Marks {
        let added = |text: &str| tokenizer.added_token(text);
        let pair = |open: &str, close: &str| added(open).zip(added(close));
        let framing = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"].map(added);
        if let [Some(start), Some(channel), Some(message), Some(end)] = framing {
            return Marks::Messages { start, channel, message, end };
        }
        if let Some((open, close)) = pair("<|channel>", "<channel|>") {
            return Marks::Block { open, close };
        }
        match MARKS.iter().find_map(|(open, close)| pair(open, close)) {
            Some((open, close)) => Marks::Tokens { open, close },
            None if tokenizer.template_thinks() => Marks::Spelled,
            None => Marks::None,
        }
    }
}
