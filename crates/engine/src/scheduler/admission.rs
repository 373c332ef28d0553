//! Admission: sequences are computed when they have enough pages.

use super::Scheduler;
use super::queue::{ADMISSION_TIMEOUT, Waiting};
use super::run::{Phase, Run};
use crate::cache_budget::Reservation;
use crate::decoder::Compute;
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The handling of a generation for which the KV caches of a model's sessions leave too little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// It ends with [`Error::CacheBudget`], at its prompt, or later when it grows.
    #[default]
    Refuse,
    /// It waits for others to end, in order of arrival, before anything of it is computed. What its prompt and
    /// `max_tokens` (up to the context) take is reserved for it when it begins, until its text has ended, so that it
    /// never waits or is refused in the middle. The exception is longrope: a sequence that grows past the original
    /// context is computed again, and waits again.
    ///
    /// It waits while other generations run: these run until their texts have ended or they are dropped.
    /// When none has run for a second and open sessions leave too little, it ends with [`Error::CacheBudget`]: there is
    /// nothing to wait for. A thread that pauses one generation and waits for another one may wait for
    /// itself; a [`CancellationToken`](model_factory_format::CancellationToken) ends that, like any wait.
    ///
    /// Sequences that are stepped by hand (`Session::forward`, `logits`, `batch`, a `Step` of your own),
    /// forked or restored reserve nothing, and are refused if they do not fit.
    Wait,
}

/// A generation's place among those that run: what is reserved for it is free when this is dropped.
#[derive(Debug)]
pub struct Admitted {
    reservation: Option<Arc<Reservation>>,
    scheduler: Arc<Scheduler>,
}

impl Admitted {
    /// The reservation of the generation.
    pub fn reservation(&self) -> Option<&Arc<Reservation>> {
        self.reservation.as_ref()
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.reservation = None;
        self.scheduler.freed();
    }
}

impl Scheduler {
    /// A place for a generation of up to `positions`, which are reserved before it is computed; `None` where none
    /// waits.
    pub fn admitted(self: &Arc<Self>, positions: usize) -> Option<Admitted> {
        let waits = self.admission == Admission::Wait;
        waits
            .then(|| Admitted { reservation: Some(Arc::new(Reservation::new(positions))), scheduler: Arc::clone(self) })
    }

    /// Is called when pages were given back, or a generation ended.
    pub fn freed(&self) {
        if self.admission == Admission::Wait {
            self.queue.freed();
        }
    }
}

/// Gives those of `waiting` that have none their pages, or an error, in order of arrival; of several that begin
/// alike only one.
pub(super) fn admit(waiting: &mut VecDeque<Waiting<Run>>, compute: &dyn Compute) {
    // Read before anything is requested: what those that ended have given back is there.
    let others_run = compute.pages().budget().running() > 0;
    let mut is_full = false;
    for index in 0..waiting.len() {
        let run = &mut waiting[index].request;
        run.tokens = 0;
        let waits_for_memory = is_full && run.unheld().is_some();
        let Phase::Waiting(wait) = &mut run.phase else { continue };
        wait.is_held = waits_for_memory;
        if wait.is_held {
            continue;
        }
        let (cached, reused) = (run.cache.len(), run.reused);
        let is_prompt = run.pending() > 1;
        if is_prompt {
            run.adopt();
        }
        let run = &waiting[index].request;
        let awaits = |(other, waiting): (usize, &Waiting<Run>)| {
            waiting.request.is_admitted() && run.awaits(&waiting.request, other < index)
        };
        if is_prompt && waiting.iter().enumerate().any(awaits) {
            continue;
        }
        let run = &mut waiting[index].request;
        match run.admit(others_run) {
            Ok(true) => run.admitted(),
            Ok(false) => {
                is_full = true;
                // A run that waits keeps no page from others.
                run.cache.truncate(cached);
                run.reused = reused;
            }
            Err(error) => run.finish(Err(error)),
        }
    }
}

impl Run {
    /// Takes its pages of the budget, after all that its generation may need is reserved; false where it waits for
    /// others.
    fn admit(&mut self, others_run: bool) -> Result<bool> {
        if let Some(reservation) = self.unheld().cloned() {
            let admitted = self.cache.admit(&reservation);
            if matches!(admitted, Err(Error::CacheBudget { .. })) && self.hold(others_run) {
                return Ok(false);
            }
            admitted?;
        }
        self.cache.reserve(self.input.len())?;
        Ok(true)
    }

    /// Lets it wait for pages that others hold. Returns whether it may still wait.
    fn hold(&mut self, others_run: bool) -> bool {
        let Phase::Waiting(wait) = &mut self.phase else { return false };
        if others_run {
            wait.idle_since = None;
        }
        let may_wait = others_run || wait.idle_since.get_or_insert_with(Instant::now).elapsed() < ADMISSION_TIMEOUT;
        if may_wait {
            wait.is_held = true;
            wait.held_since.get_or_insert_with(Instant::now);
        }
        may_wait
    }

    /// The reservation that its generation still lacks.
    fn unheld(&self) -> Option<&Arc<Reservation>> {
        self.reservation.as_ref().filter(|reservation| !reservation.is_held())
    }
}
