//! Logits -> token.

use super::StopTokens;
use super::draw::Draw;
use super::dry::DryPenalty;
use super::options::{SamplingOptions, Xtc};
use super::steps::{
    Candidate, Candidates, CountPenalty, LogitBias, MinP, RepetitionPenalty, SamplingStep, Seen, TopP, best, divided,
    tokens,
};
use super::{Choose, LogProbs, Next, logprobs};
use crate::error::{Error, Result};
use crate::memory;
use crate::tensor::with_floats;
use crate::tokenizer::Tokenizer;
use candle_core::Tensor;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

/// Chooses tokens, one generation long.
///
/// The steps are ours: candle's `LogitsProcessor` has no min-p and no penalties, its top-p after top-k is of all
/// probabilities rather than of those left, and it sorts the whole vocabulary.
#[derive(Debug)]
pub struct Sampler {
    vocab: usize,
    /// In ascending order.
    unused: Vec<u32>,
    seed: u64,
    /// Steps that change the logits of tokens that were seen, and no others.
    penalties: Vec<Box<dyn SamplingStep>>,
    seen: Seen,
    /// Tokens that have a bias, in ascending order.
    biased: Vec<u32>,
    dry: Option<DryPenalty>,
    /// Tokens that are not chosen yet, and for how many more.
    stop: Vec<u32>,
    min_tokens: usize,
    /// The tokens that were seen or have a bias, with their changed logits.
    changed: Candidates,
    /// `None` is greedy.
    draw: Option<Drawing>,
    /// How many of the most likely tokens to report.
    top: Option<usize>,
    logprobs: Option<LogProbs>,
}

/// How a token is drawn, and among which.
#[derive(Debug)]
struct Drawing {
    temperature: f64,
    /// Among how many of the most likely.
    top_k: usize,
    /// Steps that leave fewer candidates.
    narrowing: Vec<Box<dyn SamplingStep>>,
    xtc: Option<Xtc>,
    candidates: Candidates,
    draw: Draw,
}

impl Sampler {
    /// A sampler that only ever chooses ids below `vocab`: rows that pad an embedding are no tokens.
    ///
    /// # Errors
    /// `Option` for a value out of its range, `TokenOutOfVocabulary` for a bias.
    pub fn new(options: &SamplingOptions, vocab: usize) -> Result<Sampler> {
        options.in_range()?;
        if let Some(id) = options.logit_bias.keys().copied().find(|id| *id as usize >= vocab) {
            return Err(Error::TokenOutOfVocabulary { id, vocab });
        }
        let seed = options.seed.unwrap_or_else(random_seed);
        let draw = options.draws().then(|| Drawing::new(options, seed));
        Ok(Sampler {
            vocab,
            unused: Vec::new(),
            seed,
            penalties: penalties(options),
            seen: Seen::default(),
            biased: options.logit_bias.keys().copied().collect(),
            dry: None,
            stop: Vec::new(),
            min_tokens: options.min_tokens,
            changed: Candidates::default(),
            draw,
            top: None,
            logprobs: None,
        })
    }

    /// The same sampler, which also keeps the log-probabilities of each choice if `top` says of how many tokens.
    #[must_use]
    pub fn with_logprobs(mut self, top: Option<usize>) -> Sampler {
        self.top = top;
        self
    }

    /// The same sampler, which chooses none of `stop` before as many tokens as the options say, unless nothing else may come.
    #[must_use]
    pub fn with_stop(mut self, stop: &StopTokens) -> Sampler {
        self.stop = if self.min_tokens > 0 { stop.iter().collect() } else { Vec::new() };
        self
    }

    /// The same sampler, with the DRY penalty of `options`, whose breakers are texts of `tokenizer`.
    #[must_use]
    pub fn with_dry(mut self, options: &SamplingOptions, tokenizer: &Tokenizer) -> Sampler {
        self.dry = options.dry.as_ref().filter(|dry| dry.multiplier > 0.0).map(|dry| DryPenalty::new(dry, tokenizer));
        self
    }

    /// Whether it keeps log-probabilities.
    pub(super) fn tells_logprobs(&self) -> bool {
        self.top.is_some()
    }

    /// The log-probabilities of the last choice, once.
    pub fn take_logprobs(&mut self) -> Option<LogProbs> {
        self.logprobs.take()
    }

