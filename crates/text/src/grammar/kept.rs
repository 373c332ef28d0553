//! The memory of grammars: of those kept for later requests, and of the answers that are held to one.

use super::schema::values;
use super::{Grammar, Source};
use crate::error::{GrammarError, Result};
use llguidance::TokenParser;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that all grammars of a model may take together; the memory plan of a model counts them.
pub const GRAMMAR_MEMORY: u64 = 256 << 20;

/// The most grammars that are kept, and the most bytes of them.
const GRAMMARS: usize = 32;
const KEPT_BYTES: u64 = GRAMMAR_MEMORY / 4;

/// The most bytes of one answer's parser.
pub(crate) const ANSWER_BYTES: u64 = GRAMMAR_MEMORY / 4;

/// Bytes that a step of a lexer leaves in its tables, beyond those that the tables count themselves.
const STEP_BYTES: u64 = 16;

/// Bytes of a symbol of a compiled grammar: 15,000 to 90,000 symbols took 0.9 to 1.0 KB each.
const SYMBOL_BYTES: u64 = 1000;

/// Bytes of a value of a JSON schema without its text.
const VALUE_BYTES: u64 = 100;

/// The bytes that one grammar has taken of those for all grammars; dropping it gives them back.
struct Share {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl Share {
    /// Grows to `bytes`; if the others leave less, returns false and takes nothing.
    fn grow_to(&mut self, bytes: u64) -> bool {
        let asked = bytes.saturating_sub(self.bytes);
        let fits = |taken: u64| taken.checked_add(asked).filter(|taken| *taken <= GRAMMAR_MEMORY);
        let is_left = self.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        self.bytes += if is_left { asked } else { 0 };
        is_left
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A compiled grammar, with its parser at the beginning.
pub(super) struct Compiled {
    parser: Mutex<TokenParser>,
    /// Bytes of the tables of its lexer; each answer has its own copy.
    own: u64,
    /// The share of the tables and of the grammar itself, which all answers share.
    share: Share,
}

/// The kept grammars, with those used last at the end, and the bytes that all grammars have taken. If all of them would
/// take too much, a request for more fails with `Grammar`.
#[derive(Default)]
pub(super) struct Kept {
    list: Mutex<VecDeque<(Grammar, Arc<Compiled>)>>,
    taken: Arc<AtomicU64>,
}

/// The bytes that an answer takes for its grammar; they are given back when it is dropped.
pub(crate) struct GrammarShare {
    share: Share,
    kept: Arc<Kept>,
    /// The grammar counts as long as an answer is held to it, even if it is not kept.
    _compiled: Arc<Compiled>,
}

impl Kept {
    /// `grammar` if it is kept; it then counts as the last used.
    pub(super) fn find(&self, grammar: &Grammar) -> Option<Arc<Compiled>> {
        let mut list = self.list();
        let index = list.iter().position(|(known, _)| known == grammar)?;
        let (known, compiled) = list.remove(index)?;
        list.push_back((known, Arc::clone(&compiled)));
        Some(compiled)
    }

    /// Keeps `grammar`, whose parser of `symbols` stands at its beginning, unless it is too large.
    pub(super) fn keep(&self, grammar: &Grammar, parser: TokenParser, symbols: u64) -> Result<Arc<Compiled>> {
        let own = bytes(&parser);
        let share = self.share(own + SYMBOL_BYTES * symbols + weight(grammar))?;
        let compiled = Arc::new(Compiled { parser: Mutex::new(parser), own, share });
        if compiled.share.bytes <= KEPT_BYTES {
            let mut list = self.list();
            list.push_back((grammar.clone(), Arc::clone(&compiled)));
            while list.len() > GRAMMARS || list.iter().map(|(_, kept)| kept.share.bytes).sum::<u64>() > KEPT_BYTES {
                list.pop_front();
            }
        }
        Ok(compiled)
    }

    /// A parser that holds an answer to `compiled`, with a lexer of its own, so that earlier answers change
    /// neither its steps nor their limits.
    pub(super) fn begun(self: &Arc<Self>, compiled: Arc<Compiled>) -> Result<(TokenParser, GrammarShare)> {
        let share = self.share(compiled.own)?;
        let parser = compiled.parser.lock().unwrap_or_else(PoisonError::into_inner).deep_clone();
        Ok((parser, GrammarShare { share, kept: Arc::clone(self), _compiled: compiled }))
    }

    /// A share of `bytes`.
    fn share(&self, bytes: u64) -> Result<Share> {
        let mut share = Share { all: Arc::clone(&self.taken), bytes: 0 };
        self.grow(&mut share, bytes).map(|()| share)
    }

    /// Grows `share` to `bytes`; kept grammars are dropped to make room.
    fn grow(&self, share: &mut Share, bytes: u64) -> Result<()> {
        while !share.grow_to(bytes) {
            if self.list().pop_front().is_none() {
                return Err(GrammarError::Memory { bytes, limit: GRAMMAR_MEMORY }.into());
            }
        }
        Ok(())
    }

    fn list(&self) -> MutexGuard<'_, VecDeque<(Grammar, Arc<Compiled>)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GrammarShare {
    /// Grows to `bytes`.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<()> {
        self.kept.grow(&mut self.share, bytes)
    }
}

/// Bytes of the tables that `parser` has of its own.
pub(crate) fn bytes(parser: &TokenParser) -> u64 {
    let stats = parser.parser.lexer_stats();
    stats.num_bytes as u64 + STEP_BYTES * stats.total_fuel_spent as u64
}

/// Bytes of `grammar` in its source form.
fn weight(grammar: &Grammar) -> u64 {
    let own = |value: &Value| match value {
        Value::String(text) => VALUE_BYTES + text.len() as u64,
        Value::Object(object) => VALUE_BYTES + object.keys().map(|key| VALUE_BYTES + key.len() as u64).sum::<u64>(),
        _ => VALUE_BYTES,
    };
    let of = |schema| values(schema).map(own).sum::<u64>();
    match &*grammar.0 {
        Source::JsonSchema(schema) => of(schema),
        Source::Regex(text) | Source::Lark(text) => text.len() as u64,
        Source::Choice(texts) => texts.iter().map(|text| VALUE_BYTES + text.len() as u64).sum(),
        Source::Calls { lark, schemas, .. } => {
            lark.len() as u64 + schemas.iter().map(|(name, schema)| name.len() as u64 + of(schema)).sum::<u64>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_take_no_more_than_all_may_and_give_it_back() {
        let kept = Kept::default();
        let left = |bytes: u64| GRAMMAR_MEMORY - bytes;
        let (mut first, mut second) = (kept.share(left(4)).unwrap(), kept.share(0).unwrap());
        assert!(!second.grow_to(5) && second.grow_to(4));
        assert!(first.grow_to(3) && first.bytes == left(4), "a share never shrinks");
        assert!(!first.grow_to(u64::MAX) && first.bytes == left(4));
        drop(first);
        assert!(second.grow_to(GRAMMAR_MEMORY));
    }
}
