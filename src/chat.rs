//! Messages -> prompt: renders the model's own Jinja template as transformers does.

mod filters;
mod json;
mod limits;
mod message;
mod methods;
mod operators;
mod python;
mod rewrite;
mod time;
mod values;

use crate::error::{Error, Result};
use limits::{Budget, Exceeded};
use minijinja::machinery::{eval, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, ErrorKind, Output, State};
use model_diagnostics::tokenizer::{DEFAULT_TEMPLATE, TOOL_USE_TEMPLATE, TemplatePlace, TokenizerSpec};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

pub use crate::error::ChatError;
pub use message::{ChatOptions, Message};
pub use time::LocalTime;

/// Bytes a template may add to what its messages and variables have; the longest published one has about 20 kB, and
/// may say all of itself.
const ADDED_BYTES: usize = 1 << 20;

/// A model's chat template, and the texts of special tokens that it may write.
#[derive(Clone, Copy, Debug)]
pub struct ChatTemplate<'a> {
    /// The Jinja source.
    pub source: &'a str,
    /// Where it was found, for errors.
    pub place: &'a TemplatePlace,
    /// `bos_token`; undefined in the template when the model has none.
    pub bos: Option<&'a str>,
    /// `eos_token`; undefined in the template when the model has none.
    pub eos: Option<&'a str>,
    /// Other special tokens by name, such as `pad_token`.
    pub tokens: &'a BTreeMap<String, String>,
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
            return Err(Error::Chat(ChatError::NoTemplate));
        }
        let with_tools = options.tools.is_some() && templates.contains_key(TOOL_USE_TEMPLATE);
        let name = options.template.as_deref().unwrap_or(if with_tools { TOOL_USE_TEMPLATE } else { DEFAULT_TEMPLATE });
        let found = templates.get(name).ok_or_else(|| {
            Error::Chat(ChatError::TemplateName {
                asked: options.template.clone(),
                known: templates.keys().cloned().collect(),
            })
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
    /// Rendered as `apply_chat_template` of transformers 5 does: blocks are trimmed, values are written as Python writes
    /// them, `tojson` is Python's `json.dumps`, strings have Python's methods, and `documents` is none. What would be
    /// written otherwise, or is not known, is an error: filters that Jinja has not, `%` on strings, iterators as texts,
    /// booleans and floats as keys, escapes as `\U0001f600`, integers beyond 128 bits, fields wider than 9999. Three
    /// things are not told apart: an iterator that is used twice is not empty the second time, `1 < 'a' < 2` compares
    /// what Python does not, and what `escape` has escaped is a text like any other.
    ///
    /// # Errors
    /// `Chat`: `Template` for a template that is no Jinja or fails, `Refused` with what the template itself says of the
    /// messages (`raise_exception`), `Limit` for one that takes too much time, memory or depth, `NotText` for messages with
    /// images, sound or the like.
    pub fn render(&self, messages: &[Message], options: &ChatOptions, generation_prompt: bool) -> Result<String> {
        let media = |(message, one): (usize, &Message)| {
            one.media().map(|kind| Error::Chat(ChatError::NotText { message: message + 1, kind }))
        };
        if let Some(error) = messages.iter().enumerate().find_map(media) {
            return Err(error);
        }
        let messages: Vec<_> = messages.iter().map(Message::object).collect();
        let given = json_bytes(&messages) + json_bytes(&options.tools) + json_bytes(&options.variables);
        let tokens = self.tokens.iter().map(|(name, text)| (name.as_str(), Value::from(text.as_str())));
        let mut context: BTreeMap<&str, Value> = tokens.collect();
        for (name, text) in [("bos_token", self.bos), ("eos_token", self.eos)] {
            context.extend(text.map(|text| (name, Value::from(text))));
        }
        context.extend([
            ("messages", Value::from(Serde(&messages))),
            ("tools", Value::from(Serde(&options.tools))),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(generation_prompt)),
        ]);
        context.extend(options.variables.iter().map(|(name, value)| (name.as_str(), Value::from(Serde(value)))));
        let text = limits::on_a_deep_stack(|| self.write(context, given, options.now))
            .map_err(|source| Error::io(&self.place.file, source))?
            .unwrap_or_else(|_| Err(self.failed("the template engine has a fault that this template shows")))?;
        // A history may be written twice: as it is, and as what was thought.
        let limit = 2 * given + ADDED_BYTES;
        if text.len() > limit { Err(self.beyond("bytes of text", limit as u64)) } else { Ok(text) }
    }

    /// The text with `context`, whose JSON has `given` bytes.
    fn write(&self, context: BTreeMap<&str, Value>, given: usize, now: Option<LocalTime>) -> Result<String> {
        let budget = Arc::new(Budget::for_bytes(given + self.source.len()));
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|error| self.failure(&error))?;
        let source = without_generation_marks(self.source);
        rewrite::check(&source, &syntax).map_err(|error| self.failure(&error))?;
        let environment = environment(now, &budget);
        let mut text = String::new();
        let context = Value::from_pairs(context);
        let rendered = rewrite::compile(&source, &syntax).and_then(|compiled| {
            budget.weigh(&context)?;
            let mut output = make_string_output(&mut text);
            let plain = AutoEscape::None;
            eval(&environment, &compiled.instructions, context, &compiled.blocks, &mut output, plain).map(drop)
        });
        rendered.map_err(|error| self.failure(&error))?;
        Ok(text)
    }

    fn failed(&self, reason: &str) -> Error {
        Error::Chat(ChatError::Template { place: self.place.clone(), line: None, reason: reason.to_owned() })
    }

    fn beyond(&self, what: &'static str, limit: u64) -> Error {
        Error::Chat(ChatError::Limit { place: self.place.clone(), what, limit })
    }

    /// The typed error behind one of the engine's.
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
                    // The innermost one tells where: the outer ones call it.
                    line = error.line().or(line);
                    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
                    write!(reason, "{separator}{}{detail}", error.kind())
                }
                None => write!(reason, "{separator}{error}"),
            };
            cause = error.source();
        }
        Error::Chat(ChatError::Template { place: self.place.clone(), line, reason })
    }
}

/// Bytes of `value` as JSON.
fn json_bytes(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len())
}

/// What a template says by `raise_exception`.
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
    let by = Arc::clone(budget);
    environment.add_function("raise_exception", move |message: &Value| -> Result<Value, minijinja::Error> {
        let raised = Raised(python::text(message, &by)?);
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(raised))
    });
    let by = Arc::clone(budget);
    environment.add_function("strftime_now", move |format: &str| -> Result<String, minijinja::Error> {
        by.spend_text(format.len())?;
        let text = now.unwrap_or_else(LocalTime::now).format(format);
        let text = text
            .map_err(|error| minijinja::Error::new(ErrorKind::InvalidOperation, "strftime_now").with_source(error))?;
        by.spend_text(text.len())?;
        Ok(text)
    });
    environment
}

/// `{% generation %}` marks what the model said for training and renders as its content.
fn without_generation_marks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, block) = rest.split_at(at);
        text.push_str(before);
        // `{%}` opens a block and does not close it.
        let Some(end) = block[2..].find("%}") else {
            rest = block;
            break;
        };
        let (block, after) = block.split_at(2 + end);
        let words = block[2..].trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+'));
        match words {
            "generation" => text.push_str(&block.replacen("generation", "if true", 1)),
            "endgeneration" => text.push_str(&block.replacen("endgeneration", "endif", 1)),
            _ => text.push_str(block),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests;
