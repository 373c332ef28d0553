//! Ids of a prompt -> text, a piece at a time.

mod draw;
mod dry;
pub(crate) mod logprobs;
mod options;
mod pieces;
mod prompt_logprobs;
mod sampler;
mod speculate;
mod step;
mod steps;
mod timings;

use crate::cancel::CancellationToken;
use crate::error::{Error, Result};
use crate::input::{Input, Rows};
use crate::logits::Logits;
use crate::memory;
use crate::scheduler::TakeLogits;
use crate::scheduler::admission::Admitted;
use crate::tokenizer::{PieceDecoder, Tokenizer};
use crate::tools::{CallReader, Calls};
pub use crate::tools::{ToolCall, ToolChoice};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

pub use crate::answers::MAX_ANSWERS;
pub use crate::grammar::Grammar;
pub use crate::score::Score;
pub use crate::text_model::TextGeneration;
pub use model_factory_text::answer::{Answer, AnswerDelta, AnswerReader, FinishReason, LogProbs, Piece, StopTokens};
use model_factory_text::answer::{StopStrings, Thinking};
pub use model_factory_text::constraint::{Choose, Constraint, Next, TokenSet};
pub use options::{Dry, GenerateOptions, SamplingOptions, Speculation, Xtc};
pub(crate) use options::{in_ranges, setters};
use prompt_logprobs::PromptLogProbs;
pub(crate) use prompt_logprobs::{KeptLogProbs, LogProbsKey};
pub use sampler::Sampler;
use speculate::{DraftContext, Speculator};
pub use step::Step;
pub use timings::Timings;

/// A running generation: an iterator of pieces. Dropping it stops it, and so does the [`CancellationToken`] of its options.
#[must_use = "nothing is computed before the generation is iterated"]
pub struct Generation<S> {
    pub(crate) step: S,
    pub(crate) state: State,
}

/// What a step of a generation computes.
pub(crate) struct StepInput<'s> {
    pub(crate) rows: Rows<'s>,
    /// What takes the logits of each row, where they are wanted.
    pub(crate) to: Option<Arc<dyn TakeLogits>>,
    pub(crate) cancel: &'s CancellationToken,
}

/// Everything of a generation except what computes it.
#[derive(Debug)]
pub(crate) struct State {
    tokenizer: Arc<Tokenizer>,
    decoder: PieceDecoder,
    sampler: Sampler,
    stop: StopTokens,
    stop_strings: StopStrings,
    max_tokens: usize,
    pub(crate) cancel: CancellationToken,
    /// What the next step computes: the prompt, then the last token.
    input: Input,
    ids: Vec<u32>,
    finish: Option<FinishReason>,
    thinking: Thinking,
    constraint: Option<Box<Constraint>>,
    /// Whether the constraint also applies to the model's thoughts.
    holds_thought: bool,
    calls: Option<Box<CallReader>>,
    /// Whether the generation ends after its first call.
    is_one_call: bool,
    speculator: Option<Box<Speculator>>,
    /// Pieces of the last step that were not returned yet.
    ready: VecDeque<Piece>,
    /// An error to return after the text that was held back.
    failed: Option<Error>,
    /// When the computation of the current token began.
    begun: Instant,
    timings: Timings,
    /// How probable the tokens of the prompt are, where that is wanted, until it is known.
    prompt_logprobs: Option<Arc<PromptLogProbs>>,
    /// Whether a stop token that ends the generation has a piece.
    gives_stop: bool,
    /// The place among the running generations, freed when the generation is dropped.
    pub(crate) admitted: Option<Admitted>,
}

