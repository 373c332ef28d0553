//! A grammar of an answer -> a parser that computes which tokens may come next.
//!
//! The parser is llguidance's: an Earley parser over a lexer of lazily computed derivatives, and the trie of a vocabulary.

mod breadth;
mod compile;
mod copies;
mod kept;
mod numbers;
mod rewrite;
mod schema;

pub use compile::Grammars;
pub use kept::GRAMMAR_MEMORY;
pub(crate) use kept::{ANSWER_BYTES, GrammarShare, bytes};
pub(crate) use numbers::Numbers;
pub(crate) use schema::{DEFINITIONS, closed, values, with_definitions};

use crate::error::{GrammarError, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The most bytes of a JSON schema or a Lark grammar.
const GRAMMAR_BYTES: usize = 1 << 20;

/// The most bytes of a regular expression.
const REGEX_BYTES: usize = 64 << 10;

/// The most brackets of a regular expression or a Lark grammar that are open at once.
const NESTED: usize = 128;

/// The most rules and terminals of a Lark grammar, counted by their colons: they are compiled one within the other.
const RULES: usize = 1000;

/// The most alternative parses of an answer that are followed at once. Ten times as many are tried for one token.
const READINGS: usize = 10_000;

/// The most texts to choose from, and the most bytes of all of them.
const CHOICES: usize = 10_000;
const CHOICE_BYTES: usize = 1 << 20;

/// The form of an answer: a value of a JSON schema, a match of a regular expression or of a Lark grammar, or one of some
/// texts. Clones are cheap and share the compiled grammar: a model compiles it once, and keeps those that were used last.
///
/// Its JSON is `{"json_schema": {..}}`, `{"regex": ".."}`, `{"lark": ".."}` or `{"choice": ["..", ".."]}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Source", into = "Source")]
pub struct Grammar(Arc<Source>);

/// The language in which a grammar is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    JsonSchema(Value),
    Regex(String),
    Lark(String),
    Choice(Vec<String>),
    /// Tool calls, in Lark with embedded schemas of their arguments.
    #[serde(skip)]
    Calls {
        lark: String,
        schemas: Vec<(String, Value)>,
    },
}

impl Grammar {
    /// A value of this JSON schema (draft 2020-12, or an older draft if its `$schema` says so). Between its parts there may be a
    /// blank, or a line end with an indentation of up to 24 blanks or 8 tabs. Properties come in the order of the schema.
    pub fn json_schema(schema: impl Into<Value>) -> Grammar {
        Grammar(Arc::new(Source::JsonSchema(schema.into())))
    }

    /// A value of the schema of `T`. Objects have only the properties of the schema, and integers have the range of their type
    /// if the schema gives only its name (`uint32`): those of 64 bits go up to 9 * 10^18.
    pub fn json<T: JsonSchema>() -> Grammar {
        Grammar::json_schema(schema::derived::<T>())
    }

    /// A text that this regular expression matches as a whole, in the syntax of the crate `regex`. There is no look-around,
    /// and repetitions are greedy.
    pub fn regex(regex: impl Into<String>) -> Grammar {
        Grammar(Arc::new(Source::Regex(regex.into())))
    }

    /// A text of this context-free grammar, in llguidance's variant of Lark's syntax, from its rule `start` on.
    pub fn lark(grammar: impl Into<String>) -> Grammar {
        Grammar(Arc::new(Source::Lark(grammar.into())))
    }

    /// One of these texts.
    pub fn choice<S: AsRef<str>>(texts: &[S]) -> Grammar {
        Grammar(Arc::new(Source::Choice(texts.iter().map(|text| text.as_ref().to_owned()).collect())))
    }

    /// Tool calls in the Lark grammar `lark`, which contains those of `schemas`, each with the name of its tool, by
    /// [`embedded`](Self::embedded).
    pub(crate) fn calls(lark: String, schemas: Vec<(String, Value)>) -> Grammar {
        Grammar(Arc::new(Source::Calls { lark, schemas }))
    }

    /// A value of `schema`, as an expression in Lark.
    pub(crate) fn embedded(schema: &Value) -> String {
        format!("%json {}", compile::with_blanks(schema))
    }

    /// The grammar as a part of a Lark expression; `None` if it has a syntax of its own or allows no value.
    pub(crate) fn in_lark(&self) -> Option<String> {
        match &*self.0 {
            Source::JsonSchema(Value::Bool(false)) | Source::Regex(_) | Source::Lark(_) | Source::Calls { .. } => None,
            Source::JsonSchema(schema) => Some(Grammar::embedded(schema)),
            Source::Choice(texts) => Some(format!("({})", alternatives(texts))),
        }
    }

    /// The JSON schema, if the grammar is one.
    pub fn schema(&self) -> Option<&Value> {
        match &*self.0 {
            Source::JsonSchema(schema) => Some(schema),
            _ => None,
        }
    }

