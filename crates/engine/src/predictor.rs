//! The prediction head of a loaded model: the hidden state of a position and the token after it -> logits of the next
//! one.

use crate::cancel::CancellationToken;
use crate::decoder::{Compute, HiddenOutput, KvCache, Logits, OutputRows, PassOptions, Segment};
use crate::error::{Error, Result};
use crate::scheduler::costs::StepCosts;
use crate::scheduler::queue::lock_after_fork;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A prediction head, which computes for one sequence at a time.
#[allow(missing_debug_implementations)] // what computes has none
pub struct Predictor {
    compute: Box<dyn Compute>,
    costs: StepCosts,
    /// Held by the thread that computes, so that only one pass has its buffers at a time.
    turn: Mutex<()>,
    /// The process whose threads take turns.
    process: AtomicU32,
    /// A process that was forked while a thread of the other one held the turn.
    forked: AtomicU32,
    width: usize,
}

impl Predictor {
    /// A predictor that computes with `compute`, from hidden states of `width` elements.
    pub fn new(compute: Box<dyn Compute>, width: usize) -> Predictor {
        let (process, forked) = (AtomicU32::new(process::id()), AtomicU32::default());
        Predictor { compute, costs: StepCosts::default(), turn: Mutex::default(), process, forked, width }
    }

    /// An empty cache for one sequence.
    pub fn cache(&self) -> KvCache {
        self.compute.cache()
    }

    /// Elements of a hidden state.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The seconds that a token takes; `None` before one was measured.
    pub fn seconds(&self) -> Option<f64> {
        self.costs.single()
    }

    /// Appends `tokens`, each with the hidden state of the position before it, `[tokens, width]`, to `cache`. Returns
    /// the logits after the last of them, `[vocab]`, and the head's own hidden state there.
    ///
    /// # Errors
    /// Like [`Compute::pass`]; `Forked`.
    pub fn forward(
        &self,
        tokens: &[u32],
        given: &[f32],
        cache: &mut KvCache,
        cancel: &CancellationToken,
    ) -> Result<(Option<Vec<f32>>, Vec<f32>)> {
        let _turn = self.turn()?;
        let (begun, reach) = (Instant::now(), cache.len() + tokens.len());
        let segment = Segment { tokens: tokens.into(), cache, reach, second_text: None, rows: OutputRows::Last };
        let options = PassOptions { hidden_input: given, logits: true, hidden_states: HiddenOutput::Wanted };
        let output = self.compute.pass(&mut [segment], options, cancel)?;
        self.costs.record(tokens.len(), begun.elapsed());
        Ok((output.logits.map(Logits::into_values), output.hidden_states))
    }

    /// Waits for the threads that compute. After a fork, a thread that held the turn does not exist here and cannot end
    /// it.
    fn turn(&self) -> Result<MutexGuard<'_, ()>> {
        let mine = process::id();
        let is_mine = || self.process.load(Ordering::Relaxed) == mine;
        let own_turn = || self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if is_mine() {
            return Ok(own_turn());
        }
        if self.forked.load(Ordering::Relaxed) == mine {
            return Err(Error::Forked); // another thread waited in vain
        }
        match lock_after_fork(&self.turn) {
            Ok(turn) => {
                self.process.store(mine, Ordering::Relaxed);
                Ok(turn)
            }
            // Another thread of this process has the turn, and will end it.
            Err(_) if is_mine() => Ok(own_turn()),
            Err(error) => {
                self.forked.store(mine, Ordering::Relaxed);
                Err(error)
            }
        }
    }
}
