//! Continuous batching: which sequences of a model, and how many tokens of each, one pass over the weights computes.
//!
//! A step takes a token of every sequence that generates, and fills what is left of it with prompts; or it takes texts
//! whose vectors one caller wants. Each row of it has the bits that it has by itself, so no text depends on what
//! others compute. Two kinds of models are computed in other steps: see [`Batching`].

pub mod admission;
pub mod costs;
pub mod hidden;
pub mod queue;
mod run;
pub mod streams;
mod text;

use crate::cancel::CancellationToken;
use crate::decoder::{Batching, Compute, HiddenOutput, PassOptions, PassOutput, Segment};
use crate::error::{Error, Result};
use admission::{Admission, admit};
use costs::StepCosts;
use model_factory_spec::plan::{PREFILL_CHUNK, SHARED_STEP, StepRoom};
use queue::{Caller, Queue, Steps, Waiting};
use run::Phase;
pub use run::{Run, RunOutput, TakeLogits};
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
pub use text::Text;
use tracing::{debug_span, warn};

/// Rows of such a step that sequences that generate leave to prompts that wait.
const FOR_PROMPTS: usize = SHARED_STEP / 4;

/// Whether a step was of texts, and the address of the caller of the texts.
type Turn = (bool, usize);

/// The sequences of a model that are computed.
#[derive(Debug, Default)]
pub struct Scheduler {
    queue: Queue<Run>,
    costs: StepCosts,
    admission: Admission,
    turn: Mutex<Option<Turn>>,
}

impl Scheduler {
    /// A scheduler that applies `admission` to generations whose pages do not fit.
    pub fn new(admission: Admission) -> Scheduler {
        Scheduler { admission, ..Scheduler::default() }
    }

    /// The costs of its steps.
    pub fn costs(&self) -> &StepCosts {
        &self.costs
    }

    /// Computes `runs` with all others of the model, and returns them finished, in their order.
    pub fn run(&self, compute: &dyn Compute, caller: &Arc<Caller>, runs: Vec<Run>) -> Vec<Run> {
        self.queue.run(&Pass { compute, scheduler: self }, caller, runs).unwrap_or_else(|(error, mut runs)| {
            runs.iter_mut().for_each(|run| run.finish(Err(error.clone())));
            runs
        })
    }

    /// Gives `runs` to be computed; [`wait`](Self::wait) gives them back to `caller`.
    ///
    /// # Errors
    /// `OutOfMemory`, `Forked`; with the runs.
    pub fn submit(&self, caller: &Arc<Caller>, runs: Vec<Run>) -> Result<(), (Error, Vec<Run>)> {
        self.queue.submit(caller, runs)
    }

    /// Takes part in computing until runs of `caller` are finished, or it was called (`Queue::call`).
    pub fn wait(&self, compute: &dyn Compute, caller: &Arc<Caller>) -> Vec<Run> {
        self.queue.wait(&Pass { compute, scheduler: self }, caller)
    }

    /// Wakes `caller` from [`wait`](Self::wait), now or when it comes there.
    pub(crate) fn call(&self, caller: &Caller) {
        self.queue.call(caller);
    }
}

struct Pass<'a> {
    compute: &'a dyn Compute,
    scheduler: &'a Scheduler,
}