    /// Whether the grammar contains JSON numbers, which may have any length.
    pub(crate) fn has_json(&self) -> bool {
        match &*self.0 {
            Source::JsonSchema(_) => true,
            Source::Calls { lark, .. } => lark.contains("%json"),
            _ => false,
        }
    }

    /// Checks that it is small enough to be compiled, and that a JSON schema has only supported keywords. It is compiled
    /// when a generation begins (or ahead by `Model::compile_grammar`).
    ///
    /// # Errors
    /// `Grammar`, with the place of the problem.
    pub fn check(&self) -> Result<()> {
        let what = self.0.what();
        match &*self.0 {
            Source::JsonSchema(schema) => schema::check(schema)?,
            Source::Regex(regex) => {
                within(what, regex, REGEX_BYTES)?;
                regex_syntax::ast::parse::Parser::new().parse(regex).map_err(|error| {
                    let reason = format!("{}, at byte {}", error.kind(), error.span().start.offset);
                    GrammarError::Malformed { what, reason }
                })?;
            }
            Source::Lark(grammar) => {
                within(what, grammar, GRAMMAR_BYTES)?;
                let definitions = grammar.bytes().filter(|byte| *byte == b':').count();
                at_most(what, "definitions", definitions, RULES)?;
                if let Some(reason) = beyond(grammar) {
                    return Err(GrammarError::Malformed { what, reason: reason.into() }.into());
                }
            }
            Source::Calls { lark, schemas } => {
                at_most(what, "bytes", lark.len(), GRAMMAR_BYTES)?;
                for (tool, schema) in schemas {
                    schema::check(schema).map_err(|error| match error {
                        GrammarError::Schema { place, reason } => {
                            GrammarError::Schema { place: format!("{tool}{place}"), reason }
                        }
                        error => error,
                    })?;
                }
            }
            Source::Choice(texts) => {
                let empty = texts.iter().position(String::is_empty);
                if texts.is_empty() || empty.is_some() {
                    return Err(GrammarError::EmptyChoice { index: empty }.into());
                }
                at_most(what, "texts", texts.len(), CHOICES)?;
                at_most(what, "bytes", texts.iter().map(String::len).sum(), CHOICE_BYTES)?;
            }
        }
        Ok(())
    }
}

impl Source {
    /// The kind of the grammar, for errors.
    fn what(&self) -> &'static str {
        match self {
            Source::JsonSchema(_) => "JSON schema",
            Source::Regex(_) => "regular expression",
            Source::Lark(_) => "Lark grammar",
            Source::Calls { .. } => "schemas of the tools",
            Source::Choice(_) => "choice",
        }
    }
}

/// One of `texts`, in Lark.
fn alternatives(texts: &[String]) -> String {
    texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect::<Vec<_>>().join(" | ")
}

/// A feature of llguidance's Lark that `grammar` uses and that is not supported.
fn beyond(grammar: &str) -> Option<&'static str> {
    let has = |name| {
        let mut attributes = grammar.lines().filter_map(|line| line.split_once(':')?.0.split_once('['));
        attributes.any(|(_, attributes)| attributes.contains(name))
    };
    let found = [
        (grammar.contains("%json"), "%json is not supported; take a grammar of a JSON schema in its place"),
        (has("stop"), "the attribute stop is not supported; take suffix, which is part of the answer"),
        (has("temperature"), "the attribute temperature is not supported; it is an option of the generation"),
    ];
    found.into_iter().find_map(|(is, reason)| is.then_some(reason))
}

/// Checks that there are at most `limit`.
fn at_most(what: &'static str, unit: &'static str, found: usize, limit: usize) -> Result<(), GrammarError> {
    if found > limit { Err(GrammarError::TooLarge { what, unit, found, limit }) } else { Ok(()) }
}

/// Checks that `text` has at most `limit` bytes and no more than [`NESTED`] open brackets anywhere, including quoted ones.
fn within(what: &'static str, text: &str, limit: usize) -> Result<(), GrammarError> {
    at_most(what, "bytes", text.len(), limit)?;
    let mut open = 0_usize;
    text.bytes().try_for_each(|byte| {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        at_most(what, "nested brackets", open, NESTED)
    })
}

/// Schemas whose properties have another order differ: values have that order.
impl PartialEq for Grammar {
    fn eq(&self, other: &Grammar) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || match (&*self.0, &*other.0) {
                (Source::JsonSchema(a), Source::JsonSchema(b)) => {
                    let in_order = |schema: &Value| schema.to_string();
                    a == b && in_order(a) == in_order(b)
                }
                (a, b) => a == b,
            }
    }
}

impl From<Source> for Grammar {
    fn from(source: Source) -> Grammar {
        Grammar(Arc::new(source))
    }
}

impl From<Grammar> for Source {
    fn from(grammar: Grammar) -> Source {
        Arc::unwrap_or_clone(grammar.0)
    }
}
