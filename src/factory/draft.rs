//! The draft model of a model: diagnosed before it, so that the plan has room for both, and loaded after it.

use super::ModelBuilder;
use crate::error::{DraftError, Result};
use crate::model::{Inner, Model};
use crate::threads::Pool;
use crate::tokenizer::Tokenizer;
use model_factory_diagnostics::plan::{DraftSize, Plan, Request, state_bytes};
use model_factory_diagnostics::{DeviceChoice, Diagnosis, Hardware, Policy, Ready, Report};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tracing::info_span;

/// A draft model that runs by itself.
pub(super) struct Draft {
    begun: Instant,
    ready: Ready,
    report: Report,
}

impl ModelBuilder {
    /// Diagnoses the draft model, where one is wanted, and returns it with the builder that plans room for it.
    ///
    /// # Errors
    /// The report of a draft model that does not run on `hardware`.
    pub(super) fn with_draft(
        &self,
        hardware: &Hardware,
    ) -> Result<(Cow<'_, ModelBuilder>, Option<Draft>), Box<Report>> {
        let Some(path) = &self.draft else { return Ok((Cow::Borrowed(self), None)) };
        let begun = Instant::now();
        let own = self.policy.clone();
        let policy = Policy { device: DeviceChoice::Cpu, tokenizer: None, predictor: false, vision: false, ..own };
        let policy = Policy { mmproj: None, adapters: None, lora: Vec::new(), ..policy };
        let alone = ModelBuilder { policy, ..self.clone() };
        let Diagnosis { report, ready, .. } = alone.diagnosis(path, None, hardware);
        let Some(ready) = ready else { return Err(Box::new(report)) };
        let size = DraftSize::new(&ready.spec, ready.plan.weights_file, self.policy.kv_dtype);
        let policy = Policy { draft: Some(size), ..self.policy.clone() };
        Ok((Cow::Owned(ModelBuilder { policy, ..self.clone() }), Some(Draft { begun, ready, report })))
    }

    /// Whether `draft` can guess for the model at `path`, which has `diagnosis` and `tokenizer`.
    ///
    /// # Errors
    /// `Draft`, and the errors of building its tokenizer.
    pub(super) fn check_draft(&self, draft: &Draft, path: &Path, ready: &Ready, tokenizer: &Tokenizer) -> Result<()> {
        let paths = || (path.to_owned(), draft.ready.header.source.path.clone());
        if let Some(reason) = ready.batching().reason() {
            return Err(DraftError::Alone { draft: paths().1, reason }.into());
        }
        let Ready { header, spec, .. } = &draft.ready;
        if state_bytes(spec) > 0 {
            let reason = "its layers have states, which are not cut back to every position";
            return Err(DraftError::Alone { draft: paths().1, reason }.into());
        }
        let own = Tokenizer::from_header(header, &spec.tokenizer)?;
        self.cancel.check()?;
        let entry =
            |tokenizer: &Tokenizer, rows: usize, id: u32| Entry::new(tokenizer, id).filter(|_| (id as usize) < rows);
        let ids = 0..u32::try_from(tokenizer.vocab_len().max(own.vocab_len())).unwrap_or(u32::MAX);
        for id in ids {
            let (here, there) = (entry(tokenizer, ready.spec.vocab, id), entry(&own, spec.vocab, id));
            if here != there {
                let (model, draft) = paths();
                let (in_model, in_draft) = (described(here), described(there));
                return Err(DraftError::Vocabulary { model, draft, id, in_model, in_draft }.into());
            }
        }
        Ok(())
    }

    /// Loads `draft` for a model of `plan`, whose tokenizer and threads it shares.
    pub(super) fn load_draft(
        &self,
        draft: Draft,
        plan: &Plan,
        tokenizer: Arc<Tokenizer>,
        pool: Arc<Pool>,
    ) -> Result<Model> {
        let Draft { begun, mut ready, mut report } = draft;
        let path = ready.header.source.path.display();
        let _span = info_span!("load_draft", path = %path, variant = %ready.spec.variant).entered();
        let budget = report.hardware.memory.budget(self.policy.memory_limit);
        let (context, sessions) = (Some(plan.context), Some(plan.sessions));
        // What threads take for themselves is counted with the model that they are shared with.
        let request = Request { context, sessions, threads: 0, draft: None, ..self.policy.request(&report.hardware) };
        let request = Request { adapters: None, ..request };
        ready.plan = Plan::new(&ready.spec, ready.plan.weights_file, &budget, &request);
        report.plan = Some(ready.plan.clone());
        let (context_length, threads) = (ready.plan.context, pool.threads());
        let engine = self.engine(&ready, pool)?;
        let inner = Inner::new(ready.spec, ready.header.source.format, report, tokenizer, engine);
        Ok(Model::new(Inner { context_length, threads, load_time: begun.elapsed(), ..inner }))
    }
}

/// What an id means to a tokenizer that uses it.
#[derive(PartialEq)]
struct Entry {
    text: Option<String>,
    special: bool,
    added: bool,
}

impl Entry {
    /// `None` for an id that only fills the vocabulary up, or is beyond it.
    fn new(tokenizer: &Tokenizer, id: u32) -> Option<Entry> {
        let is_used = tokenizer.token_bytes(id).is_some() && tokenizer.unused_ids().binary_search(&id).is_err();
        is_used.then(|| {
            let text = tokenizer.token_text(id);
            let added = text.as_deref().and_then(|text| tokenizer.added_token(text)) == Some(id);
            Entry { text, special: tokenizer.is_special(id), added }
        })
    }
}

fn described(entry: Option<Entry>) -> String {
    let Some(Entry { text, special, added }) = entry else { return "no token".into() };
    let kind = match (special, added) {
        (true, _) => "the special token",
        (false, true) => "the added token",
        (false, false) => "the token",
    };
    format!("{kind} {:?}", text.unwrap_or_default())
}
