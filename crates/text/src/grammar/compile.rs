//! A grammar -> its parser, compiled once for each vocabulary.

use super::kept::{Compiled, GrammarShare, Kept};
use super::schema::{parts, with_definitions};
use super::{Grammar, READINGS, Source, alternatives, breadth};
use crate::error::{Error, GrammarError, Result};
use llguidance::api::{GrammarInit, GrammarWithLexer, ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{JsonCompileOptions, ParserFactory, TokenParser};
use model_factory_format::CancellationToken;
use serde_json::Value;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::Duration;

/// How often a request checks for its cancellation while another's grammar is compiled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Bytes of stack for a compilation, which recurses as deep as a grammar is nested.
const STACK_BYTES: usize = 32 << 20;

/// The blanks between the parts of a JSON value: a blank, or a line end with an indentation. Without a limit they would be a
/// loop that a small model does not leave.
const BLANKS: &str = r" |\n( {0,24}|\t{0,8})";

/// The most parts of a schema that are compiled separately to find the impossible one.
const TRIED: usize = 64;

/// The steps that parsing a grammar counts as, so that at most twenty parts are compiled if each is hard.
const READING_STEPS: u64 = LIMITS.initial_lexer_fuel / 20;

/// The most bytes of a schema whose parts are compiled separately.
const SEARCHED: usize = 64 << 10;

/// The limits of a compilation and of a step. Times are llguidance's measurements.
const LIMITS: ParserLimits = ParserLimits {
    max_items_in_row: READINGS,
    initial_lexer_fuel: 1_000_000, // 20 ms
    step_lexer_fuel: 200_000,      // 14 ms
    step_max_items: 10 * READINGS,
    max_lexer_states: 50_000, // and `ANSWER_BYTES` together
    max_grammar_size: 100_000,
    precompute_large_lexemes: true,
    verbose_errors: false,
};

/// Compiles the grammars of one vocabulary, and keeps those that it compiled last.
pub struct Grammars {
    factory: ParserFactory,
    kept: Arc<Kept>,
    /// Held while compiling: one grammar at a time, so that untrusted ones leave processors to other requests.
    compiling: Mutex<()>,
}

/// A parser at its beginning, and the number of symbols of its grammar.
type NewParser = (TokenParser, u64);

/// Why a grammar is not compiled.
enum CompileError {
    /// No text matches the grammar, or it is malformed.
    Wrong(String),
    /// The grammar takes too much work.
    TooHard(String),
    /// Nobody waits for the grammar any more.
    Cancelled,
}

impl Grammars {
    /// Grammars for a vocabulary with its trie.
    pub(crate) fn new(vocabulary: &TokEnv) -> Result<Grammars> {
        let can = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let slices = llguidance::earley::SlicedBiasComputer::json_slices();
        let mut factory = ParserFactory::new(vocabulary, can, &slices).map_err(|error| internal(&error))?;
        *factory.quiet().limits_mut() = LIMITS;
        Ok(Grammars { factory, kept: Arc::default(), compiling: Mutex::new(()) })
    }

    /// A parser that holds an answer to `grammar`, and its share of memory.
    ///
    /// # Errors
    /// `Grammar`, with the place of the problem, and `Cancelled`.
    pub(crate) fn begun(&self, grammar: &Grammar, cancel: &CancellationToken) -> Result<(TokenParser, GrammarShare)> {
        self.kept.begun(self.compiled(grammar, cancel)?)
    }

    /// Compiles `grammar` ahead of its use.
    ///
    /// # Errors
    /// `Grammar`, with the place of the problem.
    pub fn prepare(&self, grammar: &Grammar) -> Result<()> {
        self.compiled(grammar, &CancellationToken::new()).map(drop)
    }

    /// The compiled `grammar`, from the cache or compiled now.
    fn compiled(&self, grammar: &Grammar, cancel: &CancellationToken) -> Result<Arc<Compiled>> {
        if let Some(compiled) = self.kept.find(grammar) {
            return Ok(compiled);
        }
        grammar.check()?;
        let _turn = loop {
            match self.compiling.try_lock() {
                Ok(turn) => break turn,
                Err(TryLockError::Poisoned(turn)) => break turn.into_inner(),
                Err(TryLockError::WouldBlock) => thread::sleep(POLL_INTERVAL),
            }
            cancel.check()?;
        };
        if let Some(compiled) = self.kept.find(grammar) {
            return Ok(compiled); // for a request that came at the same time
        }
        let deep = thread::Builder::new().name("grammar".into()).stack_size(STACK_BYTES);
        let (parser, symbols) = thread::scope(|scope| {
            let thread = deep.spawn_scoped(scope, || self.parser(grammar, cancel)).map_err(|error| internal(&error))?;
            thread.join().unwrap_or_else(|_| Err(internal(&"compiling a grammar panicked")))
        })?;
        self.kept.keep(grammar, parser, symbols)
    }

    fn parser(&self, grammar: &Grammar, cancel: &CancellationToken) -> Result<NewParser> {
        let read = match &*grammar.0 {
            Source::JsonSchema(schema) => return self.of_schema(schema, cancel),
            Source::Regex(regex) => GrammarWithLexer::from_regex(regex),
            Source::Lark(lark) | Source::Calls { lark, .. } => GrammarWithLexer::from_lark(lark.clone()),
            Source::Choice(texts) => GrammarWithLexer::from_lark(format!("start: TEXT\nTEXT: {}", alternatives(texts))),
        };
        let is_free = matches!(*grammar.0, Source::Lark(_));
        self.compile(read, is_free, &mut 0, cancel).map_err(|error| match error {
            CompileError::Cancelled => Error::Cancelled,
            CompileError::Wrong(reason) | CompileError::TooHard(reason) => {
                GrammarError::Malformed { what: grammar.0.what(), reason: shortened(&reason) }.into()
            }
        })
    }

    fn of_schema(&self, schema: &Value, cancel: &CancellationToken) -> Result<NewParser> {
        let mut steps = 0;
        let (place, reason) = match self.schema(schema, &mut steps, cancel) {
            Ok(parser) => return Ok(parser),
            Err(CompileError::Cancelled) => return Err(Error::Cancelled),
            Err(CompileError::TooHard(reason)) => (String::new(), reason),
            Err(CompileError::Wrong(reason)) => self.impossible(schema, reason, steps, cancel),
        };
        Err(GrammarError::Schema { place, reason: shortened(&reason) }.into())
    }

    fn schema(&self, schema: &Value, steps: &mut u64, cancel: &CancellationToken) -> Result<NewParser, CompileError> {
        if *schema == Value::Bool(false) {
            return Err(CompileError::Wrong("no value keeps the schema false".into()));
        }
        self.compile(GrammarWithLexer::from_json_schema(with_blanks(schema)), false, steps, cancel)
    }

    /// Compiles `grammar`, and adds the steps of the lexer to `steps`. A grammar that `is_free` may
    /// intersect any expressions; the expressions of schemas were checked.
    fn compile(
        &self,
        grammar: GrammarWithLexer,
        is_free: bool,
        steps: &mut u64,
        cancel: &CancellationToken,
    ) -> Result<NewParser, CompileError> {
        let wrong = |error: &dyn fmt::Display| CompileError::Wrong(line(error));
        let goes_on = || cancel.check().map_err(|_| CompileError::Cancelled);
        goes_on()?;
        *steps += READING_STEPS;
        let read = GrammarInit::Serialized(TopLevelGrammar::from_grammar(grammar));
        let vocabulary = self.factory.tok_env().clone();
        let read = catch_unwind(AssertUnwindSafe(|| read.to_internal(Some(vocabulary), LIMITS)));
        let (grammar, lexemes) = read.map_err(|error| wrong(&error))?;
        let symbols = grammar.num_symbols() as u64;
        if let Some(shown) = Some(lexemes.regex_builder.exprset()).filter(|_| is_free).and_then(breadth::too_broad) {
            return Err(CompileError::TooHard(format!("it can be read in too many ways at once: {shown}")));
        }
        goes_on()?;
        *steps +=
            catch_unwind(AssertUnwindSafe(|| Ok(self.tried(lexemes.clone())))).map_err(|error| wrong(&error))??;
        goes_on()?;
        let built = self.factory.create_parser_from_init_default(GrammarInit::Internal(grammar, lexemes));
        let mut parser = built.map_err(|error| wrong(&error))?;
        parser.start_without_prompt();
        // Checks that an answer can begin.
        let mut tried = parser.deep_clone();
        match tried.compute_mask() {
            Err(_) if tried.stop_reason() == StopReason::NoExtensionBias && !tried.is_accepting() => {
                Err(CompileError::Wrong("nothing matches it".into()))
            }
            Err(error) if tried.stop_reason() != StopReason::NoExtensionBias => {
                Err(CompileError::TooHard(line(&error)))
            }
            _ => Ok((parser, symbols)),
        }
    }

    /// Takes the first steps of the lexer of `lexemes` within the limits, and returns their number. llguidance takes these
    /// steps too, without a limit, when it makes a parser.
    fn tried(&self, mut lexemes: LexerSpec) -> Result<u64, CompileError> {
        let steps = LIMITS.initial_lexer_fuel;
        let hard = |error: &dyn fmt::Display| {
            let advice = "take smaller numbers in multipleOf, or shorter patterns and repetitions";
            CompileError::TooHard(format!("it takes more than {steps} steps to compile ({}); {advice}", line(error)))
        };
        lexemes.add_extra_lexemes(&self.factory.extra_lexemes());
        let mut lexer = lexemes.to_regex_vec(&mut LIMITS.clone()).map_err(|error| hard(&error))?;
        lexer.set_fuel(LIMITS.initial_lexer_fuel);
        lexer.set_max_states(LIMITS.max_lexer_states);
        let start = lexer.initial_state(&lexemes.all_lexemes());
        for byte in 0..=u8::MAX {
            lexer.transition(start, byte);
            if let Some(error) = lexer.get_error() {
                return Err(hard(&error));
            }
        }
        Ok(lexer.total_fuel_spent())
    }

    /// The innermost part of `schema` that is impossible by itself, and why; `reason` is that of the whole.
    fn impossible(
        &self,
        schema: &Value,
        reason: String,
        mut steps: u64,
        cancel: &CancellationToken,
    ) -> (String, String) {
        let (mut place, mut found, mut here, mut tries) = (String::new(), reason, schema, TRIED);
        if schema.to_string().len() > SEARCHED {
            return (place, found);
        }
        loop {
            let within = parts(here).find_map(|(step, part)| {
                tries = tries.checked_sub(1).filter(|_| steps < LIMITS.initial_lexer_fuel)?;
                match self.schema(&with_definitions(part, schema), &mut steps, cancel) {
                    Err(CompileError::Wrong(reason)) => Some((step, part, reason)),
                    Err(_) => {
                        tries = 0;
                        None
                    }
                    Ok(_) => None,
                }
            });
            match within {
                // A part that is `false` on purpose is not at fault, but the part that requires it is.
                Some((step, part, reason)) if *part != Value::Bool(false) => {
                    place.push_str(&step);
                    (here, found) = (part, reason);
                }
                _ => return (place, found),
            }
        }
    }
}

/// `schema`, with a few blanks allowed between the parts of its values.
pub(super) fn with_blanks(schema: &Value) -> Value {
    let mut schema = if schema.is_object() { schema.clone() } else { serde_json::json!({}) };
    super::rewrite::rewrite(&mut schema);
    let options = JsonCompileOptions { whitespace_pattern: Some(BLANKS.into()), ..JsonCompileOptions::default() };
    options.apply_to(&mut schema);
    schema
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grammars")
    }
}

/// An error of llguidance with its causes; panics that it caught are shown without their stack.
fn line(error: &(impl fmt::Display + ?Sized)) -> String {
    let text = format!("{error:#}");
    let text = text.split("\n<").next().unwrap_or_default();
    text.trim().to_owned()
}

/// The beginning of `text` that an error shows, on one line.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 300;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.char_indices().map(|(at, _)| at).nth(SHOWN).unwrap_or(text.len());
    text[..end].to_owned()
}

fn internal(what: &impl fmt::Display) -> Error {
    Error::Internal(what.to_string())
}
