//! Logits -> token.

use super::StopTokens;
use super::draw::Draw;
use super::dry::DryPenalty;
use super::options::{SamplingOptions, Xtc};
use super::steps::{Candidate, Candidates, Penalties, Seen, best, divided, tokens};
use super::{Choose, LogProbs, Next, logprobs};
use crate::error::{Error, Result};
use crate::memory;
use crate::tokenizer::Tokenizer;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

/// Chooses the tokens of one generation.
///
/// The steps are our own: candle's `LogitsProcessor` has no min-p and no penalties, its top-p after top-k counts all
/// probabilities rather than those that are left, and it sorts the whole vocabulary.
#[derive(Debug)]
pub struct Sampler {
    vocab: usize,
    /// Ids that are never chosen, in ascending order.
    unused: Vec<u32>,
    seed: u64,
    penalties: Penalties,
    seen: Seen,
    dry: Option<DryPenalty>,
    /// Tokens that are not chosen yet, and the number of tokens until they may be.
    stop: Vec<u32>,
    min_tokens: usize,
    /// The tokens that were seen or have a bias, with their changed logits.
    changed: Candidates,
    /// How tokens are drawn; `None` is greedy.
    draw: Option<Drawing>,
    /// How many of the most likely tokens to report.
    pub(super) top: Option<usize>,
    logprobs: Option<LogProbs>,
}

/// How a token is drawn, and among which.
#[derive(Debug)]
struct Drawing {
    temperature: f64,
    /// The number of most likely tokens to draw from.
    top_k: usize,
    top_p: Option<f64>,
    min_p: Option<f64>,
    xtc: Option<Xtc>,
    candidates: Candidates,
    draw: Draw,
}

impl Sampler {
    /// A sampler that only chooses ids below `vocab`: rows that pad an embedding are not tokens.
    ///
    /// # Errors
    /// `Option` for a value out of its range, `TokenOutOfVocabulary` for a bias.
    pub fn new(options: &SamplingOptions, vocab: usize) -> Result<Sampler> {
        options.in_range()?;
        if let Some(id) = options.logit_bias.keys().copied().find(|id| *id as usize >= vocab) {
            return Err(Error::TokenOutOfVocabulary { id, vocab });
        }
        let seed = options.seed.unwrap_or_else(|| {
            // Only 53 bits, so that a tool that reads JSON numbers as doubles can repeat the seed exactly.
            RandomState::new().hash_one(SystemTime::now()) >> 11
        });
        let draw = options.draws().then(|| Drawing::new(options, seed));
        Ok(Sampler {
            vocab,
            unused: Vec::new(),
            seed,
            penalties: Penalties::new(options),
            seen: Seen::default(),
            dry: None,
            stop: Vec::new(),
            min_tokens: options.min_tokens,
            changed: Candidates::default(),
            draw,
            top: None,
            logprobs: None,
        })
    }

    /// This sampler, which also keeps the log-probabilities of each choice and of the `top` most likely tokens, if given.
    #[must_use]
    pub fn with_logprobs(mut self, top: Option<usize>) -> Sampler {
        self.top = top;
        self
    }

    /// This sampler, which chooses none of `stop` before `min_tokens` tokens, unless nothing else is possible.
    #[must_use]
    pub fn with_stop(mut self, stop: &StopTokens) -> Sampler {
        self.stop = if self.min_tokens > 0 { stop.iter().collect() } else { Vec::new() };
        self
    }

    /// Whether it is too early for a stop token.
    pub(super) fn is_early(&self) -> bool {
        self.min_tokens > 0
    }

    /// This sampler, with the DRY penalty of `options`, whose breakers are texts of `tokenizer`.
    #[must_use]
    pub fn with_dry(mut self, options: &SamplingOptions, tokenizer: &Tokenizer) -> Sampler {
        self.dry = options.dry.as_ref().filter(|dry| dry.multiplier > 0.0).map(|dry| DryPenalty::new(dry, tokenizer));
        self
    }

    /// The log-probabilities of the last choice; they are returned only once.
    pub fn take_logprobs(&mut self) -> Option<LogProbs> {
        self.logprobs.take()
    }

