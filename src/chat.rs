//! Messages -> prompt: renders the model's own Jinja template as transformers does.

mod json;
mod message;

use crate::error::{Error, Result};
use jiff::civil::DateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind, Output, State, escape_formatter};
use model_diagnostics::tokenizer::{DEFAULT_TEMPLATE, TemplatePlace, TokenizerSpec};
use std::collections::BTreeMap;
use std::fmt::Write as _;

pub use message::{ChatOptions, Message};

/// Instructions a template may execute: an ordinary one takes under a hundred a message.
const FUEL: u64 = 10_000_000;

/// Bytes a template may add to what its messages and variables have; the longest published one has about 20 kB, and
/// may say all of itself.
const ADDED_BYTES: usize = 1 << 20;

/// A model's chat template, and the texts of BOS and EOS that it may write.
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
}

impl<'a> ChatTemplate<'a> {
    /// The template of `tokenizer` that `options` name. Without a name it is chosen as in transformers
    /// (`get_chat_template`): `tool_use` where there are tools and a template of that name, else `default`.
    ///
    /// # Errors
    /// `NoChatTemplate` when the model has none, `ChatTemplateName` when it has none of that name, or several and no
    /// default.
    pub fn of(tokenizer: &'a TokenizerSpec, options: &ChatOptions) -> Result<ChatTemplate<'a>> {
        const TOOL_USE: &str = "tool_use";
        let templates = &tokenizer.chat_templates;
        if templates.is_empty() {
            return Err(Error::NoChatTemplate);
        }
        let with_tools = options.tools.is_some() && templates.contains_key(TOOL_USE);
        let name = options.template.as_deref().unwrap_or(if with_tools { TOOL_USE } else { DEFAULT_TEMPLATE });
        let found = templates.get(name).ok_or_else(|| Error::ChatTemplateName {
            asked: options.template.clone(),
            known: templates.keys().cloned().collect(),
        })?;
        Ok(ChatTemplate {
            source: &found.text,
            place: &found.place,
            bos: tokenizer.bos_text.as_deref(),
            eos: tokenizer.eos_text.as_deref(),
        })
    }

    /// The text of `messages`, ready for the model's answer with `generation_prompt`.
    ///
    /// Rendered as `apply_chat_template` of transformers 5 does: blocks are trimmed, `tojson` writes what Python's
    /// `json.dumps` writes, strings have Python's methods, and `documents` is none.
    ///
    /// # Errors
    /// `ChatTemplate` for a template that is no Jinja or fails, `ChatRefused` with what the template itself says of the
    /// messages (`raise_exception`), `ChatTemplateLimit` for one that does not end or writes without measure. What
    /// it computes without writing it is bounded by its instructions alone, not in bytes: the template engine has no such
    /// bound, and a template that doubles a text over and over (`{% set x = x ~ x %}`) can take all memory. Render
    /// templates of strangers where that ends no more than it may.
    pub fn render(&self, messages: &[Message], options: &ChatOptions, generation_prompt: bool) -> Result<String> {
        let environment = environment(options.now).map_err(|error| self.failure(&error))?;
        let source = without_generation_marks(self.source);
        let template = environment.template_from_str(&source).map_err(|error| self.failure(&error))?;
        let messages: Vec<_> = messages.iter().map(Message::object).collect();
        let mut context: BTreeMap<&str, Value> = BTreeMap::new();
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
        let given = json_bytes(&messages) + json_bytes(&options.tools) + json_bytes(&options.variables);
        // A history may be written twice: as it is, and as what was thought.
        let mut text = Bounded { bytes: Vec::new(), limit: 2 * given + ADDED_BYTES, full: false };
        let rendered = template.render_captured_to(context, &mut text).map(drop);
        if text.full {
            return Err(self.beyond("bytes of text", text.limit as u64));
        }
        rendered.map_err(|error| self.failure(&error))?;
        String::from_utf8(text.bytes).map_err(|error| Error::Internal(error.to_string()))
    }

    fn beyond(&self, what: &'static str, limit: u64) -> Error {
        Error::ChatTemplateLimit { place: self.place.clone(), what, limit }
    }

    /// The typed error behind one of the engine's.
    fn failure(&self, error: &minijinja::Error) -> Error {
        let (mut reason, mut line) = (String::new(), None);
        let mut cause: Option<&dyn std::error::Error> = Some(error);
        while let Some(error) = cause {
            if let Some(raised) = error.downcast_ref::<Raised>() {
                return Error::ChatRefused { message: raised.0.clone() };
            }
            let separator = if reason.is_empty() { "" } else { ": " };
            // Writing to a string does not fail.
            let _ = match error.downcast_ref::<minijinja::Error>() {
                Some(error) if error.kind() == ErrorKind::OutOfFuel => return self.beyond("instructions", FUEL),
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
        Error::ChatTemplate { place: self.place.clone(), line, reason }
    }
}

/// Bytes of `value` as JSON.
fn json_bytes(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len())
}

/// Text up to a limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    full: bool,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            self.full = true;
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What a template says by `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// The environment of transformers' `_compile_jinja_template`.
fn environment(now: Option<DateTime>) -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(python_words);
    environment.add_filter("tojson", json::dumps);
    environment.add_function("raise_exception", |message: &Value| -> Result<Value, minijinja::Error> {
        let raised = Raised(message.to_string());
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(raised))
    });
    environment.add_function("strftime_now", move |format: &str| -> Result<String, minijinja::Error> {
        let now = now.unwrap_or_else(|| jiff::Zoned::now().datetime());
        jiff::fmt::strtime::format(format, now)
            .map_err(|error| minijinja::Error::new(ErrorKind::InvalidOperation, "strftime_now").with_source(error))
    });
    Ok(environment)
}

/// Writes `None`, `True` and `False` as Python does.
fn python_words(out: &mut Output, state: &mut State, value: &Value) -> Result<(), minijinja::Error> {
    let word = match bool::try_from(value.clone()) {
        _ if value.is_none() => "None",
        Ok(true) if value.kind() == minijinja::value::ValueKind::Bool => "True",
        Ok(false) if value.kind() == minijinja::value::ValueKind::Bool => "False",
        _ => return escape_formatter(out, state, value),
    };
    out.write_str(word).map_err(minijinja::Error::from)
}

/// `{% generation %}` marks what the model said for training and renders as its content.
fn without_generation_marks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, block) = rest.split_at(at);
        text.push_str(before);
        let Some(end) = block.find("%}") else {
            rest = block;
            break;
        };
        let (block, after) = block.split_at(end);
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
