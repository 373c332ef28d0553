//! A grammar -> its parser, compiled once a vocabulary.

use super::schema::parts;
use super::{Grammar, Source};
use crate::error::{Error, GrammarError, Result};
use llguidance::api::{GrammarWithLexer, ParserLimits, StopReason, TopLevelGrammar};
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{JsonCompileOptions, ParserFactory, TokenParser};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Compiled grammars that are kept for the next request.
const KEPT: usize = 32;

/// Bytes of stack for a compilation, which recurs as deep as a grammar is nested.
const STACK_BYTES: usize = 32 << 20;

/// What may lie between the parts of a JSON value: a blank, or a line end with an indentation. Any amount would be a loop that
/// a small model does not leave.
const BLANKS: &str = r" |\n( {0,24}|\t{0,8})";

/// Parts of a schema that are compiled alone to find the one that is impossible.
const TRIED: usize = 64;

/// Bytes of a schema whose parts are.
const SEARCHED: usize = 64 << 10;

/// What a compilation and a step may take. Times are llguidance's measurements.
const LIMITS: ParserLimits = ParserLimits {
    max_items_in_row: 2000,
    initial_lexer_fuel: 1_000_000, // 20 ms
    step_lexer_fuel: 200_000,      // 14 ms
    step_max_items: 50_000,        // 3 ms
    max_lexer_states: 50_000,      // up to 100 MB, a request's own
    max_grammar_size: 500_000,
    precompute_large_lexemes: true,
    verbose_errors: false,
};

/// What compiles grammars for one vocabulary, and those it compiled last.
pub(crate) struct Grammars {
    factory: ParserFactory,
    kept: Mutex<VecDeque<(Grammar, Parser)>>,
}

/// What was compiled of a grammar, at its beginning. Clones share it.
#[derive(Clone)]
pub(crate) struct Parser(Arc<Mutex<TokenParser>>);

impl Grammars {
    /// For a vocabulary with its trie.
    ///
    /// # Errors
    /// `Internal`.
    pub(crate) fn new(vocabulary: &TokEnv) -> Result<Grammars> {
        let can = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let slices = llguidance::earley::SlicedBiasComputer::json_slices();
        let mut factory = ParserFactory::new(vocabulary, can, &slices).map_err(|error| internal(&error))?;
        *factory.quiet().limits_mut() = LIMITS;
        Ok(Grammars { factory, kept: Mutex::default() })
    }

    /// The parser of `grammar`, which was compiled before or is now.
    ///
    /// # Errors
    /// `Grammar`, with the place.
    pub(crate) fn parser(&self, grammar: &Grammar) -> Result<Parser> {
        if let Some(parser) = self.kept(grammar) {
            return Ok(parser);
        }
        grammar.check()?;
        let deep = thread::Builder::new().name("grammar".into()).stack_size(STACK_BYTES);
        let compiled = thread::scope(|scope| {
            let thread = deep.spawn_scoped(scope, || self.compiled(grammar)).map_err(|error| internal(&error))?;
            thread.join().unwrap_or_else(|_| Err(internal(&"compiling a grammar panicked")))
        });
        let parser = compiled?;
        if let Some(parser) = self.kept(grammar) {
            return Ok(parser); // of a request that came with this one
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((grammar.clone(), parser.clone()));
        if kept.len() > KEPT {
            kept.pop_front();
        }
        Ok(parser)
    }

    /// The parser of `grammar` where it is kept, which is used last now.
    fn kept(&self, grammar: &Grammar) -> Option<Parser> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let index = kept.iter().position(|(known, _)| known == grammar)?;
        let (known, parser) = kept.remove(index)?;
        kept.push_back((known, parser.clone()));
        Some(parser)
    }

