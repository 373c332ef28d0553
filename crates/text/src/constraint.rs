//! A grammar and the tokens so far -> which tokens may come next.

use crate::answer::StopTokens;
use crate::error::{Error, GrammarError, Result};
use crate::grammar::{ANSWER_BYTES, Grammar, GrammarShare, Numbers, bytes};
use crate::tokenizer::Tokenizer;
use llguidance::TokenParser;
use llguidance::api::StopReason;
use llguidance::toktrie::SimpleVob;
use model_factory_format::CancellationToken;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Bytes of an Earley item, an entry of the parser's table.
const ITEM_BYTES: u64 = 16;

/// Bytes of the answer that an error shows.
const SHOWN: usize = 60;

/// The tokens that may come next.
#[derive(Clone, Debug)]
pub enum Next {
    /// Nothing may follow.
    End,
    /// Only this token may follow.
    One(u32),
    /// One of these tokens may follow.
    Among(TokenSet),
}

/// A set of tokens of a vocabulary.
#[derive(Clone, Debug)]
pub struct TokenSet(Arc<SimpleVob>);

impl TokenSet {
    /// Whether `token` is in the set.
    pub fn is_allowed(&self, token: u32) -> bool {
        self.0.is_allowed(token)
    }
}

/// A sampler that chooses tokens by the logits of a model. `L` are the logits.
pub trait Choose<L: ?Sized> {
    /// The error of the sampler.
    type Error: From<Error>;

    /// Chooses a token by `logits` among those of `next`, which are at least one.
    ///
    /// # Errors
    /// The errors of the sampler.
    fn choose_next(&mut self, logits: &L, next: &Next) -> Result<u32, Self::Error>;
}

/// An answer that is held to a [`Grammar`], token by token. `GenerateOptions` does that by itself; this is for a loop of your
/// own.
///
/// ```
/// use model_factory_text::answer::StopTokens;
/// use model_factory_text::constraint::{Constraint, Next};
/// use model_factory_text::{Error, Grammar, Tokenizer};
///
/// /// The first token that may come, over and over: what a model without an opinion answers.
/// fn first(tokenizer: &Tokenizer, grammar: &Grammar) -> Result<String, Error> {
///     let mut constraint = Constraint::new(tokenizer, grammar, StopTokens::default())?;
///     let mut answer = Vec::new();
///     loop {
///         let token = match constraint.next(None)? {
///             Next::End => return Ok(tokenizer.decode(&answer)),
///             Next::One(token) => token,
///             Next::Among(tokens) => (0..).find(|token| tokens.is_allowed(*token)).unwrap_or_default(),
///         };
///         constraint.take(token)?;
///         answer.push(token);
///     }
/// }
/// ```
pub struct Constraint {
    parser: TokenParser,
    /// The parser's share of the memory for grammars; `None` for a fork, which is short-lived.
    share: Option<GrammarShare>,
    /// The number of Earley items so far.
    items: u64,
    stop: StopTokens,
    /// Tokens that come next whatever the model says: the canonical tokens of a text that has no alternative.
    forced: VecDeque<u32>,
    /// The tokens that may come next, once they are computed.
    next: Option<Next>,
    ended: bool,
    /// The position in JSON, if the grammar has any: numbers are limited to what parsers can read.
    numbers: Option<Numbers>,
}

impl Constraint {
    /// Starts an answer to `grammar` in the tokens of `tokenizer`. Those of `stop` are allowed where the answer may end.
    ///
    /// # Errors
    /// `Grammar`, with the place of the problem.
    pub fn new(tokenizer: &Tokenizer, grammar: &Grammar, stop: StopTokens) -> Result<Constraint> {
        Constraint::begun(tokenizer, grammar, stop, &CancellationToken::new())
    }