impl State {
    /// The state of a generation that continues `before` and `prompt`, and samples by `sampling` instead of by that of `options`.
    ///
    /// # Errors
    /// `Option` for an option out of range, `EmptyStopString`, `Grammar`, `OutOfMemory`.
    pub(crate) fn new(
        tokenizer: Arc<Tokenizer>,
        before: &[u32],
        prompt: Input,
        stop: StopTokens,
        options: &GenerateOptions,
        sampling: &SamplingOptions,
    ) -> Result<State> {
        options.in_range()?;
        let mut sequence = memory::reserved(before.len() + prompt.len(), "the ids of a sequence")?;
        sequence.extend_from_slice(before);
        sequence.extend_from_slice(prompt.ids());
        let mut sampler = Sampler::new(sampling, tokenizer.vocab_len())?
            .without(tokenizer.unused_ids())?
            .with_logprobs(options.logprobs)
            .with_dry(sampling, &tokenizer);
        sampler.prompt(&sequence)?;
        let of_prompt = |top| Arc::new(PromptLogProbs::new(prompt.ids(), top, &tokenizer));
        let prompt_logprobs = options.prompt_logprobs.map(of_prompt);
        let (prompt_tokens, cached_tokens) = (prompt.len(), before.len());
        let timings = Timings { prompt_tokens, cached_tokens, seed: sampler.seed(), ..Timings::default() };
        let mut stop = if options.ignore_stop { StopTokens::default() } else { stop };
        stop.extend(options.stop_tokens.iter().copied());
        sampler = sampler.with_stop(&stop);
        let (choice, other) = (&options.tool_choice, options.grammar.as_ref());
        let calls = Calls::of(choice, &options.chat, other, &tokenizer, number_of(&sequence, sampler.seed()))?;
        let Calls { mut reader, grammar, holds_thought } = calls;
        // Where tools may or must be called, the grammar of the calls includes that of the text outside of them.
        let grammar = grammar.as_ref().or(options.grammar.as_ref());
        let cancel = options.cancel.clone().unwrap_or_default();
        let constraint = grammar.map(|grammar| Constraint::begun(&tokenizer, grammar, stop.clone(), &cancel));
        let constraint = constraint.transpose()?.map(Box::new);
        let mut thinking = Thinking::after(&tokenizer, &sequence);
        if let Some(tokens) = options.thinking_budget {
            thinking = thinking.within(tokens, &tokenizer)?;
        }
        if let Some(reader) = &mut reader {
            reader.message_to(thinking.recipient(), &mut VecDeque::new());
        }
        Ok(State {
            // The text of a constrained answer is exactly what its grammar matches, with a leading blank if it has one.
            decoder: if constraint.is_some() && (options.tool_choice != ToolChoice::Strict || options.grammar.is_some())
            {
                PieceDecoder::whole()
            } else {
                tokenizer.stream_after(&sequence)
            },
            thinking,
            holds_thought,
            calls: reader.map(Box::new),
            is_one_call: !options.parallel_tool_calls,
            speculator: Speculator::new(options, sampling, &tokenizer, &sequence)?,
            tokenizer,
            sampler,
            constraint,
            stop,
            stop_strings: StopStrings::new(&options.stop)?.included(options.include_stop),
            max_tokens: options.max_tokens,
            cancel,
            input: prompt,
            ids: Vec::new(),
            finish: (options.max_tokens == 0 && prompt_logprobs.is_none()).then_some(FinishReason::Length),
            ready: VecDeque::new(),
            failed: None,
            begun: Instant::now(),
            timings,
            gives_stop: prompt_logprobs.is_some(),
            prompt_logprobs,
            admitted: None,
        })
    }
}

/// A number of the answer to `prompt` with this seed.
fn number_of(prompt: &[u32], seed: u64) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    prompt.iter().for_each(|id| sum.update(&id.to_le_bytes()));
    sum.update(&seed.to_le_bytes());
    sum.finalize()
}

