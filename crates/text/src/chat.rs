//! Messages -> prompt: renders the model's own Jinja template as transformers does.

mod filters;
mod json;
mod limits;
mod marks;
mod message;
mod methods;
mod operators;
mod python;
mod rewrite;
mod time;
mod values;

use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use limits::{Budget, Exceeded};
use minijinja::machinery::{eval, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value, from_args};
use minijinja::{AutoEscape, Environment, ErrorKind, Output, State};
use model_factory_format::tokenizer::{DEFAULT_TEMPLATE, TOOL_USE_TEMPLATE, TemplatePlace, TokenizerSpec};
use serde::Serialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use values::invalid;

pub use crate::error::ChatError;
pub use message::{ChatOptions, Message};
#[doc(hidden)]
pub use message::{data_url, media};
pub use time::LocalTime;

/// Bytes that a template may add to its messages and variables. The longest published template has about 20 kB, and
/// may write all of itself.
const ADDED_BYTES: usize = 1 << 20;

/// What is appended to a message that is continued, to find its end in the prompt. A template that trims messages removes the blank.
const OPEN_END: &str = "END_OF_THE_MESSAGE_TO_CONTINUE ";

/// A model's chat template, and the texts of special tokens that it may write.
#[derive(Clone, Copy, Debug)]
pub struct ChatTemplate<'a> {
    /// The Jinja source.
    pub source: &'a str,
    /// Where the template was found, for errors.
    pub place: &'a TemplatePlace,
    /// `bos_token`; undefined in the template when the model has none.
    pub bos: Option<&'a str>,
    /// `eos_token`; undefined in the template when the model has none.
    pub eos: Option<&'a str>,
    /// Other special tokens by name, such as `pad_token`.
    pub tokens: &'a BTreeMap<String, String>,
}

/// Roles that templates may make special tokens of, as in `'<|' + message.role + '|>'`. Any other role is untrusted
/// text.
pub const ROLES: [&str; 9] =
    ["system", "user", "assistant", "tool", "developer", "function", "ipython", "model", "observation"];

/// A prompt written by a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedChat {
    text: String,
    template_spans: Vec<Range<usize>>,
}

impl RenderedChat {
    /// The text of the prompt.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The bytes of the text that the template wrote itself, in ascending order: text of its source, `bos_token` and
    /// other named tokens, and the roles in [`ROLES`]; all bytes with
    /// [`trust_special_tokens`](ChatOptions::trust_special_tokens). Text of a message, a tool or a variable is never
    /// among them, whatever the template makes of it; neither are numbers, keys, dates, and the punctuation of JSON.
    pub fn template_spans(&self) -> &[Range<usize>] {
        &self.template_spans
    }

    /// With what stands for each image: each `mark` that the template wrote becomes one of `images`, in order, as text of the
    /// template. Marks that are spelled in messages stay text, as all special tokens there.
    ///
    /// # Errors
    /// `ImageMarks` unless there are as many marks as images.
    pub fn with_images(&self, mark: &str, images: &[String]) -> Result<RenderedChat> {
        let mut marks = Vec::new();
        for span in &self.template_spans {
            marks.extend(self.text[span.clone()].match_indices(mark).map(|(at, _)| span.start + at));
        }
        if marks.len() != images.len() {
            let (mark, found, images) = (mark.to_owned(), marks.len(), images.len());
            return Err(ChatError::ImageMarks { mark, found, images }.into());
        }
        let (mut text, mut copied) = (String::with_capacity(self.text.len()), 0);
        for (at, image) in marks.iter().zip(images) {
            text.push_str(&self.text[copied..*at]);
            text.push_str(image);
            copied = at + mark.len();
        }
        text.push_str(&self.text[copied..]);
        // What lies before a place has grown by the images before it.
        let moved = |place: usize| {
            let before = marks.partition_point(|at| *at < place);
            place + images[..before].iter().map(String::len).sum::<usize>() - before * mark.len()
        };
        let template_spans = self.template_spans.iter().map(|span| moved(span.start)..moved(span.end)).collect();
        Ok(RenderedChat { text, template_spans })
    }

    /// The ids of the text, with BOS in front once if `tokenizer` adds it. Special tokens, and added ones with a symbol
    /// such as `<think>`, are only those whose bytes all lie in one of the [`template_spans`](Self::template_spans); everything
    /// else is text, tokenized together with the text next to it.
    ///
    /// # Errors
    /// `Encode` when the text cannot be tokenized.
    pub fn encode(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        tokenizer.encode_prompt_within(&self.text, &self.template_spans)
    }
}

