//! Ids of texts -> a vector of the hidden states of each, the longest texts first.

use crate::cancel::CancellationToken;
use crate::error::{EmbedError, Error, Result};
use crate::model::Model;
use crate::scheduler::queue::Caller;
use crate::scheduler::{self, Run, RunOutput};
use model_factory_diagnostics::plan::step_rows;
use model_factory_diagnostics::spec::Pooling;
use std::cmp::Reverse;
use std::sync::Arc;

/// The ids of a text.
pub(crate) struct Text {
    pub(crate) ids: Vec<u32>,
    /// The place from which ids are of the second kind.
    pub(crate) second_text: Option<usize>,
}

/// Tokens of a text at most, and where that comes from.
pub(crate) type TextLimit = (usize, &'static str);

impl Model {
    /// Calls `take` with the index of each of `texts` and the hidden states of it that are `wanted`, in F64: one, or their mean.
    ///
    /// # Errors
    /// Those of the steps and of `take`.
    pub(crate) fn compute_texts(
        &self,
        texts: Vec<Text>,
        wanted: Pooling,
        cancel: &CancellationToken,
        mut take: impl FnMut(usize, &[f64]) -> Result<()>,
    ) -> Result<()> {
        let (compute, scheduler, caller) = (self.compute(), self.scheduler(), Arc::<Caller>::default());
        if !compute.gives_hidden_states() {
            return Err(EmbedError::Device.into());
        }
        // Those that are left after an error are cancelled.
        let cancel = cancel.child();
        let (is_whole, most) = (self.spec().is_encoder(), 2 * step_rows(self.spec()));
        let mut texts: Vec<(usize, Text)> = texts.into_iter().enumerate().collect();
        texts.sort_by_key(|(_, text)| Reverse(text.ids.len()));
        let (mut texts, mut computing, mut outcome) = (texts.into_iter(), 0, Ok(()));
        loop {
            // As many as the next steps have room for: these are looked at in every step.
            let mut runs = Vec::new();
            while computing < most
                && outcome.is_ok()
                && let Some((index, Text { ids, second_text })) = texts.next()
            {
                computing += ids.len();
                let text = scheduler::Text::new(wanted, second_text, is_whole);
                let mut run = Run::of_text(ids, text, compute, &cancel);
                run.key = index as u64;
                runs.push(run);
            }
            if !runs.is_empty()
                && let Err((error, refused)) = scheduler.submit(&caller, runs)
            {
                computing -= refused.iter().map(|run| run.ids.len()).sum::<usize>();
                outcome = Err(error.into());
            }
            if computing == 0 {
                return outcome;
            }
            for run in scheduler.wait(compute, &caller) {
                let (tokens, ended) = (run.ids.len(), run.outcome().map_err(Error::from));
                computing -= tokens;
                if let (Ok(()), RunOutput::Pooled(text)) = (&outcome, run.output) {
                    outcome = ended.and_then(|()| take(run.key as usize, &text.into_vector(tokens)));
                }
            }
            if outcome.is_err() {
                cancel.cancel();
            }
            scheduler.freed();
        }
    }
}
