//! Continuous batching: which sequences of a model, and how many tokens of each, one pass over the weights computes.
//!
//! A step takes a token of every sequence that generates, and fills what is left of it with prompts. Each row of it has the
//! bits that it has alone, so company changes no text. Two kinds of models are computed in other steps: see [`Batching`].

pub mod admission;
pub mod costs;
pub mod hidden;
pub mod queue;
pub mod streams;

use crate::cache_budget::Reservation;
use crate::cancel::CancellationToken;
use crate::decoder::{Batching, Cache, Compute, Hidden, Logits, OutputRows, Rotation, Segment, Taken};
use crate::error::{Error, Result};
use crate::memory;
use admission::{Admission, admit};
use costs::StepCosts;
use hidden::HiddenRows;
use model_factory_spec::plan::{KV_PAGE, PREFILL_CHUNK, StepRoom};
use queue::{Caller, Queue, Steps, Waiting};
use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use tracing::{Span, debug, debug_span, warn};

/// Rows of a step in which some sequence generates: it waits for the rows of prompts beside it.
const SHARED_STEP: usize = PREFILL_CHUNK / 4;

/// Rows of it that those who generate leave to prompts that wait.
const FOR_PROMPTS: usize = SHARED_STEP / 4;

/// A sequence on its way through the scheduler, with tokens to be computed.
#[derive(Debug)]
pub struct Run {
    /// The whole sequence. Those from the length of `cache` on are computed.
    pub ids: Vec<u32>,
    /// What is cached of it.
    pub cache: Box<dyn Cache>,
    /// How the keys of the cache are rotated.
    pub rotation: Rotation,
    /// Tokens that the sequence had before.
    pub before: usize,
    /// Tokens whose keys and values were found in pages of other sequences.
    pub reused: usize,
    /// The logits of the last token, `[vocab]`; all of them are wanted where `rows` is there.
    pub logits: Option<Vec<f32>>,
    /// The logits of the tokens from `before` on, `[tokens, vocab]`, with room for them.
    pub rows: Option<Vec<f32>>,
    /// The hidden states of the last tokens, where a prediction head reads them.
    pub hidden: Option<HiddenRows>,
    /// How many of these are there. A cache that forgot them is filled again without.
    taken: usize,
    /// How many of the last tokens are guessed.
    pub guesses: usize,
    /// Ends it.
    pub cancel: CancellationToken,
    /// What is reserved for its generation, or will be before it is computed.
    pub reservation: Option<Arc<Reservation>>,
    /// Whether it has its pages.
    admitted: bool,
    /// Whether it waits for pages that others hold.
    held: bool,
    /// When it began to wait for pages.
    held_since: Option<Instant>,
    /// Since when it does while no generation runs.
    waits_since: Option<Instant>,
    /// Whether it is one of a batch that its caller made.
    pub batched: bool,
    /// Whether a step of it was shared with others.
    pub in_company: bool,
    /// The span that its steps are in.
    pub span: Span,
    /// Which of its caller's it is.
    key: u64,
    /// Set when it is finished.
    pub outcome: Option<Result<()>>,
    /// Tokens of the step it is in.
    tokens: usize,
    /// Whether it is computed in steps of its own: one that it was in failed.
    alone: bool,
}

impl Run {
    /// Computes `ids` that `cache` does not hold, of which those from `before` on are new to the sequence.
    pub fn new(
        ids: Vec<u32>,
        before: usize,
        cache: Box<dyn Cache>,
        rotation: Rotation,
        cancel: &CancellationToken,
        span: Span,
    ) -> Run {
        Run {
            ids,
            cache,
            rotation,
            before,
            reused: 0,
            logits: None,
            rows: None,
            hidden: None,
            taken: 0,
            guesses: 0,
            cancel: cancel.clone(),
            reservation: None,
            admitted: false,
            held: false,
            held_since: None,
            waits_since: None,
            batched: false,
            in_company: false,
            span,
            key: 0,
            outcome: None,
            tokens: 0,
            alone: false,
        }
    }

    /// Takes its pages at once.
    ///
    /// # Errors
    /// `CacheBudget`, `OutOfMemory`, or the GPU's.
    pub fn reserve(&mut self) -> Result<()> {
        self.adopt();
        self.cache.reserve(self.ids.len())
    }

    /// Takes whole pages that other sequences have computed.
    fn adopt(&mut self) {
        self.adopt_by(|cache, ids, rotation| cache.adopt(ids, rotation));
    }

    /// Takes positions by `adopt`, and counts those that are new to the sequence.
    fn adopt_by(&mut self, adopt: impl FnOnce(&mut dyn Cache, &[u32], Rotation)) {
        let start = self.cache.len().max(self.before);
        let adoptable = self.adoptable();
        adopt(&mut *self.cache, &self.ids[..adoptable], self.rotation);
        self.reused += self.cache.len().saturating_sub(start);
    }