impl Steps for Pass<'_> {
    type Request = Run;

    fn choose(&self, waiting: &mut VecDeque<Waiting<Run>>) -> Vec<Waiting<Run>> {
        let batching = self.compute.batching();
        let mut turn = self.scheduler.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = |waiting: &Waiting<Run>| (waiting.request.text().is_some(), Arc::as_ptr(&waiting.caller) as usize);
        if let Some(last) = *turn
            && waiting.iter().any(|waiting| waiting.request.text().is_some())
        {
            text::take_turns(waiting.make_contiguous(), last, kind);
        }
        admit(waiting, self.compute);
        let isolated = waiting.iter().position(|waiting| matches!(waiting.request.phase, Phase::Isolated));
        let first = isolated.or_else(|| waiting.iter().position(|waiting| waiting.request.is_admitted()));
        *turn = first.map(|first| kind(&waiting[first])).or(*turn);
        match first.and_then(|first| Some((first, waiting.get(first)?))) {
            None => {}
            Some((first, Waiting { request, .. })) if request.text().is_some() => {
                text::share(waiting, first, self.compute);
            }
            Some((first, Waiting { request, caller, .. })) if isolated.is_some() || batching != Batching::Any => {
                let together = request.batched && batching == Batching::Explicit && isolated.is_none();
                let caller = Arc::clone(caller);
                let (mut left, room) = (PREFILL_CHUNK, self.compute.step_room());
                for (index, Waiting { request, caller: other, .. }) in waiting.iter_mut().enumerate() {
                    let is_with = together && request.batched && request.is_admitted() && Arc::ptr_eq(&caller, other);
                    // Logits of each of its tokens: as many as a step has room for.
                    let fit = if request.wants_all() { (room.rows / (1 + room.logits)).max(1) } else { left };
                    let most = request.pending().min(left).min(fit);
                    request.tokens = if index == first || is_with { request.uncut(most) } else { 0 };
                    if index == first && request.tokens == 0 {
                        request.tokens = request.least();
                    }
                    left = left.saturating_sub(request.tokens);
                }
            }
            Some(_) => share(waiting, self.compute.step_room()),
        }
        let is_chosen = |Waiting { request, .. }: &Waiting<Run>| request.tokens > 0 || request.is_finished();
        let (chosen, others): (Vec<_>, Vec<_>) = waiting.drain(..).partition(is_chosen);
        waiting.extend(others);
        chosen
    }

    fn compute(&self, chosen: &mut [Waiting<Run>]) {
        // Runs that were refused are finished.
        chosen.sort_by_key(|waiting| waiting.request.is_finished());
        let computed = chosen.partition_point(|waiting| !waiting.request.is_finished());
        let chosen = &mut chosen[..computed];
        if chosen.is_empty() {
            return;
        }
        let (is_shared, mut passed) = (chosen.len() > 1, false);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.step(chosen, &mut passed)));
        let Err(error) = outcome.unwrap_or_else(|panic| Err(panicked(&*panic))) else { return };
        for Waiting { request, .. } in chosen.iter_mut().filter(|waiting| !waiting.request.is_finished()) {
            if is_shared && !passed {
                // It is not known which run caused the error: each is computed by itself and gets its own error.
                request.phase = Phase::Isolated;
            } else {
                request.finish(Err(error.clone()));
            }
        }
    }

    fn rejoins(&self, request: &Run) -> bool {
        self.compute.batching() == Batching::Any && request.text().is_none()
    }

    fn is_finished(request: &Run) -> bool {
        request.is_finished()
    }

    fn is_held(request: &Run) -> bool {
        matches!(&request.phase, Phase::Waiting(wait) if wait.is_held)
    }

    fn cancelled(request: &mut Run) -> bool {
        let cancelled = request.cancel.is_cancelled();
        if cancelled {
            request.finish(Err(Error::Cancelled));
        }
        cancelled
    }
}

impl Pass<'_> {
    /// Computes a step of `chosen`, and says when the pass over the weights has `passed`; nothing was computed after an
    /// error.
    fn step(&self, chosen: &mut [Waiting<Run>], passed: &mut bool) -> Result<()> {
        for Waiting { request, .. } in &mut *chosen {
            if request.text().is_none() {
                request.adopt_part();
            }
        }
        let _span = match &*chosen {
            [one] => one.request.span.clone().entered(),
            several => {
                let tokens = several.iter().map(|waiting| waiting.request.tokens).sum::<usize>();
                debug_span!(parent: None, "step", sequences = several.len(), tokens).entered()
            }
        };
        let of_texts = chosen.iter().any(|waiting| waiting.request.text().is_some());
        // A run that is cancelled ends its own step at once, and leaves a shared step when that has ended.
        // Texts of a step are of one caller, who cancels all of them.
        let cancel = match &*chosen {
            [first, others @ ..] if of_texts || others.is_empty() => first.request.cancel.clone(),
            _ => CancellationToken::new(),
        };
        let begun = Instant::now();
        let wants_hidden = chosen.iter().any(|waiting| waiting.request.wants_hidden());
        let mut segments: Vec<Segment<'_>> = chosen.iter_mut().map(|waiting| waiting.request.segment()).collect();
        let wanted: Vec<usize> = segments.iter().map(Segment::wanted_rows).collect();
        let hidden_states = if wants_hidden { HiddenOutput::All } else { HiddenOutput::None };
        let of_sequences = PassOptions { hidden_states, ..PassOptions::LOGITS };
        let options = if of_texts { PassOptions::HIDDEN_STATES } else { of_sequences };
        let PassOutput { mut logits, hidden_states: states } = self.compute.pass(&mut segments, options, &cancel)?;
        *passed = true;
        if of_texts {
            let (width, mut end) = (states.len() / wanted.iter().sum::<usize>().max(1), 0);
            for (Waiting { request, .. }, wanted) in chosen.iter_mut().zip(wanted) {
                request.phase = Phase::Admitted;
                request.pool(&states, width, end..end + wanted);
                end += wanted;
            }
            return Ok(());
        }
        let (mut end, shared_step) = (0, chosen.len() > 1);
        let tokens: usize = chosen.iter().map(|waiting| waiting.request.tokens).sum();
        let (mut first, width) = (0, states.len() / tokens.max(1));
        for (Waiting { request, .. }, wanted) in chosen.iter_mut().zip(wanted) {
            let rows = end..end + wanted;
            end = rows.end;
            request.shared_step |= shared_step;
            let states = &states[first..first + request.tokens * width];
            first += states.len();
            if let Some(Err(error)) = request.hidden.as_mut().map(|hidden| hidden.put(request.cache.len(), states)) {
                warn!(%error, "nothing is guessed by the prediction head");
                request.hidden = None;
            }
            request.phase = Phase::Admitted;
            let taken = request.take(&mut logits, rows);
            // A guess may turn out wrong; then only this sequence may hold its page.
            let known = request.input.rows().slice(0..request.input.len() - request.guesses);
            request.cache.publish(known, request.rotation);
            if taken.is_err() || request.cache.len() == request.input.len() {
                request.finish(taken);
            }
        }
        // The logits of each token of this step were computed.
        if let [Waiting { request, .. }] = &*chosen
            && end == request.tokens
        {
            self.scheduler.costs.record(end, begun.elapsed());
        }
        Ok(())
    }
}