    /// Like [`new`](Self::new), but can be cancelled.
    pub fn begun(
        tokenizer: &Tokenizer,
        grammar: &Grammar,
        stop: StopTokens,
        cancel: &CancellationToken,
    ) -> Result<Constraint> {
        let (parser, share) = tokenizer.grammars()?.begun(grammar, cancel)?;
        let (share, numbers) = (Some(share), grammar.has_json().then(Numbers::default));
        Ok(Constraint { parser, share, items: 0, stop, forced: VecDeque::new(), next: None, ended: false, numbers })
    }

    /// Counts the memory that the parser takes now.
    fn count(&mut self) -> Result<()> {
        let bytes = bytes(&self.parser) + ITEM_BYTES * self.items;
        if bytes > ANSWER_BYTES {
            let reason = format!("its tables take {bytes} bytes, expected at most {ANSWER_BYTES}");
            return Err(GrammarError::TooHard { text: self.text(), reason }.into());
        }
        self.share.as_mut().map_or(Ok(()), |share| share.grow(bytes))
    }

    /// Chooses the next token by `logits` and takes it; `None` when the answer is complete and nothing follows,
    /// or if the token ends it.
    ///
    /// # Errors
    /// The errors of `sampler`, and `Grammar` if the grammar is too hard, or the vocabulary has no token for it.
    pub fn sample<L: ?Sized, S: Choose<L>>(&mut self, sampler: &mut S, logits: &L) -> Result<Option<u32>, S::Error> {
        let next = self.next(None)?;
        if matches!(next, Next::End) {
            return Ok(None);
        }
        let token = sampler.choose_next(logits, &next)?;
        let ends = self.stop.contains(token);
        self.take(token)?;
        Ok(Some(token).filter(|_| !ends))
    }

    /// Computes the allowed tokens ahead of [`sample`](Self::sample), such as while the model computes; whether there are none.
    ///
    /// # Errors
    /// `Grammar`, as for [`next`](Self::next).
    pub fn prepare(&mut self) -> Result<bool> {
        Ok(matches!(self.next(None)?, Next::End))
    }

    /// Takes `token` as the next one of the answer.
    ///
    /// # Errors
    /// `Grammar` for a token that is not allowed next.
    pub fn take(&mut self, token: u32) -> Result<()> {
        let allowed = match self.next.take() {
            Some(Next::One(known)) => known == token,
            Some(Next::Among(known)) => known.is_allowed(token),
            _ => false,
        };
        if self.forced.pop_front().is_none_or(|forced| forced != token) {
            self.forced.clear();
        }
        if self.stop.contains(token) && self.parser.is_accepting() {
            self.ended = true;
            return Ok(());
        }
        let read = |numbers| self.read(numbers, token).ok_or(GrammarError::NotAllowed { token });
        let numbers = self.numbers.map(read).transpose()?;
        let parser = &mut self.parser;
        let before = parser.parser.stats().all_items;
        let taken = guarded(|| parser.consume_token(token).and_then(|_| parser.check_stop()))?;
        self.items += (parser.parser.stats().all_items - before) as u64;
        match taken {
            Ok(ended) => {
                self.numbers = numbers;
                self.ended = ended;
                Ok(())
            }
            Err(_) if !allowed => Err(GrammarError::NotAllowed { token }.into()),
            Err(_) => Err(self.failed()),
        }
    }

    /// Forgets the allowed tokens: a thought comes before them.
    pub fn put_off(&mut self) {
        self.next = None;
    }

    /// Whether the answer is complete, and nothing follows.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether the answer could end here.
    pub fn may_end(&mut self) -> bool {
        self.ended || self.parser.is_accepting()
    }

    /// How many of `tokens`, one after the other, are allowed next; a token that ends the answer is the last.
    pub fn valid(&mut self, tokens: &[u32]) -> usize {
        if self.ended {
            return 0;
        }
        let vocab = self.parser.token_env.tok_trie().vocab_size();
        let not_ours = |token: &u32| self.stop.contains(*token) || *token as usize >= vocab;
        let ours = tokens.iter().position(not_ours).unwrap_or(tokens.len());
        let ours = self.numbers.map_or(ours, |mut numbers| {
            let read = |token: &u32| self.read(numbers, *token).map(|after| numbers = after);
            tokens[..ours].iter().map_while(read).count()
        });
        guarded(|| self.parser.validate_tokens_raw(&tokens[..ours])).ok().and_then(Result::ok).unwrap_or(0)
    }