    /// This sampler, which also never chooses any of `unused`: tokens without a text that only fill the vocabulary up.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn without(mut self, unused: &[u32]) -> Result<Sampler> {
        self.unused = memory::copied(unused, "the tokens that are never chosen")?;
        self.unused.sort_unstable();
        self.unused.dedup();
        Ok(self)
    }

    /// Adds `ids` as the beginning of the sequence; the repetition penalty counts them.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn prompt(&mut self, ids: &[u32]) -> Result<()> {
        if let Some(dry) = &mut self.dry {
            dry.extend(ids)?;
        }
        if self.penalties.is_empty() { Ok(()) } else { self.seen.prompt(ids) }
    }

    /// Takes over the state of `other`, which was made of the same options: its next draws, and the tokens that it has seen.
    pub(super) fn follow(&mut self, other: &Sampler) -> Result<()> {
        if let (Some(own), Some(other)) = (&mut self.draw, &other.draw) {
            own.draw.clone_from(&other.draw);
        }
        self.min_tokens = other.min_tokens;
        if let (Some(own), Some(other)) = (&mut self.dry, &other.dry) {
            own.follow(other)?;
        }
        if self.penalties.is_empty() { Ok(()) } else { self.seen.copy(&other.seen) }
    }

    /// Makes room for a choice, before the logits for it are computed.
    pub(super) fn reserve(&mut self) -> Result<()> {
        if let Some(dry) = &mut self.dry {
            dry.reserve()?;
        }
        if self.changes() {
            self.seen.reserve(1)?;
            let dry = self.dry.as_ref().map_or(0, DryPenalty::tokens);
            self.changed.reserve(self.seen.len() + self.penalties.bias.len() + dry, false)?;
        }
        let Some(Drawing { top_k, candidates, .. }) = &mut self.draw else { return Ok(()) };
        candidates.reserve(self.vocab.min(top_k.saturating_mul(2)), true)
    }

    /// Whether logits are changed before one is chosen.
    fn changes(&self) -> bool {
        !self.penalties.is_empty() || self.dry.is_some()
    }

    /// The seed in use.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Chooses a token by its logits `[vocab]`; the penalties count it from then on. In greedy decoding the lowest id wins
    /// a tie.
    ///
    /// # Errors
    /// `NonFiniteLogits` when any logit, padding included, is NaN or infinite; `NothingToChoose` when all tokens are unused;
    /// `OutOfMemory`.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32> {
        self.sample_next(logits, None)
    }

    /// Like [`sample`](Self::sample), among the tokens that `next` allows. If only one is possible, nothing is drawn.
    pub(super) fn sample_next(&mut self, logits: &[f32], next: Option<&Next>) -> Result<u32> {
        self.reserve()?;
        self.choose(logits, next)
    }

    /// Takes `token`, which the grammar forces whatever the logits are.
    pub(super) fn take(&mut self, token: u32) {
        self.min_tokens = self.min_tokens.saturating_sub(1);
        if let Some(dry) = &mut self.dry {
            dry.push(token);
        }
        if !self.penalties.is_empty() {
            self.seen.generated(token);
        }
    }

    fn choose(&mut self, all: &[f32], next: Option<&Next>) -> Result<u32> {
        if let Some((id, value)) = all.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            return Err(Error::NonFiniteLogits { id, value: *value });
        }
        let logits = &all[..self.vocab.min(all.len())];
        let token = match next {
            Some(Next::One(token)) => Some(*token),
            Some(Next::Among(allowed)) => self.choose_late(logits, |id| allowed.is_allowed(id))?,
            Some(Next::End) => None,
            None => self.choose_late(logits, |_| true)?,
        };
        let token = token.ok_or(Error::NothingToChoose { vocab: self.vocab })?;
        self.take(token);
        self.logprobs = self.top.map(|top| logprobs::new(all, tokens(logits, &self.unused, &[]), top, token));
        Ok(token)
    }

    /// Chooses one of the tokens that are `allowed`. While it is too early for stop tokens, they are only chosen if there is
    /// no other; `None` if there is no token.
    fn choose_late(&mut self, logits: &[f32], allowed: impl Fn(u32) -> bool) -> Result<Option<u32>> {
        if self.min_tokens > 0 && !self.stop.is_empty() {
            let stop = std::mem::take(&mut self.stop);
            let chosen = self.choose_among(logits, |id| allowed(id) && !stop.contains(&id));
            self.stop = stop;
            if let Some(token) = chosen? {
                return Ok(Some(token));
            }
        }
        self.choose_among(logits, allowed)
    }

    /// Chooses by `logits` one of the tokens that are `allowed`; `None` if there are none.
    fn choose_among(&mut self, logits: &[f32], allowed: impl Fn(u32) -> bool) -> Result<Option<u32>> {
        if self.changes() {
            let dry = self.dry.as_mut().map(DryPenalty::penalties);
            let others = self.penalties.bias.keys().chain(dry.into_iter().flat_map(BTreeMap::keys));
            self.seen.candidates(others, logits, &self.unused, &mut self.changed);
            self.penalties.apply(&mut self.changed, &self.seen);
            for (id, penalty) in dry.into_iter().flatten() {
                self.changed.change(*id, |logit| logit - penalty);
            }
        }
        let changed = tokens(logits, &self.unused, self.changed.entries()).filter(|token| allowed(token.id));
        let chosen = match &mut self.draw {
            None => best(changed),
            Some(drawing) => drawing.choose(changed)?,
        };
        Ok(chosen.map(|token| token.id))
    }
}

