//! Why messages did not become a prompt.

use model_factory_format::error::escaped;
use model_factory_format::tokenizer::TemplatePlace;

/// Why a model's chat template made no prompt of the messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum ChatError {
    /// The model has no chat template (exit code 2).
    #[error("the model has no chat template, so it cannot be chatted with; give it a text to continue")]
    NoTemplate,
    /// The model has no chat template of the name asked for, or several and none is named `default` (exit code 2).
    #[error("{}", template_name(.asked.as_deref(), .known))]
    TemplateName { asked: Option<String>, known: Vec<String> },
    /// The chat template cannot write these messages, but can write others (exit code 2). Its lines are counted from 1.
    #[error(
        "the model's chat template cannot write these messages: {}{}; check the fields that they have",
        escaped(.reason),
        .line.map(|line| format!(", line {line} of the template")).unwrap_or_default()
    )]
    Messages { line: Option<usize>, reason: String },
    /// The chat template is not Jinja, or fails on any messages (exit code 10).
    #[error(
        "{}{}: the chat template cannot be rendered: {}; give the model a text to continue",
        escaped(&.place.to_string()),
        .line.map(|line| format!(", line {line}")).unwrap_or_default(),
        escaped(.reason)
    )]
    Template { place: TemplatePlace, line: Option<usize>, reason: String },
    /// The chat template refuses these messages, with a message of its own (exit code 2).
    #[error("the model's chat template refuses the messages: {}", escaped(.message))]
    Refused { message: String },
    /// A message, by its number from 1, has an image, sound or the like; models are run only for text (exit code 2).
    #[error(
        "message {message} of the chat has a part of type {kind}, expected text only: models that see or hear are run for \
         their text; leave the part out, or say in words what it shows"
    )]
    NotText { message: usize, kind: &'static str },
    /// The chat template does not end, or writes too much (exit code 10).
    #[error(
        "{}: the chat template takes more than {limit} {what}; give the model a text to continue",
        escaped(&.place.to_string())
    )]
    Limit { place: TemplatePlace, what: &'static str, limit: u64 },
    /// A text is not a date and time (exit code 2).
    #[error("{text:?} is no date and time, expected one such as 2026-01-31T12:00:00")]
    Time { text: String },
}

impl ChatError {
    /// The exit code that the examples document: 10 if the template is at fault, else 2.
    pub fn code(&self) -> u8 {
        match self {
            ChatError::Template { .. } | ChatError::Limit { .. } => 10,
            _ => 2,
        }
    }
}

fn template_name(asked: Option<&str>, known: &[String]) -> String {
    const SHOWN: usize = 16;
    let names = known.iter().take(SHOWN).map(|name| escaped(name)).collect::<Vec<_>>().join(", ");
    let more = if known.len() > SHOWN { format!(" and {} more", known.len() - SHOWN) } else { String::new() };
    match asked {
        Some(name) => format!("the model has no chat template named {name:?}; choose one of {names}{more}"),
        None => format!("the model has chat templates by name and none is named default; choose one of {names}{more}"),
    }
}