impl<S: Step> Generation<S> {
    /// Prepares to continue with `prompt`, ids that `step` has not seen, until one of `stop`. `before` are the ids it
    /// has seen: text that continues them keeps its leading space, and penalties count them. Sampling options that say
    /// nothing are off here. Nothing is computed before the first `next`.
    ///
    /// This is how a loop of your own takes part: a [`Step`] that wraps a session, or has nothing to do with one.
    ///
    /// ```
    /// use model_factory::generate::{Step, StopTokens};
    /// use model_factory::{CancellationToken, Error, GenerateOptions, Generation, Logits, Session, UnifiedModelFactory};
    /// use std::sync::Arc;
    ///
    /// /// A session that counts what it computes.
    /// struct Counted {
    ///     session: Session,
    ///     tokens: usize,
    /// }
    ///
    /// impl Step for Counted {
    ///     fn forward(&mut self, tokens: &[u32], cancel: &CancellationToken) -> Result<Logits, Error> {
    ///         self.tokens += tokens.len();
    ///         self.session.next_logits_unless(tokens, cancel) // change the logits here, or compute them elsewhere
    ///     }
    ///
    ///     fn room(&self) -> usize {
    ///         self.session.room()
    ///     }
    /// }
    ///
    /// let model = UnifiedModelFactory::load("fixtures/demo-q4_k_m.gguf")?;
    /// let tokenizer = Arc::clone(model.tokenizer());
    /// let prompt = tokenizer.encode_prompt("Once upon a time")?;
    /// let asked = prompt.len();
    /// let (step, stop) = (Counted { session: model.session(), tokens: 0 }, StopTokens::from(&model.spec().tokenizer));
    /// let options = GenerateOptions::default().max_tokens(5).ignore_stop(true);
    /// let mut generation = Generation::new(step, tokenizer, &[], prompt, stop, &options)?;
    /// let text = generation.text()?;
    /// assert!(!text.is_empty());
    /// assert_eq!(generation.into_inner().tokens, asked + 4, "the last token is chosen and not computed on");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `EmptyPrompt`, `ContextOverflow` when the prompt does not fit, `Option` for an option out of range,
    /// `EmptyStopString`, `Grammar`, `OutOfMemory`.
    pub fn new(
        step: S,
        tokenizer: Arc<Tokenizer>,
        before: &[u32],
        prompt: Vec<u32>,
        stop: StopTokens,
        options: &GenerateOptions,
    ) -> Result<Self> {
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let (limit, asked) = (step.room(), prompt.len());
        if asked > limit {
            return Err(Error::ContextOverflow { limit, asked });
        }
        let state = State::new(tokenizer, before, prompt.into(), stop, options, &options.sampling)?;
        Ok(Generation { step, state })
    }

    /// The tokens generated so far, those of a stop string included; a stop token is not.
    pub fn ids(&self) -> &[u32] {
        &self.state.ids
    }

    /// Why the generation ended (`None` while it runs, or after an error), and how long it took.
    pub fn finish(&self) -> (Option<FinishReason>, Timings) {
        (self.state.finish, self.state.timings)
    }

    /// The [`Step`] of the generation: a session, for the next turn of a conversation.
    pub fn into_inner(self) -> S {
        self.step
    }

    /// Generates to the end and returns the whole text.
    ///
    /// # Errors
    /// The first error of any step.
    pub fn text(&mut self) -> Result<String> {
        self.try_fold(String::new(), |mut text, piece| {
            memory::append(&mut text, &piece?.text, "the text of a generation")?;
            Ok(text)
        })
    }

    /// Generates to the end and returns the answer, apart from what was thought.
    ///
    /// # Errors
    /// The first error of any step.
    pub fn answer(&mut self) -> Result<Answer> {
        let either = self.state.thinking.has_messages();
        Answer::of(self, either)
    }
}

impl State {
    /// What prompts of the same `key` in `kept` have in common with the prompt needs no logits, where they are wanted.
    pub(crate) fn share_logprobs(&mut self, kept: &Arc<KeptLogProbs>, key: LogProbsKey) {
        self.prompt_logprobs = self.prompt_logprobs.take().map(|own| own.shared(kept, key));
    }

    /// Whether there is another token to compute for.
    fn is_running(&self) -> bool {
        self.failed.is_none() && self.finish.is_none() && !self.input.is_empty()
    }