    /// Tokens whose logits are not wanted.
    fn adoptable(&self) -> usize {
        if self.rows.is_some() { self.before } else { self.ids.len().saturating_sub(1) }
    }

    /// Whether `other` computes the page that this one, which may stand behind it in the queue, computes next.
    fn awaits(&self, other: &Run, is_behind: bool) -> bool {
        let (own, cached) = (self.cache.len(), other.cache.len());
        let end = own + KV_PAGE;
        self.cache.shares()
            && other.cache.shares()
            && own.is_multiple_of(KV_PAGE)
            && (cached > own || cached == own && is_behind)
            && cached < end
            && self.rotation == other.rotation
            && self.cache.salt() == other.cache.salt()
            && end <= self.adoptable().min(other.ids.len())
            && self.ids[..end] == other.ids[..end]
    }

    /// Tokens that one step may compute of it, as far as it goes.
    fn pending(&self) -> usize {
        let cached = self.cache.len();
        let end = if self.wants_all() || self.rows.is_none() { self.ids.len() } else { self.before + self.taken };
        end - cached
    }

    /// Whether the logits of all tokens that the cache does not hold are wanted. Else, where `rows` is there, those of none are
    /// up to the next one without.
    fn wants_all(&self) -> bool {
        self.rows.is_some() && self.cache.len() >= self.before + self.taken
    }

    /// Whether the step computes positions whose hidden states are wanted: of a long prompt those of the last ones.
    fn wants_hidden(&self) -> bool {
        self.hidden.is_some() && self.cache.len() + self.tokens + PREFILL_CHUNK > self.ids.len()
    }

    fn segment(&mut self) -> Segment<'_> {
        let (start, reach) = (self.cache.len(), self.ids.len());
        let end = start + self.tokens;
        let logits = match self.rows {
            Some(_) if self.wants_all() => OutputRows::All,
            None if end == reach => OutputRows::Last,
            _ => OutputRows::None,
        };
        Segment { tokens: &self.ids[start..end], cache: &mut *self.cache, reach, second_text: None, logits }
    }

    /// Takes rows `rows` of what a step computed.
    fn take(&mut self, logits: &mut Option<Logits>, rows: Range<usize>) -> Result<()> {
        let Some(computed) = logits.as_ref().filter(|_| !rows.is_empty()) else { return Ok(()) };
        match &mut self.rows {
            Some(all) => {
                self.taken += rows.len();
                rows.for_each(|row| all.extend_from_slice(computed.row(row)));
            }
            // The only row there is.
            None if computed.rows() == 1 => self.logits = logits.take().map(Logits::into_values),
            // A row of its own: a caller may keep it, and would keep those of others.
            None => self.logits = Some(memory::copied(computed.row(rows.start), "logits")?),
        }
        Ok(())
    }
}

/// The sequences of a model that are computed.
#[derive(Debug, Default)]
pub struct Scheduler {
    queue: Queue<Run>,
    costs: StepCosts,
    admission: Admission,
}

impl Scheduler {
    /// One that does so with generations whose pages do not fit.
    pub fn new(admission: Admission) -> Scheduler {
        Scheduler { admission, ..Scheduler::default() }
    }

    /// What its steps cost.
    pub fn costs(&self) -> &StepCosts {
        &self.costs
    }

    fn pass<'a>(&'a self, compute: &'a dyn Compute) -> Pass<'a> {
        Pass { compute, costs: &self.costs }
    }

    /// Computes `step`, which is no step of sequences, while none of these is computed.
    ///
    /// # Errors
    /// `Forked`.
    pub fn between_steps<T>(&self, step: impl FnOnce() -> T) -> Result<T> {
        self.queue.between_steps::<Pass<'_>, T>(step)
    }

    /// Computes `runs` with all others of the model, and returns them finished, in their order.
    pub fn run(&self, compute: &dyn Compute, caller: &Arc<Caller>, runs: Vec<Run>) -> Vec<Run> {
        self.queue.run(&self.pass(compute), caller, runs).unwrap_or_else(|(error, mut runs)| {
            runs.iter_mut().for_each(|run| run.outcome = Some(Err(error.clone())));
            runs
        })
    }
}

impl Scheduler {
    /// Gives `runs` to be computed; [`wait`](Self::wait) gives them back to `caller`.
    ///
    /// # Errors
    /// `OutOfMemory`, `Forked`; with the runs.
    pub(crate) fn submit(&self, caller: &Arc<Caller>, runs: Vec<Run>) -> Result<(), (Error, Vec<Run>)> {
        self.queue.submit(caller, runs)
    }

    /// Takes part in computing until runs of `caller` are finished, or it was [called](Self::call).
    pub(crate) fn wait(&self, compute: &dyn Compute, caller: &Arc<Caller>) -> Vec<Run> {
        self.queue.wait(&self.pass(compute), caller)
    }

