//! Guesses at the next tokens of a sequence, and how often they were right. Only the sampler decides whether one is right.

mod draft;
mod ngrams;

use super::options::{GenerateOptions, SamplingOptions, Speculation};
use super::sampler::Sampler;
use super::{Constraint, Step, StopTokens, Timings};
use crate::cancel::CancellationToken;
use crate::error::{Error, Result};
use crate::memory;
use crate::scheduler::costs::MOST_GUESSES;
use crate::tokenizer::Tokenizer;
use draft::Draft;
use ngrams::{KINDS, Ngrams};
use tracing::warn;

/// The weight of an older guess in the hit rate, compared with the guess after it.
const FADES: f64 = 0.95;

#[derive(Debug)]
enum Source {
    Ngrams(Ngrams),
    Draft(Box<Draft>),
}

pub(super) struct DraftContext<'a> {
    pub(super) step: &'a mut dyn Step,
    /// The most tokens to guess after that step.
    pub(super) most: usize,
    /// Tokens that end the sequence, and are not guessed.
    pub(super) stop: &'a StopTokens,
    pub(super) sampler: &'a Sampler,
    pub(super) cancel: &'a CancellationToken,
    pub(super) constraint: Option<&'a mut Constraint>,
}

#[derive(Debug)]
pub(super) struct Speculator {
    /// Where the guesses come from; `None` once that failed.
    source: Option<Source>,
    /// The tokens of the prompt and the generated ones.
    sequence: Vec<u32>,
    /// The number of guesses a step, in place of as many as pay off.
    tokens: Option<usize>,
    /// The last guesses, the index of the next one to be decided, and how many are computed ahead from there on.
    guesses: Vec<u32>,
    next: usize,
    ahead: usize,
    /// Whether the last token was a guess, so that the logits after it are already computed.
    computed: bool,
    /// The index in `hits` that counts these guesses; those of a draft model are of one kind.
    kind: usize,
    hits: [Hits; KINDS],
}

/// How many guesses of a kind were right, and how many were decided on.
#[derive(Clone, Copy, Debug, Default)]
struct Hits {
    right: f64,
    decided: f64,
}

impl Hits {
    fn count(&mut self, right: bool) {
        self.right = self.right * FADES + f64::from(u8::from(right));
        self.decided = self.decided * FADES + 1.0;
    }

    /// The probability that the next guess is right.
    fn likely(self) -> f64 {
        (self.right + 1.0) / (self.decided + 2.0)
    }
}

impl Speculator {
    /// The guesses of a generation that continues `sequence` and samples by `sampling`; `None` without speculation.
    ///
    /// # Errors
    /// `Encode`, `OutOfMemory`.
    pub(super) fn new(
        options: &GenerateOptions,
        sampling: &SamplingOptions,
        tokenizer: &Tokenizer,
        sequence: &[u32],
    ) -> Result<Option<Box<Speculator>>> {
        let source = match options.speculate {
            Speculation::Off => return Ok(None),
            Speculation::Ngram => {
                let texts = options.speculate_from.iter().map(|text| tokenizer.encode(text, false));
                Source::Ngrams(Ngrams { texts: texts.collect::<Result<_, _>>()? })
            }
            // The step has the draft model or the prediction head.
            Speculation::Draft | Speculation::Mtp => {
                let sampler = Sampler::new(sampling, tokenizer.vocab_len())?.without(tokenizer.unused_ids())?;
                let sampler = sampler.with_dry(sampling, tokenizer);
                Source::Draft(Box::new(Draft::new(sampler)))
            }
        };
        Ok(Some(Box::new(Speculator {
            source: Some(source),
            sequence: memory::copied(sequence, "the ids of a sequence")?,
            tokens: options.speculative_tokens,
            guesses: Vec::new(),
            next: 0,
            ahead: 0,
            computed: false,
            kind: 0,
            hits: Default::default(),
        })))
    }

    pub(super) fn reserve(&mut self) -> Result<()> {
        memory::grow(&mut self.sequence, 1 + MOST_GUESSES, "the ids of a sequence")?;
        let missing = MOST_GUESSES.saturating_sub(self.guesses.len());
        Ok(memory::grow(&mut self.guesses, missing, "guessed tokens")?)
    }