impl<'a> ChatTemplate<'a> {
    /// The template of `tokenizer` that `options` name. Without a name it is chosen as in transformers
    /// (`get_chat_template`): `tool_use` where there are tools and a template of that name, else `default`.
    ///
    /// # Errors
    /// `Chat`: `NoTemplate` when the model has none, `TemplateName` when it has none of that name, or several and no
    /// default.
    pub fn of(tokenizer: &'a TokenizerSpec, options: &ChatOptions) -> Result<ChatTemplate<'a>> {
        let templates = &tokenizer.chat_templates;
        if templates.is_empty() {
            return Err(ChatError::NoTemplate.into());
        }
        let with_tools = options.tools.is_some() && templates.contains_key(TOOL_USE_TEMPLATE);
        let name = options.template.as_deref().unwrap_or(if with_tools { TOOL_USE_TEMPLATE } else { DEFAULT_TEMPLATE });
        let found = templates.get(name).ok_or_else(|| ChatError::TemplateName {
            asked: options.template.clone(),
            known: templates.keys().cloned().collect(),
        })?;
        Ok(ChatTemplate {
            source: &found.text,
            place: &found.place,
            bos: tokenizer.bos_text.as_deref(),
            eos: tokenizer.eos_text.as_deref(),
            tokens: &tokenizer.named_tokens,
        })
    }

    /// The text of `messages`, ready for the model's answer with `generation_prompt`.
    ///
    /// Renders like `apply_chat_template` of transformers 5: blocks are trimmed, values are written as Python writes
    /// them, `tojson` is Python's `json.dumps`, strings have Python's methods, and `documents` is none. What would
    /// differ, or is unknown, is an error: filters that Jinja lacks, `%` on strings, iterators as texts,
    /// booleans and floats as keys, escapes as `\U0001f600`, integers beyond 128 bits, fields wider than 9999. The code
    /// points U+C0000 to U+DFFFF, which Unicode has never assigned, become U+FFFD. Three differences are not noticed: an iterator
    /// can be used twice, `1 < 'a' < 2` compares where Python fails, and escaped text (`escape`) is like any other text.
    ///
    /// # Errors
    /// `Chat`: `Template` for a template that is not Jinja or fails on any messages, `Messages` for one that fails on these only,
    /// `Refused` with the template's own message (`raise_exception`), `Limit` for too much time, memory or depth, `NotText` for
    /// messages with images, sound or the like.
    pub fn render(&self, messages: &[Message], options: &ChatOptions, generation_prompt: bool) -> Result<String> {
        self.render_with_spans(messages, options, generation_prompt).map(|rendered| rendered.text)
    }

    /// Like [`render`](Self::render), and also returns which bytes of the text the template wrote itself.
    ///
    /// # Errors
    /// The errors of [`render`](Self::render).
    pub fn render_with_spans(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        generation_prompt: bool,
    ) -> Result<RenderedChat> {
        let media = |(message, one): (usize, &Message)| Some(ChatError::NotText { message, kind: one.media()? });
        (1..).zip(messages).find_map(media).map_or(Ok(()), Err)?;
        if options.continue_final_message {
            return self.render_open(messages, options);
        }
        let result = self.render_contents(messages, options, generation_prompt);
        let Err(Error::Chat(ChatError::Template { line, reason, .. })) = &result else { return result };
        let plain = ChatOptions { now: options.now, ..ChatOptions::default() };
        match self.render_as(&[Message::user("Hi")], &plain, true, None) {
            Ok(_) => Err(Error::Chat(ChatError::Messages { line: *line, reason: reason.clone() })),
            Err(_) => result,
        }
    }

    /// Renders up to the end of the last message's text, which the answer continues: a mark is appended to it, and the text ends
    /// where the template wrote it, as in transformers (`continue_final_message`).
    fn render_open(&self, messages: &[Message], options: &ChatOptions) -> Result<RenderedChat> {
        let failed = |reason| Error::Chat(ChatError::Continue { reason });
        let mut messages = messages.to_vec();
        let text =
            messages.last_mut().and_then(|last| last.append(OPEN_END)).ok_or_else(|| failed("it has no text"))?;
        let closed = ChatOptions { continue_final_message: false, ..options.clone() };
        let mut rendered = self.render_with_spans(&messages, &closed, false)?;
        let mark = OPEN_END.trim_end();
        let end = rendered.text.rfind(mark).filter(|_| rendered.text.contains(text.trim()));
        let end = end.ok_or_else(|| failed("the model's chat template does not write all of its text"))?;
        if rendered.text[..end].contains(mark) {
            return Err(failed("the model's chat template writes its text more than once"));
        }
        let keeps_blanks = rendered.text[end..].starts_with(OPEN_END);
        rendered.text.truncate(end);
        if !keeps_blanks {
            rendered.text.truncate(rendered.text.trim_end().len());
        }
        let end = rendered.text.len();
        rendered.template_spans.retain(|span| span.start < end);
        if let Some(last) = rendered.template_spans.last_mut() {
            last.end = last.end.min(end);
        }
        Ok(rendered)
    }

    /// Like [`render_with_spans`](Self::render_with_spans), with the missing content that the template accepts in the model's turns
    /// without one. transformers leaves it out, and gave none before version 5; some templates accept only one of these,
    /// and some only a text.
    fn render_contents(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        generation_prompt: bool,
    ) -> Result<RenderedChat> {
        let (none, empty) = (Json::Null, Json::from(""));
        let contents = match messages.iter().any(Message::is_without_content) {
            false => vec![None],
            true if asks_for_none(self.source) => vec![Some(&none), None, Some(&empty)],
            true => vec![None, Some(&none), Some(&empty)],
        };
        let mut failed = None;
        for absent in contents {
            match self.render_as(messages, options, generation_prompt, absent) {
                Err(error @ Error::Chat(ChatError::Template { .. })) => failed = failed.or(Some(error)),
                result => return result,
            }
        }
        Err(failed.unwrap_or_else(|| self.failed(None, "it was not rendered")))
    }

    /// Renders with `absent` as the content of the model's turns that have none.
    fn render_as(
        &self,
        messages: &[Message],
        options: &ChatOptions,
        generation_prompt: bool,
        absent: Option<&Json>,
    ) -> Result<RenderedChat> {
        let tokens = self.tokens.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let ends = [("bos_token", self.bos), ("eos_token", self.eos)];
        let tokens = tokens.chain(ends.into_iter().filter_map(|(name, text)| Some((name, text?))));
        let mut context: BTreeMap<_, _> = tokens.map(|(name, text)| (name, Value::from(marks::own(text)))).collect();
        let mut bytes = 0;
        let mut turn = |message: &Message| {
            let members = message.members(absent);
            bytes += 1 + members.iter().map(|(name, value)| json_bytes(name) + json_bytes(value) + 2).sum::<usize>();
            Value::from_pairs(members.iter().map(|(name, value)| match (*name, &**value) {
                ("role", Json::String(role)) if ROLES.contains(&role.as_str()) => {
                    (Value::from(*name), marks::own(role).into())
                }
                (name, value) => (marks::given(name).into(), given(value)),
            }))
        };
        context.insert("messages", messages.iter().map(&mut turn).collect());
        let mut counted = |value: &Json| {
            bytes += json_bytes(value);
            given(value)
        };
        context.extend([
            ("tools", counted(&options.tools.clone().into())),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(generation_prompt)),
        ]);
        context.extend(options.variables.iter().map(|(name, value)| (name.as_str(), counted(value))));
        let (text, spans) = limits::on_a_deep_stack(|| self.write(context, bytes, options.now))
            .map_err(|source| Error::Io { path: self.place.file.clone(), source: Arc::new(source) })?
            .unwrap_or_else(|_| Err(self.failed(None, "the template engine has a fault that this template shows")))?;
        // A history may be written twice: as it is, and as a thought.
        let limit = 2 * bytes + ADDED_BYTES;
        if text.len() > limit {
            return Err(self.beyond("bytes of text", limit as u64));
        }
        let whole = 0..text.len();
        let template_spans = if options.trust_special_tokens { vec![whole] } else { spans };
        Ok(RenderedChat { text, template_spans })
    }

