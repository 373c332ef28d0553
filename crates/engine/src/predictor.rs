//! The prediction head of a loaded model: the hidden state of a position and the token behind it -> logits of the next one.

use crate::cancel::CancellationToken;
use crate::decoder::{Cache, Compute, Hidden, Logits, OutputRows, Segment, Taken};
use crate::error::{Error, Result};
use crate::scheduler::Scheduler;
use std::time::Instant;

/// A prediction head, which computes for one sequence at a time.
#[allow(missing_debug_implementations)] // what computes has none
pub struct Predictor {
    compute: Box<dyn Compute>,
    scheduler: Scheduler,
    /// Elements of a hidden state.
    width: usize,
}

impl Predictor {
    /// One that `compute` computes, of hidden states of `width` elements.
    pub fn new(compute: Box<dyn Compute>, width: usize) -> Predictor {
        Predictor { compute, scheduler: Scheduler::default(), width }
    }

    /// An empty cache for one sequence.
    pub fn cache(&self) -> Box<dyn Cache> {
        self.compute.cache()
    }

    /// Elements of a hidden state.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The seconds that a token takes; `None` before one was measured.
    pub fn seconds(&self) -> Option<f64> {
        self.scheduler.costs().single()
    }

    /// Appends `tokens`, each with the hidden state of the position before it, `[tokens, width]`, to `cache`. Returns the logits
    /// behind the last of them, `[vocab]`, and the head's own hidden state there.
    ///
    /// # Errors
    /// As [`Decoder::forward`](crate::decoder::Decoder::forward); `Forked`.
    pub fn forward(
        &self,
        tokens: &[u32],
        given: &[f32],
        cache: &mut dyn Cache,
        cancel: &CancellationToken,
    ) -> Result<(Option<Vec<f32>>, Vec<f32>)> {
        let mut state = Vec::new();
        let computed = self.scheduler.between_steps(|| {
            let begun = Instant::now();
            let reach = cache.len() + tokens.len();
            let segment = Segment { tokens, cache, reach, second_text: None, logits: OutputRows::Last };
            let hidden = Hidden { given, taken: Taken::Wanted(&mut state) };
            let logits = self.compute.forward(&mut [segment], hidden, cancel)?;
            self.scheduler.costs().record(tokens.len(), begun.elapsed());
            Ok::<_, Error>(logits)
        })?;
        Ok((computed?.map(Logits::into_values), state))
    }
}