    /// Wakes `caller` from [`wait`](Self::wait), now or when it comes there.
    pub(crate) fn call(&self, caller: &Caller) {
        self.queue.call(caller);
    }
}

/// What computes a step.
struct Pass<'a> {
    compute: &'a dyn Compute,
    costs: &'a StepCosts,
}

impl Steps for Pass<'_> {
    type Request = Run;

    fn choose(&self, waiting: &mut VecDeque<Waiting<Run>>) -> Vec<Waiting<Run>> {
        let batching = self.compute.batching();
        admit(waiting, self.compute);
        let first = waiting.iter().position(|waiting| waiting.request.alone);
        let first = first.or_else(|| waiting.iter().position(|waiting| waiting.request.admitted));
        match first.and_then(|first| Some((first, waiting.get(first)?))) {
            None => {}
            Some((first, Waiting { request, caller, .. })) if request.alone || batching != Batching::Any => {
                let (together, caller) =
                    (request.batched && batching == Batching::Explicit && !request.alone, Arc::clone(caller));
                let mut left = PREFILL_CHUNK;
                for (index, Waiting { request, caller: other, .. }) in waiting.iter_mut().enumerate() {
                    let is_with = together && request.batched && request.admitted && Arc::ptr_eq(&caller, other);
                    request.tokens = if index == first || is_with { request.pending().min(left) } else { 0 };
                    left -= request.tokens;
                }
            }
            Some(_) => share(waiting, self.compute.step_room()),
        }
        let is_chosen = |Waiting { request, .. }: &Waiting<Run>| request.tokens > 0 || request.outcome.is_some();
        let (chosen, others): (Vec<_>, Vec<_>) = waiting.drain(..).partition(is_chosen);
        waiting.extend(others);
        chosen
    }

    fn compute(&self, chosen: &mut [Waiting<Run>]) {
        // Those that were refused are finished.
        chosen.sort_by_key(|waiting| waiting.request.outcome.is_some());
        let computed = chosen.partition_point(|waiting| waiting.request.outcome.is_none());
        let chosen = &mut chosen[..computed];
        if chosen.is_empty() {
            return;
        }
        let computed = catch_unwind(AssertUnwindSafe(|| self.step(chosen)));
        let Err(panic) = computed else { return };
        for Waiting { request, .. } in chosen {
            request.outcome.get_or_insert_with(|| Err(panicked(&*panic)));
        }
    }

    fn shares_steps(&self) -> bool {
        self.compute.batching() == Batching::Any
    }

    fn is_finished(request: &Run) -> bool {
        request.outcome.is_some()
    }

    fn is_held(request: &Run) -> bool {
        request.held
    }

    fn cancelled(request: &mut Run) -> bool {
        let cancelled = request.cancel.is_cancelled();
        if cancelled {
            request.outcome = Some(Err(Error::Cancelled));
        }
        cancelled
    }
}

impl Pass<'_> {
    /// Computes a step of `chosen`.
    fn step(&self, chosen: &mut [Waiting<Run>]) {
        for Waiting { request, .. } in &mut *chosen {
            if let Some(since) = request.held_since.take() {
                debug!(parent: &request.span, tokens = request.ids.len(), waited = ?since.elapsed(), "waited for pages");
            }
            request.adopt_by(|cache, ids, rotation| cache.adopt_part(ids, rotation));
            request.tokens = request.tokens.min(request.pending());
        }
        let _span = match &*chosen {
            [one] => one.request.span.clone().entered(),
            several => {
                let tokens = several.iter().map(|waiting| waiting.request.tokens).sum::<usize>();
                debug_span!(parent: None, "step", sequences = several.len(), tokens).entered()
            }
        };
        // One that is cancelled ends a step of its own at once, and one with others behind it.
        let cancel = if let [one] = &*chosen { one.request.cancel.clone() } else { CancellationToken::new() };
        let begun = Instant::now();
        let mut states = Vec::new();
        let wants_hidden = chosen.iter().any(|waiting| waiting.request.wants_hidden());
        let mut segments: Vec<Segment<'_>> = chosen.iter_mut().map(|waiting| waiting.request.segment()).collect();
        let wanted: Vec<usize> = segments.iter().map(Segment::wanted_rows).collect();
        let taken = if wants_hidden { Taken::All(&mut states) } else { Taken::Nothing };
        let hidden = Hidden { given: &[], taken };
        let computed = catch_unwind(AssertUnwindSafe(|| self.compute.forward(&mut segments, hidden, &cancel)));
        drop(segments);
        let mut logits = match (computed.unwrap_or_else(|panic| Err(panicked(&*panic))), &mut *chosen) {
            (Ok(logits), _) => logits,
            (Err(error), [one]) => return one.request.outcome = Some(Err(error)),
            // Which one it was about is not known: each is computed by itself and meets its own error.
            (Err(_), several) => return several.iter_mut().for_each(|waiting| waiting.request.alone = true),
        };
        let (mut end, in_company) = (0, chosen.len() > 1);
        let tokens: usize = chosen.iter().map(|waiting| waiting.request.tokens).sum();
        let (mut first, width) = (0, states.len() / tokens.max(1));
        for (Waiting { request, .. }, wanted) in chosen.iter_mut().zip(wanted) {
            let rows = end..end + wanted;
            end = rows.end;
            request.in_company |= in_company;
            let states = &states[first..first + request.tokens * width];
            first += states.len();
            if let Some(Err(error)) = request.hidden.as_mut().map(|hidden| hidden.put(request.cache.len(), states)) {
                warn!(%error, "nothing is guessed by the prediction head");
                request.hidden = None;
            }
            request.alone = false;
            let taken = request.take(&mut logits, rows);
            // A guess may turn out wrong, and its page must be this sequence's alone then.
            request.cache.publish(&request.ids[..request.ids.len() - request.guesses], request.rotation);
            if taken.is_err() || request.cache.len() == request.ids.len() {
                request.outcome = Some(taken);
            }
        }
        // Of which each token's logits were computed.
        if let [Waiting { request, .. }] = &*chosen
            && end == request.tokens
        {
            self.costs.record(end, begun.elapsed());
        }
    }
}

