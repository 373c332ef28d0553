//! Ids of texts -> a vector of the hidden states of each, the longest texts first.

use crate::cancel::CancellationToken;
use crate::error::{EmbedError, Error, Result};
use crate::model::Model;
use crate::scheduler::queue::Caller;
use crate::scheduler::{self, Run, RunOutput};
use model_factory_diagnostics::spec::Pooling;
use model_factory_engine::adapter::Adapters;
use std::cmp::Reverse;
use std::sync::Arc;

/// The ids of a text.
pub(crate) struct Text {
    pub(crate) ids: Vec<u32>,
    /// The place from which ids are of the second kind.
    pub(crate) second_text: Option<usize>,
    /// Tokens in front that the vector leaves out.
    pub(crate) skipped: usize,
}

/// The most tokens of a text, and where that limit comes from.
pub(crate) type TextLimit = (usize, &'static str);

impl Model {
    /// Calls `take` with the index of each of `texts` and its vector, computed with `adapters`, by the poolings that are `wanted`, in F64.
    pub(crate) fn compute_texts(
        &self,
        texts: Vec<Text>,
        wanted: &[Pooling],
        adapters: &Adapters,
        cancel: &CancellationToken,
        mut take: impl FnMut(usize, &[f64]) -> Result<()>,
    ) -> Result<()> {
        let (compute, scheduler) = (self.compute(), &self.inner.scheduler);
        if !compute.gives_hidden_states() {
            return Err(EmbedError::Device.into());
        }
        let wanted: Arc<[Pooling]> = wanted.into();
        // Texts that are left after an error are cancelled.
        let mut computing = Computing { model: self, caller: Arc::default(), cancel: cancel.child(), tokens: 0 };
        let room = compute.step_room();
        let (is_whole, most) = (self.spec().is_encoder(), 2 * (room.rows - room.logits));
        let mut texts: Vec<(usize, Text)> = texts.into_iter().enumerate().collect();
        texts.sort_by_key(|(_, text)| Reverse(text.ids.len()));
        let (mut texts, mut outcome) = (texts.into_iter(), Ok(()));
        loop {
            // Only as many as the next steps have room for, because every step looks at all of them.
            let mut runs = Vec::new();
            while computing.tokens < most
                && outcome.is_ok()
                && let Some((index, Text { ids, second_text, skipped })) = texts.next()
            {
                computing.tokens += ids.len();
                let text = scheduler::Text::new(wanted.clone(), skipped, second_text, is_whole);
                let mut run = Run::of_text(ids, text, adapters, compute, &computing.cancel);
                run.key = index as u64;
                runs.push(run);
            }
            if !runs.is_empty()
                && let Err((error, refused)) = scheduler.submit(&computing.caller, runs)
            {
                computing.tokens -= refused.iter().map(|run| run.input.len()).sum::<usize>();
                outcome = Err(error.into());
            }
            if computing.tokens == 0 {
                return outcome;
            }
            for run in computing.wait() {
                let (tokens, ended) = (run.input.len(), run.outcome().map_err(Error::from));
                if let (Ok(()), RunOutput::Pooled(text)) = (&outcome, run.output) {
                    outcome = ended.and_then(|()| take(run.key as usize, &text.into_vector(tokens)));
                }
            }
            if outcome.is_err() {
                computing.cancel.cancel();
            }
            scheduler.freed();
        }
    }
}

/// Texts in the queue of a model. None stays there, even if the code that takes them panics.
struct Computing<'m> {
    model: &'m Model,
    caller: Arc<Caller>,
    cancel: CancellationToken,
    tokens: usize,
}

impl Computing<'_> {
    /// The runs that are finished, at least one.
    fn wait(&mut self) -> Vec<Run> {
        let finished = self.model.inner.scheduler.wait(self.model.compute(), &self.caller);
        self.tokens -= finished.iter().map(|run| run.input.len()).sum::<usize>();
        finished
    }
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        self.cancel.cancel();
        while self.tokens > 0 {
            self.wait();
        }
        self.model.inner.scheduler.freed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Kernels of a classifier may panic: they compute where a vector is taken.
    #[test]
    fn texts_leave_the_queue_where_taking_one_panics() {
        let model = Model::load(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo-q4_k_m.gguf")).unwrap();
        // These are more texts than a step takes.
        let texts = || (1..60).map(|id| Text { ids: vec![id; 20], second_text: None, skipped: 0 }).collect();
        let compute = |take: &mut dyn FnMut()| {
            let take = |_, _: &[f64]| {
                take();
                Ok(())
            };
            model.compute_texts(texts(), &[Pooling::Mean], &Adapters::default(), &CancellationToken::new(), take)
        };
        let panicked = catch_unwind(AssertUnwindSafe(|| compute(&mut || panic!("a test"))));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"a test"));
        let queue = format!("{:?}", model.inner.scheduler);
        assert!(queue.contains("waiting: [], finished: []"), "{queue}");
        let mut taken = 0;
        compute(&mut || taken += 1).unwrap();
        assert_eq!(taken, 59);
    }
}