impl Drawing {
    fn new(options: &SamplingOptions, seed: u64) -> Drawing {
        Drawing {
            temperature: options.temperature.unwrap_or(1.0),
            top_k: options.top_k.filter(|k| *k > 0).unwrap_or(usize::MAX),
            top_p: options.top_p.filter(|p| *p != 1.0),
            min_p: options.min_p.filter(|p| *p != 0.0),
            xtc: options.xtc.filter(|xtc| xtc.probability > 0.0 && xtc.threshold <= 0.5),
            candidates: Candidates::default(),
            draw: Draw::new(seed),
        }
    }

    /// Draws one of `tokens`, whose ids ascend; `None` if there are none.
    fn choose(&mut self, tokens: impl Iterator<Item = Candidate>) -> Result<Option<Candidate>> {
        let warm = |token: Candidate| Candidate { logit: divided(token.logit, self.temperature), ..token };
        self.candidates.fill(tokens.map(warm), self.top_k);
        if let Some(p) = self.top_p {
            self.candidates.keep_top_p(p);
        }
        if let Some(p) = self.min_p {
            self.candidates.keep_min_p(p);
        }
        if let Some(xtc) = self.xtc
            && self.draw.happens(xtc.probability)
        {
            self.candidates.exclude_top(xtc.threshold);
        }
        let entries = self.candidates.entries();
        Ok(self.draw.place(entries)?.and_then(|place| entries.get(place).copied()))
    }
}

/// Lets a [`Constraint`](super::Constraint) choose by logits `[vocab]` in a loop of your own, such as one over
/// [`Session::batch_logits`](crate::Session::batch_logits):
///
/// ```
/// use model_factory::generate::{Constraint, Sampler, SamplingOptions, StopTokens};
/// use model_factory::{Error, Grammar, UnifiedModelFactory};
///
/// let model = UnifiedModelFactory::load("fixtures/demo-q4_k_m.gguf")?;
/// let (tokenizer, stop) = (model.tokenizer(), StopTokens::from(&model.spec().tokenizer));
/// let mut constraint = Constraint::new(tokenizer, &Grammar::choice(&["yes", "no"]), stop)?;
/// let mut sampler = Sampler::new(&SamplingOptions::default(), tokenizer.vocab_len())?;
/// let mut session = model.session();
/// let mut logits = session.next_logits(&tokenizer.encode_prompt("Is it far? Answer yes or no: ")?)?;
/// let mut answer = Vec::new();
/// while let Some(token) = constraint.sample(&mut sampler, &logits)? {
///     answer.push(token);
///     logits = session.next_logits(&[token])?;
/// }
/// assert!(["yes", "no"].contains(&tokenizer.decode(&answer).trim_start()));
/// # Ok::<(), Error>(())
/// ```
impl<L: AsRef<[f32]> + ?Sized> Choose<L> for Sampler {
    type Error = Error;

    fn choose_next(&mut self, logits: &L, next: &Next) -> Result<u32> {
        self.sample_next(logits.as_ref(), Some(next))
    }
}

#[cfg(test)]
mod tests;