    fn compiled(&self, grammar: &Grammar) -> Result<Parser> {
        let malformed = |what, reason: String| GrammarError::Malformed { what, reason: shortened(&reason) }.into();
        match &*grammar.0 {
            Source::JsonSchema(schema) => self.schema(schema).map_err(|reason| {
                let (place, reason) = self.impossible(schema, reason);
                GrammarError::Schema { place, reason: shortened(&reason) }.into()
            }),
            Source::Regex(regex) => {
                self.compile(GrammarWithLexer::from_regex(regex)).map_err(|why| malformed("regular expression", why))
            }
            Source::Lark(lark) => {
                self.compile(GrammarWithLexer::from_lark(lark.clone())).map_err(|why| malformed("Lark grammar", why))
            }
            Source::Calls { lark, .. } => self
                .compile(GrammarWithLexer::from_lark(lark.clone()))
                .map_err(|why| malformed("schemas of the tools", why)),
            Source::Choice(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
                let lark = format!("start: TEXT\nTEXT: {}", texts.join(" | "));
                self.compile(GrammarWithLexer::from_lark(lark)).map_err(|why| malformed("choice", why))
            }
        }
    }

    fn schema(&self, schema: &Value) -> Result<Parser, String> {
        if *schema == Value::Bool(false) {
            return Err("no value keeps the schema false".into());
        }
        self.compile(GrammarWithLexer::from_json_schema(with_blanks(schema)))
    }

    fn compile(&self, grammar: GrammarWithLexer) -> Result<Parser, String> {
        let mut parser = self.factory.create_parser(TopLevelGrammar::from_grammar(grammar)).map_err(|e| line(&e))?;
        parser.start_without_prompt();
        // Whether there is a beginning.
        let mut tried = parser.deep_clone();
        match tried.compute_mask() {
            Err(_) if tried.stop_reason() == StopReason::NoExtensionBias && !tried.is_accepting() => {
                Err("nothing matches it".into())
            }
            Err(error) if tried.stop_reason() != StopReason::NoExtensionBias => Err(line(&error)),
            _ => Ok(Parser(Arc::new(Mutex::new(parser)))),
        }
    }

    /// The innermost part of `schema` that is impossible alone, and why: `reason` for the whole.
    fn impossible(&self, schema: &Value, reason: String) -> (String, String) {
        let definitions = ["$defs", "definitions", "$schema"];
        let (mut place, mut found, mut here, mut tries) = (String::new(), reason, schema, TRIED);
        if schema.to_string().len() > SEARCHED {
            return (place, found);
        }
        loop {
            let within = parts(here).find_map(|(step, part)| {
                tries = tries.checked_sub(1)?;
                let mut alone = part.clone();
                for key in definitions {
                    if let (Some(object), Some(value)) = (alone.as_object_mut(), schema.get(key)) {
                        object.entry(key).or_insert_with(|| value.clone());
                    }
                }
                self.schema(&alone).err().map(|reason| (step, part, reason))
            });
            match within {
                // What is forbidden on purpose is at fault where it is wanted.
                Some((step, part, reason)) if *part != Value::Bool(false) => {
                    place.push_str(&step);
                    (here, found) = (part, reason);
                }
                _ => return (place, found),
            }
        }
    }
}

/// `schema`, whose values have a few blanks between their parts.
pub(super) fn with_blanks(schema: &Value) -> Value {
    let mut schema = if schema.is_object() { schema.clone() } else { serde_json::json!({}) };
    let options = JsonCompileOptions { whitespace_pattern: Some(BLANKS.into()), ..JsonCompileOptions::default() };
    options.apply_to(&mut schema);
    schema
}

impl Parser {
    /// A parser at the beginning, with a lexer of its own: what others read before changes neither its steps nor their limits.
    pub(crate) fn begun(&self) -> TokenParser {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).deep_clone()
    }
}

impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parser")
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grammars")
    }
}

/// An error of llguidance and its causes, the panics that it caught without their stack.
fn line(error: &impl fmt::Display) -> String {
    let text = format!("{error:#}");
    let text = text.split("\n<").next().unwrap_or_default();
    text.trim().to_owned()
}

/// As much of `text` as an error shows, in one line.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 300;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.char_indices().map(|(at, _)| at).nth(SHOWN).unwrap_or(text.len());
    text[..end].to_owned()
}

fn internal(what: &impl fmt::Display) -> Error {
    Error::Internal(what.to_string())
}