/// Gives every run its tokens of the next step: one to each that generates, then the guessed ones, and what is
/// left to prompts. Half of that is for the prompt that has waited longest, so that it advances; short prompts come
/// before long ones in the rest.
fn share(waiting: &mut VecDeque<Waiting<Run>>, room: StepRoom) {
    let mut generating = Vec::new();
    let mut prompts = Vec::new();
    let mut prompt_is_first = None;
    for Waiting { request, .. } in
        waiting.iter_mut().filter(|waiting| waiting.request.is_admitted() && waiting.request.text().is_none())
    {
        if request.pending() > 1 {
            request.adopt();
        }
        let is_next = request.pending() == 1 || request.guesses > 0;
        prompt_is_first.get_or_insert(!is_next);
        let runs = if is_next { &mut generating } else { &mut prompts };
        runs.push(request);
    }
    // Of prompts that begin alike one is computed, and the others take its pages.
    let awaits: Vec<bool> = (0..prompts.len())
        .map(|own| (0..prompts.len()).any(|other| own != other && prompts[own].awaits(prompts[other], other < own)))
        .collect();
    let waits_longest = prompt_is_first == Some(true) && awaits.first() == Some(&false);
    let mut awaits = awaits.into_iter();
    prompts.retain(|_| !awaits.next().unwrap_or(false));
    // Where an image does not fit beside a token, those that generate wait for a step once it has waited for one of theirs.
    let lacks_room = |run: &&mut Run| run.least() > 1 && room.rows < run.least() + 1 + 2 * room.logits;
    if waits_longest && prompts.first().is_some_and(lacks_room) {
        generating.clear();
    }
    let mut left = Left { tokens: if generating.is_empty() { PREFILL_CHUNK } else { SHARED_STEP }, room };
    let for_prompts = match prompts.first() {
        None => (0, 0),
        Some(run) if run.least() > FOR_PROMPTS => (FOR_PROMPTS, run.least() + room.logits),
        Some(_) => (FOR_PROMPTS, (FOR_PROMPTS + room.logits).min(room.rows / 2)),
    };
    // The first run of each list advances, however many rows a token takes.
    if let Some(first) = generating.first_mut() {
        left.give(first, 1, (0, 0));
    }
    for most in [1, usize::MAX] {
        generating.iter_mut().for_each(|run| left.give(run, most.saturating_sub(run.tokens), for_prompts));
    }
    let half = |oldest: &&mut Run| {
        let rows = left.room.rows.div_ceil(2).max(oldest.least() + room.logits).min(left.room.rows);
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

struct Left {
    tokens: usize,
    room: StepRoom,
}

impl Left {
    /// Gives `run` up to `most` more tokens, as far as they leave `kept` tokens and rows.
    fn give(&mut self, run: &mut Run, most: usize, kept: (usize, usize)) {
        let (pending, rows) = (run.pending() - run.tokens, self.room.rows.saturating_sub(kept.1));
        let each = if run.wants_all() { 1 + self.room.logits } else { 1 };
        let tokens = self.tokens.saturating_sub(kept.0);
        let mut given =
            run.uncut(run.tokens + pending.min(most).min(tokens).min(rows / each)).saturating_sub(run.tokens);
        // An image is computed whole, however many tokens are left for it. Logits of all its rows are more than a step has
        // room for: only scoring asks for them.
        let least = run.least();
        if given == 0 && run.tokens == 0 && least > 1 && tokens > 0 && least.saturating_mul(each) > rows.min(tokens) {
            let last = if least == pending { self.room.logits } else { 0 };
            if run.wants_all() || least + last <= rows {
                run.tokens = least;
                self.tokens = self.tokens.saturating_sub(least).max(kept.0);
                self.room.rows = self.room.rows.saturating_sub(least.saturating_mul(each) + last);
            }
            return;
        }
        let mut taken = given * each;
        // The logits of the last token.
        if given > 0 && given == pending && matches!(run.output, RunOutput::Last(_)) {
            taken += self.room.logits;
            if taken > rows {
                given = run.uncut(run.tokens + given - 1).saturating_sub(run.tokens);
                taken = given;
            }
        }
        run.tokens += given;
        self.tokens -= given;
        self.room.rows -= taken;
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::Internal(format!("computing panicked: {}", text.unwrap_or("no message")))
}