    /// The tokens that may come next, and `also`, if given.
    ///
    /// # Errors
    /// `Grammar` if the grammar is too hard or the vocabulary has no token for it.
    pub fn next(&mut self, also: Option<u32>) -> Result<Next> {
        if let Some(next) = &self.next {
            return Ok(next.clone());
        }
        let next = self.computed(also)?;
        self.next = Some(next.clone());
        Ok(next)
    }

    fn computed(&mut self, also: Option<u32>) -> Result<Next> {
        if self.ended {
            return Ok(Next::End);
        }
        if self.forced.is_empty() && also.is_none() {
            self.forced.extend(guarded(|| self.parser.compute_ff_tokens())?);
            let own = self.forced.iter().take_while(|token| !self.stop.contains(**token)).count();
            self.forced.truncate(own);
        }
        if let Some(token) = self.forced.front() {
            return Ok(Next::One(*token));
        }
        let mask = guarded(|| self.parser.compute_mask())?;
        self.count()?;
        let mut mask = match mask {
            Ok(mask) => mask,
            Err(_) if self.parser.stop_reason() == StopReason::NoExtensionBias => {
                self.parser.token_env.tok_trie().alloc_token_set()
            }
            Err(_) => return Err(self.failed()),
        };
        if let Some(numbers) = self.numbers {
            numbers.forbid(self.parser.token_env.tok_trie(), &mut mask);
        }
        for token in self.stop.iter() {
            if (token as usize) < mask.len() {
                mask.disallow_token(token);
            }
        }
        if mask.is_zero() {
            return if self.parser.is_accepting() { Ok(Next::End) } else { Err(self.failed()) };
        }
        let ends = if self.parser.is_accepting() { Some(self.stop.iter()) } else { None };
        for token in ends.into_iter().flatten().chain(also) {
            if (token as usize) < mask.len() {
                mask.allow_token(token);
            }
        }
        match (mask.num_set(), mask.first_bit_set()) {
            (1, Some(token)) => Ok(Next::One(token as u32)),
            _ => Ok(Next::Among(TokenSet(Arc::new(mask)))),
        }
    }

    /// A copy of the answer so far, to look ahead: its work does not count towards this answer's limits.
    pub fn fork(&self) -> Constraint {
        let (parser, stop, forced) = (self.parser.deep_clone(), self.stop.clone(), self.forced.clone());
        let Constraint { items, ended, numbers, .. } = *self;
        Constraint { parser, share: None, items, stop, forced, next: self.next.clone(), ended, numbers }
    }

    /// The end of the answer so far.
    fn text(&self) -> String {
        let bytes = self.parser.final_bytes();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN)..]).into_owned()
    }

    /// The position in JSON after `token`; `None` if a number is too large.
    fn read(&self, numbers: Numbers, token: u32) -> Option<Numbers> {
        let trie = self.parser.token_env.tok_trie();
        if token as usize >= trie.vocab_size() { Some(numbers) } else { numbers.after(trie.token(token)) }
    }

    fn failed(&self) -> Error {
        let text = self.text();
        match self.parser.error_message() {
            Some(reason) => GrammarError::TooHard { text, reason }.into(),
            None => GrammarError::NoToken { text }.into(),
        }
    }
}

/// The result of the parser's `step`; if it panics, the error that the parser failed.
fn guarded<T>(step: impl FnOnce() -> T) -> Result<T> {
    let failed = |_| GrammarError::TooHard { text: String::new(), reason: "the parser failed".into() }.into();
    catch_unwind(AssertUnwindSafe(step)).map_err(failed)
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint").field("ended", &self.ended).finish_non_exhaustive()
    }
}