    /// Gives guesses to the next step, unless the logits after the last token are already computed; returns how many it computes.
    /// If it computes none, the first guess still counts as right or wrong, to find out when guesses pay off again.
    pub(super) fn guess(&mut self, mut now: DraftContext<'_>) -> usize {
        if self.is_ahead() {
            return 0;
        }
        self.next = 0;
        self.guesses.clear();
        let most = now.most.min(self.tokens.unwrap_or(MOST_GUESSES));
        let Speculator { sequence, guesses, hits, .. } = self;
        let likely = |hits: Hits| self.tokens.is_none().then(|| hits.likely());
        self.kind = match &mut self.source {
            None => return 0,
            Some(Source::Ngrams(ngrams)) => ngrams.guess(sequence, most, guesses),
            Some(Source::Draft(draft)) => match draft.guess(sequence, most, likely(hits[0]), &mut now, guesses) {
                Ok(()) => 0,
                Err(Error::Cancelled) => return 0,
                Err(error) => {
                    warn!(%error, "what guesses failed; the generation goes on without its guesses");
                    guesses.clear();
                    self.source = None;
                    return 0;
                }
            },
        };
        let end = guesses.iter().position(|token| now.stop.contains(*token)).unwrap_or(guesses.len());
        guesses.truncate(end);
        if let (Some(constraint), false) = (&now.constraint, guesses.is_empty()) {
            guesses.truncate(constraint.fork().valid(guesses));
        }
        if !guesses.is_empty() {
            self.ahead = now.step.guess(guesses, likely(hits[self.kind])).min(guesses.len());
            guesses.truncate(self.ahead.max(1));
        }
        self.ahead
    }

    /// Whether the logits after the last token are already computed.
    pub(super) fn is_ahead(&self) -> bool {
        self.ahead > 0 || self.computed
    }