    /// Renders with `context`, whose JSON has `given` bytes, and returns which bytes are the template's own.
    fn write(
        &self,
        context: BTreeMap<&str, Value>,
        given: usize,
        now: Option<LocalTime>,
    ) -> Result<(String, Vec<Range<usize>>)> {
        let budget = Arc::new(Budget::for_bytes(given + self.source.len()));
        let source = without_generation_marks(self.source);
        let render = || -> Result<String, minijinja::Error> {
            let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
            rewrite::check(&source, &syntax)?;
            let (instructions, blocks) = rewrite::compile(&source, &syntax)?;
            let (mut text, context) = (String::new(), Value::from_pairs(context));
            budget.weigh(&context)?;
            let mut output = make_string_output(&mut text);
            eval(&environment(now, &budget), &instructions, context, &blocks, &mut output, AutoEscape::None)?;
            drop(output);
            Ok(text)
        };
        render().map(|text| marks::finished(&text)).map_err(|error| self.failure(&error))
    }

    fn failed(&self, line: Option<usize>, reason: &str) -> Error {
        Error::Chat(ChatError::Template { place: self.place.clone(), line, reason: reason.to_owned() })
    }

    fn beyond(&self, what: &'static str, limit: u64) -> Error {
        Error::Chat(ChatError::Limit { place: self.place.clone(), what, limit })
    }