/// Gives every run its tokens of the next step: one to each that generates, then those that are guessed, and what is left to
/// prompts. Half of that is for the one that waits for the longest time, so that it advances; short ones come before long
/// ones in the rest.
fn share(waiting: &mut VecDeque<Waiting<Run>>, room: StepRoom) {
    let mut generating = Vec::new();
    let mut prompts = Vec::new();
    for Waiting { request, .. } in waiting.iter_mut().filter(|waiting| waiting.request.admitted) {
        if request.pending() > 1 {
            request.adopt();
        }
        let is_next = request.pending() == 1 || request.guesses > 0;
        let runs = if is_next { &mut generating } else { &mut prompts };
        runs.push(request);
    }
    // Of those that begin alike one computes, and the others take its pages.
    let awaits: Vec<bool> = (0..prompts.len())
        .map(|own| (0..prompts.len()).any(|other| own != other && prompts[own].awaits(prompts[other], other < own)))
        .collect();
    let mut awaits = awaits.into_iter();
    prompts.retain(|_| !awaits.next().unwrap_or(false));
    let mut left = Left { tokens: if generating.is_empty() { PREFILL_CHUNK } else { SHARED_STEP }, room };
    let for_prompts = match prompts.len() {
        0 => (0, 0),
        _ => (FOR_PROMPTS, (FOR_PROMPTS + room.logits).min(room.rows / 2)),
    };
    // The first of each advances, however many rows a token takes.
    if let Some(first) = generating.first_mut() {
        left.give(first, 1, (0, 0));
    }
    for most in [1, usize::MAX] {
        generating.iter_mut().for_each(|run| left.give(run, most.saturating_sub(run.tokens), for_prompts));
    }
    let half = |oldest: &&mut Run| {
        let rows = left.room.rows.div_ceil(2).max(1 + room.logits).min(left.room.rows);
        (oldest.pending().min(left.tokens.div_ceil(2)), rows)
    };
    let mut kept = prompts.first().map_or((0, 0), half);
    let mut prompts: Vec<(usize, &mut Run)> = prompts.into_iter().enumerate().collect();
    prompts.sort_by_key(|(_, run)| run.pending());
    for (place, run) in prompts {
        if place == 0 {
            kept = (0, 0);
        }
        left.give(run, usize::MAX, kept);
    }
}

/// What is left of a step.
struct Left {
    tokens: usize,
    room: StepRoom,
}

impl Left {
    /// Gives `run` up to `most` more tokens, as far as they leave `kept` tokens and rows.
    fn give(&mut self, run: &mut Run, most: usize, kept: (usize, usize)) {
        let (pending, rows) = (run.pending() - run.tokens, self.room.rows.saturating_sub(kept.1));
        let each = if run.wants_all() { 1 + self.room.logits } else { 1 };
        let mut given = pending.min(most).min(self.tokens.saturating_sub(kept.0)).min(rows / each);
        let mut taken = given * each;
        // The last one's logits.
        if given > 0 && given == pending && run.rows.is_none() {
            taken += self.room.logits;
            if taken > rows {
                given -= 1;
                taken = given;
            }
        }
        run.tokens += given;
        self.tokens -= given;
        self.room.rows -= taken;
    }
}

/// What a panic says.
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::Internal(format!("computing panicked: {}", text.unwrap_or("no message")))
}