    /// The same sampler, which never chooses any of `unused` either: tokens without a text that fill a vocabulary up.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn without(mut self, unused: &[u32]) -> Result<Sampler> {
        self.unused = memory::copied(unused, "the tokens that are never chosen")?;
        self.unused.sort_unstable();
        self.unused.dedup();
        Ok(self)
    }

    /// Tells that the sequence begins with `ids`; the repetition penalty counts them.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn prompt(&mut self, ids: &[u32]) -> Result<()> {
        if let Some(dry) = &mut self.dry {
            dry.extend(ids)?;
        }
        if self.penalties.is_empty() { Ok(()) } else { self.seen.prompt(ids) }
    }

    /// Goes on as `other`, which was made of the same options: with its next draws, and the tokens that it has seen.
    ///
    /// # Errors
    /// `OutOfMemory`.
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
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn reserve(&mut self) -> Result<()> {
        if let Some(dry) = &mut self.dry {
            dry.reserve()?;
        }
        if self.changes() {
            self.seen.reserve()?;
            let dry = self.dry.as_ref().map_or(0, DryPenalty::tokens);
            self.changed.reserve(self.seen.len() + self.biased.len() + dry, false)?;
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

    /// Chooses a token by its logits `[vocab]`, F32; the penalties count it from then on. Greedily the lowest id wins
    /// among equals.
    ///
    /// # Errors
    /// `NonFiniteLogits` when any logit, padding included, is NaN or infinite; `NothingToChoose` when all tokens are unused;
    /// `OutOfMemory`.
    pub fn sample(&mut self, logits: &Tensor) -> Result<u32> {
        self.sample_next(logits, None)
    }

    /// As [`sample`](Self::sample), among what may come `next`. A token that comes alone takes no draw.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub(super) fn sample_next(&mut self, logits: &Tensor, next: Option<&Next>) -> Result<u32> {
        self.reserve()?;
        with_floats(logits, |logits| self.choose(logits, next))?
    }

    /// Takes `token`, which comes next whatever the logits are.
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

    /// Chooses one of the tokens that are `allowed`, but none that stops as long as it is too early for that, unless there is
    /// no other; `None` of none.
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

    /// Chooses by `logits` one of the tokens that are `allowed`; `None` of none.
    fn choose_among(&mut self, logits: &[f32], allowed: impl Fn(u32) -> bool) -> Result<Option<u32>> {
        if self.changes() {
            let dry = self.dry.as_mut().map(DryPenalty::penalties);
            let others = self.biased.iter().chain(dry.into_iter().flat_map(BTreeMap::keys));
            self.seen.candidates(others, logits, &self.unused, &mut self.changed);
            for penalty in &self.penalties {
                penalty.apply(&mut self.changed, &self.seen);
            }
            for (id, penalty) in dry.into_iter().flatten() {
                self.changed.change(*id, |logit| logit - penalty);
            }
        }
        let changed = tokens(logits, &self.unused, self.changed.entries()).filter(|token| allowed(token.id));
        let chosen = match &mut self.draw {
            None => best(changed),
            Some(drawing) => drawing.choose(changed, &self.seen)?,
        };
        Ok(chosen.map(|token| token.id))
    }
}

impl Drawing {
    fn new(options: &SamplingOptions, seed: u64) -> Drawing {
        let mut narrowing: Vec<Box<dyn SamplingStep>> = Vec::new();
        if let Some(p) = options.top_p.filter(|p| *p != 1.0) {
            narrowing.push(Box::new(TopP(p)));
        }
        if let Some(p) = options.min_p.filter(|p| *p != 0.0) {
            narrowing.push(Box::new(MinP(p)));
        }
        Drawing {
            temperature: options.temperature.unwrap_or(1.0),
            top_k: options.top_k.filter(|k| *k > 0).unwrap_or(usize::MAX),
            narrowing,
            xtc: options.xtc.filter(|xtc| xtc.probability > 0.0 && xtc.threshold <= 0.5),
            candidates: Candidates::default(),
            draw: Draw::new(seed),
        }
    }