    /// What to compute next; `step`, which computes it, is given guesses for what follows.
    /// `None` when nothing is to be computed: a piece is ready, or the generation has ended.
    ///
    /// # Errors
    /// `OutOfMemory`, for the memory of [`complete`](Self::complete); `Grammar`.
    pub(crate) fn input(&mut self, step: &mut impl Step) -> Result<Option<StepInput<'_>>> {
        if !self.ready.is_empty() || !self.is_running() {
            return Ok(None);
        }
        self.begun = Instant::now();
        self.reserve()?;
        self.skip(step)?;
        if !self.ready.is_empty() || !self.is_running() {
            return Ok(None);
        }
        let is_held = self.is_held();
        let Self { speculator, constraint, stop, sampler, cancel, .. } = self;
        if let Some(speculator) = speculator {
            // The last token is chosen but not computed, and guesses are made only after a single token.
            let most = match self.input.ids() {
                [_] if !self.ids.is_empty() => {
                    (self.max_tokens - self.timings.generated - 1).min(self.thinking.free_tokens())
                }
                _ => 0,
            };
            let constraint = constraint.as_deref_mut().filter(|_| is_held);
            let guesses = speculator.guess(DraftContext { step, most, stop, sampler, cancel, constraint });
            self.timings.guessed += guesses;
        }
        let to = self.prompt_logprobs.as_ref().map(|of| Arc::<PromptLogProbs>::clone(of) as Arc<dyn TakeLogits>);
        Ok(Some(StepInput { rows: self.input.rows(), to, cancel: &self.cancel }))
    }

    fn reserve(&mut self) -> Result<()> {
        memory::grow(&mut self.ids, 1, "the ids of a generation")?;
        self.input.grow(1)?;
        if let Some(speculator) = &mut self.speculator {
            speculator.reserve()?;
        }
        self.sampler.reserve()
    }

    /// Whether the next token is held to the constraint, where there is one.
    fn is_held(&self) -> bool {
        self.holds_thought || self.thinking.is_answering()
    }

    /// What constrains the next token: the budget of a thought, or the constraint of an answer and the tokens that it allows.
    fn next(&mut self) -> Result<Option<Next>> {
        let (opening, is_held) = (self.thinking.opening(), self.is_held());
        let constraint = self.constraint.as_mut().filter(|_| is_held);
        let closing = self.thinking.closing(self.decoder.is_complete());
        // A mark that is a stop token would end the answer, and it may be too early for that.
        if let Some(closing) = closing.filter(|mark| !(self.stop.contains(*mark) && self.sampler.is_early())) {
            // A grammar that holds thoughts too may ask for some text first.
            if constraint.as_ref().is_none_or(|constraint| constraint.fork().valid(&[closing]) > 0) {
                return Ok(Some(Next::One(closing)));
            }
        }
        Ok(constraint.map(|constraint| constraint.next(opening)).transpose()?)
    }

    /// Takes the tokens that the grammar or the budget of a thought forces, where `step` computes them with the next one, and ends
    /// the generation where no token is possible. What is already computed ahead is not computed again.
    fn skip(&mut self, step: &impl Step) -> Result<()> {
        let joins = step.joins() && self.sampler.top.is_none() && self.prompt_logprobs.is_none();
        while let (true, Some(next)) = (self.finish.is_none(), self.next()?) {
            match next {
                Next::End => {
                    self.finish = Some(FinishReason::Grammar);
                    self.end();
                }
                Next::One(token)
                    if joins
                        && !self.stop.contains(token)
                        && self.speculator.as_ref().is_none_or(|guesses| !guesses.is_ahead()) =>
                {
                    let Some(room) = step.room().checked_sub(self.input.len()) else { break };
                    self.reserve()?;
                    self.sampler.take(token);
                    self.timings.forced += 1;
                    self.take(token, None, room)?;
                }
                _ => break,
            }
        }
        if self.finish.is_some() {
            self.admitted = None;
        }
        Ok(())
    }

    /// Notes how many tokens of the prompt were not computed.
    pub(crate) fn note_reused(&mut self, tokens: usize) {
        if self.timings.prefill.is_zero() {
            let tokens = tokens.min(self.timings.prompt_tokens);
            self.timings.prompt_tokens -= tokens;
            self.timings.cached_tokens += tokens;
        }
    }

    /// Chooses a token by the logits after the [`input`](Self::input), or ends with their error. `room` tokens fit after it.
    pub(crate) fn complete(&mut self, logits: Result<Logits>, room: usize) {
        if let Err(error) = logits.and_then(|logits| self.advance(&logits, room)) {
            // An error ends the iteration: nothing sensible can follow. The text that was held back comes first.
            self.input.clear();
            self.end();
            match error {
                Error::Cancelled => self.finish = Some(FinishReason::Cancelled),
                error => self.failed = Some(error),
            }
        }
        if self.finish.is_some() || self.failed.is_some() {
            self.admitted = None;
        }
    }

    /// The next piece that is ready, or the error that comes after the pieces.
    pub(crate) fn pop(&mut self) -> Option<Result<Piece>> {
        self.ready.pop_front().map(Ok).or_else(|| self.failed.take().map(Err))
    }

    /// Chooses a token and makes its pieces ready.
    fn advance(&mut self, logits: &[f32], room: usize) -> Result<()> {
        if let Some(of_prompt) = self.prompt_logprobs.take() {
            let mut piece = Piece::default();
            piece.prompt_logprobs = Some(of_prompt.all()?);
            self.ready.push_back(piece);
            if self.max_tokens == 0 {
                self.timings.prefill = self.begun.elapsed();
                self.finish = Some(FinishReason::Length);
                return Ok(());
            }
        }
        let next = self.next()?;
        let token = self.sampler.sample_next(logits, next.as_ref())?;
        let logprobs = self.sampler.take_logprobs();
        if self.timings.prefill.is_zero() {
            self.timings.prefill = self.begun.elapsed();
        } else {
            self.timings.decode += self.begun.elapsed();
            self.timings.decode_steps += 1;
        }
        if self.stop.contains(token) {
            self.finish = Some(FinishReason::Stop(token));
            self.end();
            if self.gives_stop {
                let mut piece = Piece::default();
                (piece.token, piece.logprobs) = (Some(token), logprobs);
                self.ready.push_back(piece);
            }
            return Ok(());
        }
        self.input.clear();
        self.take(token, logprobs, room)
    }

    /// Appends a token that does not end the generation by itself, and makes its pieces ready.
    fn take(&mut self, token: u32, logprobs: Option<LogProbs>, room: usize) -> Result<()> {
        let opens = self.thinking.opening() == Some(token);
        let is_held = self.is_held();
        let constraint = self.constraint.as_mut().filter(|_| is_held);
        match constraint {
            Some(constraint) if opens => constraint.put_off(),
            Some(constraint) => constraint.take(token)?,
            None => {}
        }
        if let Some(speculator) = &mut self.speculator {
            speculator.drawn(token, &mut self.timings);
        }
        self.timings.generated += 1;
        self.ids.push(token);
        self.input.push(token);
        let (mut text, mut decoded) = (String::new(), String::new());
        let tokenizer = Arc::clone(&self.tokenizer);
        let bytes = tokenizer.token_bytes(token).unwrap_or_default();
        let mut class = self.thinking.token(token, bytes);
        if self.constraint.is_some() {
            class.after = 0; // an answer begins with a token of its own
        }
        if self.frames_call(token, bytes, (class.before, class.thought)) {
            class.text = b"";
        }
        let thinking = class.thought;
        let mut is_open = self.finish.is_none();
        if is_open {
            self.decoder.push(class.text, &mut decoded);
            self.thinking.decoded(&class, decoded.len());
            if let Some(index) = self.stop_strings.push(&decoded, &mut text) {
                (self.finish, is_open) = (Some(FinishReason::StopString(index)), false);
            }
        }
        if is_open {
            self.finish = if self.constraint.as_ref().is_some_and(|constraint| constraint.is_ended()) {
                Some(FinishReason::Grammar)
            } else if self.timings.generated == self.max_tokens {
                Some(FinishReason::Length)
            } else {
                (room == 0).then_some(FinishReason::Context)
            };
            if self.finish.is_some() {
                self.flush(&mut text);
            }
        }
        self.give(&text, Some((token, thinking)), logprobs);
        if self.finish.is_some() {
            self.end_calls();
        }
        self.end_after_call();
        Ok(())
    }
}

impl<S: Step> Iterator for Generation<S> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        let Generation { step, state } = self;
        loop {
            let logits = match state.input(step) {
                Ok(Some(StepInput { rows, to: Some(to), cancel })) => step.forward_each(rows, &to, cancel),
                Ok(Some(StepInput { rows, to: None, cancel })) => step.forward_rows(rows, cancel),
                Ok(None) => return state.pop(),
                Err(error) => Err(error),
            };
            state.note_reused(step.reused());
            state.complete(logits, step.room());
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Generation<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { ids, finish, timings, .. } = &self.state;
        let mut all = f.debug_struct("Generation");
        all.field("step", &self.step).field("tokens", &ids.len()).field("finish", finish).field("timings", timings);
        all.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