    fn failure(&self, error: &minijinja::Error) -> Error {
        let (mut reason, mut line) = (String::new(), None);
        let mut cause: Option<&dyn std::error::Error> = Some(error);
        while let Some(error) = cause {
            if let Some(raised) = error.downcast_ref::<Raised>() {
                return Error::Chat(ChatError::Refused { message: raised.0.clone() });
            }
            if let Some(exceeded) = error.downcast_ref::<Exceeded>() {
                return self.beyond(exceeded.what, exceeded.limit);
            }
            let separator = if reason.is_empty() { "" } else { ": " };
            // Writing to a string does not fail.
            let _ = match error.downcast_ref::<minijinja::Error>() {
                Some(error) if error.kind() == ErrorKind::OutOfFuel => {
                    return self.beyond("instructions", limits::FUEL);
                }
                Some(error) => {
                    // The innermost error has the line: the outer ones only call it.
                    line = error.line().or(line);
                    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
                    write!(reason, "{separator}{}{detail}", error.kind())
                }
                None => write!(reason, "{separator}{error}"),
            };
            cause = error.source();
        }
        self.failed(line, &marks::plain(&reason))
    }
}

/// `value` as a template sees it: its private-use characters are moved, so that they cannot be marks.
fn given(value: &Json) -> Value {
    match value {
        Json::String(text) => marks::given(text).into(),
        Json::Array(items) => items.iter().map(given).collect(),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(key, item)| (marks::given(key), given(item)))),
        Json::Null | Json::Bool(_) | Json::Number(_) => Value::from(Serde(value)),
    }
}

fn json_bytes(value: &(impl Serialize + ?Sized)) -> usize {
    // Text and JSON values can always be serialized.
    serde_json::to_string(value).map_or(0, |text| text.len())
}

/// Whether a template checks if a content is none: `message['content'] is not none`, `content == none`.
fn asks_for_none(source: &str) -> bool {
    const TESTS: [&str; 4] = ["is none", "is not none", "== none", "!= none"];
    source.match_indices("content").any(|(at, name)| {
        let rest = &source[at + name.len()..];
        let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || "'\"])".contains(c));
        TESTS.iter().any(|test| rest.get(..test.len()).is_some_and(|start| start.eq_ignore_ascii_case(test)))
    })
}

/// The message of a template's `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// The environment of transformers' `_compile_jinja_template`.
fn environment(now: Option<LocalTime>, budget: &Arc<Budget>) -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_fuel(Some(limits::FUEL));
    let by = Arc::clone(budget);
    environment.set_unknown_method_callback(move |_, value, method, args| methods::call(&by, value, method, args));
    let by = Arc::clone(budget);
    environment.set_formatter(move |out: &mut Output, _: &mut State, value: &Value| {
        let text = python::text(value, &by)?;
        out.write_str(&text).map_err(minijinja::Error::from)
    });
    filters::add(&mut environment, budget);
    operators::add(&mut environment, budget);
    let raise = |budget: &Budget, args: &[Value]| {
        let (message,): (&Value,) = from_args(args)?;
        let raised = Raised(marks::plain(&python::text(message, budget)?).into_owned());
        Err(invalid("raise_exception").with_source(raised))
    };
    environment.add_function("raise_exception", values::measured(budget, raise));
    let by = Arc::clone(budget);
    environment.add_function("strftime_now", move |format: &str| -> Result<String, minijinja::Error> {
        by.spend_text(format.len())?;
        let text = now.unwrap_or_else(LocalTime::now).format(&marks::bare(format));
        let text = text.map_err(|error| invalid("strftime_now").with_source(error))?;
        by.spend_text(text.len()).map(|()| text)
    });
    environment
}

/// Removes `{% generation %}`, which marks the model's own text for training, and keeps its content.
fn without_generation_marks(source: &str) -> String {
    let mut blocks = source.split("{%");
    let mut text = blocks.next().unwrap_or_default().to_owned();
    for block in blocks {
        text.push_str("{%");
        let (tag, after) = block.split_at(block.find("%}").unwrap_or(0));
        text.push_str(&match tag.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+')) {
            "generation" => tag.replacen("generation", "if true", 1),
            "endgeneration" => tag.replacen("endgeneration", "endif", 1),
            _ => tag.to_owned(),
        });
        text.push_str(after);
    }
    text
}

#[cfg(test)]
mod tests;