    /// Draws one of `tokens`, whose ids ascend; `None` of none.
    fn choose(&mut self, tokens: impl Iterator<Item = Candidate>, seen: &Seen) -> Result<Option<Candidate>> {
        let warm = |token: Candidate| Candidate { logit: divided(token.logit, self.temperature), ..token };
        self.candidates.fill(tokens.map(warm), self.top_k);
        for step in &self.narrowing {
            step.apply(&mut self.candidates, seen);
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

/// The steps that change the logits of tokens that were seen, in order.
fn penalties(options: &SamplingOptions) -> Vec<Box<dyn SamplingStep>> {
    let (presence, frequency) = (options.presence_penalty, options.frequency_penalty);
    let mut steps: Vec<Box<dyn SamplingStep>> = Vec::new();
    if !options.logit_bias.is_empty() {
        steps.push(Box::new(LogitBias(options.logit_bias.clone())));
    }
    if let Some(penalty) = options.repetition_penalty.filter(|penalty| *penalty != 1.0) {
        steps.push(Box::new(RepetitionPenalty(penalty)));
    }
    if presence != 0.0 || frequency != 0.0 {
        steps.push(Box::new(CountPenalty { presence, frequency }));
    }
    steps
}

/// 53 bits, so that a tool that reads JSON numbers as doubles repeats it exactly.
fn random_seed() -> u64 {
    RandomState::new().hash_one(SystemTime::now()) >> 11
}

/// A [`Constraint`](super::Constraint) has a sampler choose by logits `[vocab]`, F32, in a loop of your own, such as one over
/// [`Session::batch`](crate::Session::batch):
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
/// let mut logits = session.forward(&tokenizer.encode_prompt("Is it far? Answer yes or no: ")?)?;
/// let mut answer = Vec::new();
/// while let Some(token) = constraint.sample(&mut sampler, &logits)? {
///     answer.push(token);
///     logits = session.forward(&[token])?;
/// }
/// assert!(["yes", "no"].contains(&tokenizer.decode(&answer).trim_start()));
/// # Ok::<(), Error>(())
/// ```
impl Choose<Tensor> for Sampler {
    type Error = Error;

    fn choose_next(&mut self, logits: &Tensor, next: &Next) -> Result<u32> {
        self.sample_next(logits, Some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use model_factory_diagnostics::spec::GREEDY_BELOW;

    fn logits(values: &[f32]) -> Tensor {
        Tensor::new(values, &Device::Cpu).unwrap()
    }

    fn greedy() -> SamplingOptions {
        SamplingOptions::default()
    }

    fn drawing(temperature: f64, seed: u64) -> SamplingOptions {
        SamplingOptions { temperature: Some(temperature), seed: Some(seed), ..SamplingOptions::default() }
    }

    fn sampler(options: SamplingOptions, vocab: usize) -> Sampler {
        Sampler::new(&options, vocab).unwrap()
    }

    #[test]
    fn greedy_takes_the_largest_and_the_lowest_id_among_equals() {
        assert_eq!(sampler(greedy(), 4).sample(&logits(&[-1.0, 3.0, 2.0, 3.0])).unwrap(), 1);
        assert_eq!(sampler(greedy(), 2).sample(&logits(&[-0.0, 0.0])).unwrap(), 0);
    }

    #[test]
    fn rows_beyond_the_vocabulary_are_never_chosen() {
        assert_eq!(sampler(greedy(), 2).sample(&logits(&[1.0, 2.0, 9.0])).unwrap(), 1);
        let mut hot = sampler(drawing(100.0, 1), 2);
        assert!((0..200).all(|_| hot.sample(&logits(&[1.0, 2.0, 900.0])).unwrap() < 2));
        // Nor are they the most likely one that min-p measures by.
        let mut relative = sampler(SamplingOptions { min_p: Some(0.5), ..drawing(1.0, 1) }, 2);
        assert!((0..50).any(|_| relative.sample(&logits(&[1.0, 1.0, 900.0])).unwrap() == 0));
    }

    #[test]
    fn tokens_that_fill_the_vocabulary_up_are_never_chosen() {
        let values = logits(&[1.0, 90.0, 2.0, 900.0]);
        assert_eq!(sampler(greedy(), 4).without(&[1, 3]).unwrap().sample(&values).unwrap(), 2);
        let mut hot = sampler(drawing(5.0, 3), 4).without(&[1, 3]).unwrap();
        let drawn: Vec<u32> = (0..100).map(|_| hot.sample(&values).unwrap()).collect();
        assert!(drawn.contains(&0) && drawn.contains(&2) && !drawn.contains(&1) && !drawn.contains(&3), "{drawn:?}");
        // The penalty finds its token although ids are no longer indices.
        let mut penalized = sampler(SamplingOptions { presence_penalty: 1.5, ..greedy() }, 4).without(&[1, 3]).unwrap();
        assert_eq!([(); 2].map(|()| penalized.sample(&values).unwrap()), [2, 0]);
    }

    #[test]
    fn a_seed_repeats_its_draws_and_a_drawn_one_is_reported() {
        let even = logits(&[0.0; 64]);
        let draws = |seed| {
            let mut sampler = sampler(SamplingOptions { seed, ..drawing(1.0, 0) }, 64);
            ((0..20).map(|_| sampler.sample(&even).unwrap()).collect::<Vec<u32>>(), sampler.seed())
        };
        let (first, seed) = draws(None);
        assert_eq!(draws(Some(seed)), (first.clone(), seed));
        assert_ne!(draws(None).0, first);
        assert!(seed < 1 << 53);
    }

    /// Pearson's statistic of `counts` against `probabilities`.
    fn chi_square(counts: &[u32], probabilities: &[f64]) -> f64 {
        let draws = f64::from(counts.iter().sum::<u32>());
        let term = |(count, p): (&u32, &f64)| (f64::from(*count) - draws * p).powi(2) / (draws * p);
        counts.iter().zip(probabilities).map(term).sum()
    }

    fn histogram(options: SamplingOptions, values: &[f32], draws: usize) -> Vec<u32> {
        let mut sampler = sampler(options, values.len());
        let (values, mut counts) = (logits(values), vec![0; values.len()]);
        for _ in 0..draws {
            counts[sampler.sample(&values).unwrap() as usize] += 1;
        }
        counts
    }

    #[test]
    fn draws_follow_the_probabilities_of_what_the_steps_left() {
        // Probabilities 0.1, 0.4, 0.05, 0.15, 0.3. The bounds are the chi-square values that one seed in 10,000
        // exceeds (23.5 at 4 degrees of freedom, 18.4 at 2, 15.1 at 1); the seed is fixed, so the test cannot flicker.
        let known = [0.1f32, 0.4, 0.05, 0.15, 0.3].map(f32::ln);
        let all = histogram(drawing(1.0, 7), &known, 4000);
        assert!(chi_square(&all, &[0.1, 0.4, 0.05, 0.15, 0.3]) < 23.5, "{all:?}");

        // At temperature 1/2 probabilities are squared, 0.01, 0.16, 0.0025, 0.0225, 0.09, and divided by their sum 0.285.
        let cold = histogram(drawing(0.5, 7), &known, 4000);
        let squared = [0.01, 0.16, 0.0025, 0.0225, 0.09].map(|p| p / 0.285);
        assert!(chi_square(&cold, &squared) < 23.5, "{cold:?}");

        // The three most likely are 1, 4 and 3: 0.4, 0.3 and 0.15 of 0.85.
        let top_k = histogram(SamplingOptions { top_k: Some(3), ..drawing(1.0, 7) }, &known, 4000);
        assert_eq!((top_k[0], top_k[2]), (0, 0));
        assert!(chi_square(&[top_k[1], top_k[3], top_k[4]], &[8.0 / 17.0, 3.0 / 17.0, 6.0 / 17.0]) < 18.4, "{top_k:?}");

        // 0.4 + 0.3 reach 0.6; then 4 to 3. At least half of 0.4 has 0.3 alone, so min-p keeps the same two.
        for options in [
            SamplingOptions { top_p: Some(0.6), ..drawing(1.0, 7) },
            SamplingOptions { min_p: Some(0.5), ..drawing(1.0, 7) },
        ] {
            let two = histogram(options, &known, 4000);
            assert_eq!((two[0], two[2], two[3]), (0, 0, 0));
            assert!(chi_square(&[two[1], two[4]], &[4.0 / 7.0, 3.0 / 7.0]) < 15.1, "{two:?}");
        }
    }

    #[test]
    fn steps_apply_in_the_documented_order() {
        // Temperature comes before top-p: probabilities 0.6, 0.3, 0.1 squared are 0.783, 0.196, 0.022, so that 0.7 is
        // reached by the first alone. In the other order 0.6 would not reach it and two would be left.
        let values = [0.6f32, 0.3, 0.1].map(f32::ln);
        let before = histogram(SamplingOptions { top_p: Some(0.7), ..drawing(0.5, 3) }, &values, 300);
        assert_eq!(before, [300, 0, 0]);
        // Temperature comes before min-p too: flattened by 4 every share exceeds 0.5 (the third's is 6^(-1/4), 0.64).
        let flat = histogram(SamplingOptions { min_p: Some(0.5), ..drawing(4.0, 3) }, &values, 300);
        assert!(flat.iter().all(|count| *count > 0), "{flat:?}");
        // Penalties come before top-k: the largest logit is seen, and 4 / 2 is no longer the largest.
        let mut penalized =
            sampler(SamplingOptions { top_k: Some(1), repetition_penalty: Some(2.0), ..drawing(1.0, 3) }, 2);
        penalized.prompt(&[0]).unwrap();
        assert_eq!(penalized.sample(&logits(&[4.0, 3.0])).unwrap(), 1);
        // Repetition comes before presence: 4 / 2 - 1 = 1 loses to 1.25. In the other order (4 - 1) / 2 = 1.5 would win.
        let options = SamplingOptions { repetition_penalty: Some(2.0), presence_penalty: 1.0, ..greedy() };
        let mut both = sampler(options, 2);
        assert_eq!(both.sample(&logits(&[4.0, 1.25])).unwrap(), 0);
        assert_eq!(both.sample(&logits(&[4.0, 1.25])).unwrap(), 1);
    }

    #[test]
    fn greedy_heeds_penalties_and_nothing_else() {
        let narrowing = SamplingOptions { top_k: Some(1), top_p: Some(0.1), min_p: Some(1.0), ..greedy() };
        assert_eq!(sampler(narrowing, 2).sample(&logits(&[1.0, 2.0])).unwrap(), 1);
        let values = logits(&[2.0, 1.75, 1.0]);
        let greedily = |options| {
            let mut sampler = sampler(options, 3);
            (0..6).map(|_| sampler.sample(&values).unwrap()).collect::<Vec<u32>>()
        };
        // 2 - 0.5 = 1.5 after the first, so 1; then 1.75 - 0.5 = 1.25, and both keep their places for good.
        assert_eq!(greedily(SamplingOptions { presence_penalty: 0.5, ..greedy() }), [0, 1, 0, 0, 0, 0]);
        // Scores before each choice: 2, 1.75, 1 | 1.5, 1.75, 1 | 1.5, 1.25, 1 | 1, 1.25, 1 | 1, 0.75, 1 | 0.5, 0.75, 1.
        assert_eq!(greedily(SamplingOptions { frequency_penalty: 0.5, ..greedy() }), [0, 1, 0, 1, 0, 2]);
        // 2 / 4, then 1.75 / 4, then 1 / 4: the first leads again, once a token only.
        assert_eq!(greedily(SamplingOptions { repetition_penalty: Some(4.0), ..greedy() }), [0, 1, 2, 0, 0, 0]);
    }

    #[test]
    fn one_candidate_is_the_greedy_choice_at_any_temperature() {
        let values: Vec<f32> = (0..500).map(|id| ((id * 7919) % 499) as f32 / 50.0).collect();
        let best = sampler(greedy(), 500).sample(&logits(&values)).unwrap();
        for options in [
            SamplingOptions { top_k: Some(1), ..drawing(5.0, 1) },
            SamplingOptions { top_p: Some(0.0), ..drawing(5.0, 1) },
            SamplingOptions { min_p: Some(1.0), ..drawing(5.0, 1) },
            drawing(GREEDY_BELOW, 1),
            drawing(f64::MIN_POSITIVE, 1),
        ] {
            assert_eq!(sampler(options.clone(), 500).sample(&logits(&values)).unwrap(), best, "{options:?}");
        }
    }

    #[test]
    fn refuses_logits_that_are_no_numbers() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for options in
                [greedy(), drawing(1.0, 0), SamplingOptions { top_k: Some(1), min_p: Some(0.1), ..drawing(1.0, 0) }]
            {
                for values in [[0.0, 1.0, value], [value, 0.0, 1.0]] {
                    let error = sampler(options.clone(), 2).sample(&logits(&values)).unwrap_err();
                    assert!(matches!(error, Error::NonFiniteLogits { id: 0 | 2, .. }), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_vocabulary_without_a_token_to_choose_is_an_error() {
        for options in [greedy(), drawing(1.0, 0)] {
            let error = sampler(options, 2).without(&[0, 1]).unwrap().sample(&logits(&[0.0, 1.0])).unwrap_err();
            assert!(matches!(error, Error::NothingToChoose { vocab: 2 }), "{error}");
        }
    }

    #[test]
    fn biases_come_before_all_else_and_bar_or_force_a_token() {
        let values = logits(&[1.0, 3.0, 2.0, 0.0]);
        let biased = |bias: &[(u32, f64)]| SamplingOptions { logit_bias: bias.iter().copied().collect(), ..greedy() };
        assert_eq!(sampler(biased(&[(1, -100.0)]), 4).sample(&values).unwrap(), 2);
        assert_eq!(sampler(biased(&[(3, 100.0)]), 4).sample(&values).unwrap(), 3);
        // 3 - 1.5 - 1 is below 2, once 1 was chosen.
        let both = SamplingOptions { presence_penalty: 1.0, ..biased(&[(1, -0.5)]) };
        let mut both = sampler(both, 4);
        assert_eq!([(); 2].map(|()| both.sample(&values).unwrap()), [1, 2]);
        let refused = Sampler::new(&biased(&[(0, 101.0)]), 4).err();
        let outside = Sampler::new(&biased(&[(4, 1.0)]), 4).err();
        assert!(matches!(refused, Some(Error::Option { option: "logit_bias", .. })));
        assert!(matches!(outside, Some(Error::TokenOutOfVocabulary { id: 4, .. })));
    }

    #[test]
    fn stop_tokens_wait_for_the_least_number_of_tokens() {
        let values = logits(&[1.0, 3.0, 2.0, 0.0]);
        let late = SamplingOptions { min_tokens: 2, ..greedy() };
        let stop = StopTokens::from_iter([1]);
        let mut late = sampler(late, 4).with_stop(&stop);
        assert_eq!([(); 3].map(|()| late.sample(&values).unwrap()), [2, 2, 1]);
        // Where nothing else may come, it comes.
        late = sampler(SamplingOptions { min_tokens: 2, ..greedy() }, 4).with_stop(&StopTokens::from_iter(0..4));
        assert_eq!(late.sample(&values).unwrap(), 1);
    }

    #[test]
    fn the_most_likely_are_excluded_with_the_probability_asked_for() {
        // 0.4, 0.3, 0.2, 0.1: of those from 0.15 up the least probable stays, and all below.
        let values = [0.4_f32, 0.3, 0.2, 0.1].map(f32::ln);
        let xtc = |probability| {
            let xtc = Some(Xtc { probability, threshold: 0.15 });
            histogram(SamplingOptions { xtc, ..drawing(1.0, 5) }, &values, 6000)
        };
        // 10.8 and 16.3 are exceeded once in a thousand seeds, and this is one seed.
        let (always, half) = (xtc(1.0), xtc(0.5));
        assert!(always[..2] == [0, 0] && chi_square(&always[2..], &[2.0 / 3.0, 1.0 / 3.0]) < 10.8, "{always:?}");
        assert!(chi_square(&half, &[0.2, 0.15, 0.1 + 1.0 / 3.0, 0.05 + 1.0 / 6.0]) < 16.3, "{half:?}");
        assert_eq!(xtc(0.0), histogram(drawing(1.0, 5), &values, 6000));
        // Fewer than two: nothing happens.
        let alone = SamplingOptions { xtc: Some(Xtc { probability: 1.0, threshold: 0.35 }), ..drawing(1.0, 5) };
        assert!(histogram(alone, &values, 1000)[0] > 300);
    }

    #[test]
    fn refuses_values_out_of_range_by_name() {
        type Set = fn(&mut SamplingOptions, f64);
        let table: [(&str, Set, &[f64], &[f64]); 6] = [
            ("temperature", |options, value| options.temperature = Some(value), &[-0.1], &[0.0, 5.0]),
            ("top_p", |options, value| options.top_p = Some(value), &[-0.1, 1.1], &[0.0, 1.0]),
            ("min_p", |options, value| options.min_p = Some(value), &[-0.1, 1.1], &[0.0, 1.0]),
            (
                "repetition_penalty",
                |options, value| options.repetition_penalty = Some(value),
                &[0.0, -1.0],
                &[0.5, 2.0],
            ),
            ("presence_penalty", |options, value| options.presence_penalty = value, &[-2.1, 2.1], &[-2.0, 2.0]),
            ("frequency_penalty", |options, value| options.frequency_penalty = value, &[-2.1, 2.1], &[-2.0, 2.0]),
        ];
        for (name, set, wrong, right) in table {
            for value in wrong.iter().copied().chain([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]) {
                let mut options = greedy();
                set(&mut options, value);
                let error = Sampler::new(&options, 2).err();
                assert!(matches!(error, Some(Error::Option { option, .. }) if option == name), "{name} {value}");
            }
            for value in right {
                let mut options = greedy();
                set(&mut options, *value);
                assert!(Sampler::new(&options, 2).is_ok(), "{name} {value}");
            }
        }
    }
}