    pub(super) fn drawn(&mut self, token: u32, timings: &mut Timings) {
        self.sequence.push(token);
        self.computed = false;
        let Some(guess) = self.guesses.get(self.next) else { return };
        let right = *guess == token;
        self.hits[self.kind].count(right);
        if right {
            self.computed = self.ahead > 0;
            timings.accepted += usize::from(self.computed);
            self.next += 1;
            self.ahead = self.ahead.saturating_sub(1);
        } else {
            self.ahead = 0;
        }
        if self.ahead == 0 {
            self.guesses.clear();
            self.next = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logits::Logits;

    /// A step that computes at most so many guesses, and whose draft model guesses the successor of the last token.
    struct Takes {
        count: usize,
        told: Vec<u32>,
        likely: Option<f64>,
        drafts: usize,
        fails: bool,
    }

    impl Takes {
        fn new(count: usize) -> Takes {
            Takes { count, told: Vec::new(), likely: None, drafts: 0, fails: false }
        }
    }

    impl Step for Takes {
        fn forward(&mut self, _: &[u32], _: &CancellationToken) -> Result<Logits> {
            Err(Error::EmptyPrompt)
        }

        fn room(&self) -> usize {
            0
        }

        fn guess(&mut self, tokens: &[u32], likely: Option<f64>) -> usize {
            (self.told, self.likely) = (tokens.to_vec(), likely);
            self.count.min(tokens.len())
        }

        fn draft_tokens(&self, most: usize, likely: Option<f64>) -> usize {
            if likely.is_some() { most.min(self.count) } else { most }
        }

        fn draft(&mut self, sequence: &[u32], _: &CancellationToken) -> Result<Option<Logits>> {
            self.drafts += 1;
            if self.fails {
                return Err(Error::Engine(crate::error::EngineError::Forked));
            }
            let next = sequence.last().unwrap() + 1;
            let logits: Vec<f32> = (0..10).map(|id| if id == next { 1.0 } else { 0.0 }).collect();
            Ok(Some(logits.into()))
        }
    }

    fn greedy() -> Sampler {
        Sampler::new(&SamplingOptions::default(), 10).unwrap()
    }

    fn speculator(source: Source, sequence: &[u32]) -> Speculator {
        Speculator {
            source: Some(source),
            sequence: sequence.to_vec(),
            tokens: None,
            guesses: Vec::new(),
            next: 0,
            ahead: 0,
            computed: false,
            kind: 0,
            hits: Default::default(),
        }
    }

    fn ngrams(sequence: &[u32]) -> Speculator {
        speculator(Source::Ngrams(Ngrams { texts: Vec::new() }), sequence)
    }

    /// The guesses that `step` is given, and how likely they are.
    fn told(speculator: &mut Speculator, step: &mut Takes, stop: &StopTokens) -> (Vec<u32>, Option<f64>, usize) {
        (step.told, step.likely) = (Vec::new(), None);
        speculator.reserve().unwrap();
        let count = speculator.guess(DraftContext {
            step,
            most: 5,
            stop,
            sampler: &greedy(),
            cancel: &CancellationToken::new(),
            constraint: None,
        });
        (std::mem::take(&mut step.told), step.likely, count)
    }

    #[test]
    fn tokens_that_end_a_sequence_are_not_guessed() {
        for (stop, expected) in [(9, &[7, 8][..]), (7, &[])] {
            let stop = StopTokens::from_iter([stop]);
            let mut repeating = ngrams(&[1, 2, 7, 8, 9, 1, 2]);
            assert_eq!(told(&mut repeating, &mut Takes::new(5), &stop).0, expected);
        }
        let mut counting = speculator(Source::Draft(Box::new(Draft::new(greedy()))), &[1]);
        let mut step = Takes::new(5);
        assert_eq!(told(&mut counting, &mut step, &StopTokens::from_iter([4])).0, [2, 3]);
        assert_eq!(step.drafts, 3, "not beyond it");
    }

    #[test]
    fn what_is_drawn_decides_on_guesses_and_how_likely_the_next_are() {
        let (mut timings, stop) = (Timings::default(), StopTokens::default());
        let mut speculator = ngrams(&[1, 2, 7, 8, 9, 1, 2]);
        assert_eq!(told(&mut speculator, &mut Takes::new(3), &stop), (vec![7, 8, 9, 1, 2], Some(0.5), 3));
        speculator.drawn(7, &mut timings);
        assert!(told(&mut speculator, &mut Takes::new(3), &stop).0.is_empty(), "two are computed ahead");
        speculator.drawn(8, &mut timings);
        speculator.drawn(3, &mut timings);
        assert_eq!(timings.accepted, 2);
        assert!(told(&mut speculator, &mut Takes::new(3), &stop).0.is_empty(), "nothing followed 8 and 3");
        for token in [4, 1, 2] {
            speculator.reserve().unwrap();
            speculator.drawn(token, &mut timings);
        }
        // Two of three guesses were right.
        let likely = told(&mut speculator, &mut Takes::new(0), &stop).1.unwrap();
        assert!((likely - (0.95f64.powi(2) + 0.95 + 1.0) / (0.95f64.powi(2) + 0.95 + 3.0)).abs() < 1e-12, "{likely}");
        // The guess is counted although it is not computed.
        speculator.drawn(7, &mut timings);
        assert!(speculator.hits[0].right > 2.0);
        assert_eq!(told(&mut speculator, &mut Takes::new(1), &stop).0, [8, 3, 4, 1, 2]);
        speculator.drawn(8, &mut timings);
        assert!(
            told(&mut speculator, &mut Takes::new(1), &stop).0.is_empty(),
            "what follows the guess that was computed is there"
        );
        speculator.drawn(9, &mut timings);
        assert!(!told(&mut speculator, &mut Takes::new(1), &stop).0.is_empty());
        assert_eq!(timings.accepted, 3);
    }

    #[test]
    fn a_draft_model_that_does_not_pay_is_asked_now_and_then() {
        let (mut timings, stop) = (Timings::default(), StopTokens::default());
        let mut speculator = speculator(Source::Draft(Box::new(Draft::new(greedy()))), &[1]);
        let mut step = Takes::new(2);
        assert_eq!(told(&mut speculator, &mut step, &stop), (vec![2, 3], Some(0.5), 2));
        assert_eq!(speculator.sequence, [1], "guesses are no part of it");
        speculator.drawn(5, &mut timings);
        (step.count, step.drafts) = (0, 0);
        let asked: Vec<usize> = (0..200)
            .filter(|_| {
                let asked = !told(&mut speculator, &mut step, &stop).0.is_empty();
                speculator.drawn(5, &mut timings);
                asked
            })
            .collect();
        assert_eq!((asked, step.drafts), (vec![63, 127, 191], 6));
    }

    #[test]
    fn a_draft_model_that_fails_guesses_no_more() {
        let (mut timings, stop) = (Timings::default(), StopTokens::default());
        let mut speculator = speculator(Source::Draft(Box::new(Draft::new(greedy()))), &[1]);
        let mut step = Takes { fails: true, ..Takes::new(2) };
        for _ in 0..200 {
            assert_eq!(told(&mut speculator, &mut step, &stop), (vec![], None, 0));
            speculator.drawn(5, &mut timings);
        }
        assert_eq!(step.drafts, 1);
    }
}
