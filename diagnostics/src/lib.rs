#![doc = include_str!("../README.md")]

pub mod assess;
pub mod capability;
pub mod hardware;
pub mod policy;
mod relocation;
pub mod report;
pub mod speed;

pub use assess::{ChosenDevice, assess};
pub use hardware::Hardware;
pub use model_factory_dtypes::DType;
pub use model_factory_format::{Error, Result, error, header, limits, source, tokenizer};
pub use model_factory_spec::{Plan, adapter, block, family, plan, spec, vision};
pub use policy::{DeviceChoice, DtypePolicy, Policy};
pub use report::{Report, Verdict};
pub use speed::Speed;

use adapter::AdapterSpec;
use assess::{Assessment, Case};
use family::Family;
use header::Header;
use plan::Batching;
use report::{Candidate, HubModel, InputSummary};
use spec::{ModelSpec, Wanted};
use std::path::{Path, PathBuf};
use tokenizer::TokenizerSpec;

/// A report, and what loading needs if the model runs.
#[derive(Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The results of the diagnosis.
    pub report: Report,
    /// What loading needs; `None` unless [`Verdict::runs`].
    pub ready: Option<Ready>,
    /// The error that ended the diagnosis, if there was one.
    pub error: Option<Error>,
}

/// A model that runs, with everything that was decided before a weight is read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ready {
    /// The parsed files.
    pub header: Header,
    /// The resolved model.
    pub spec: ModelSpec,
    /// The memory that the model takes on the device.
    pub plan: Plan,
    /// The device that it runs on.
    pub device: ChosenDevice,
}

impl Ready {
    /// Which of its sequences are computed in one pass over the weights.
    pub fn batching(&self) -> Batching {
        Batching::new(&self.spec, !matches!(self.device, ChosenDevice::Cpu))
    }
}

/// Diagnoses the model at `path` on `hardware`. It reads only headers, and always returns a report.
pub fn diagnose(path: &Path, hardware: &Hardware, policy: &Policy) -> Report {
    diagnose_with(family::REGISTRY, path, hardware, policy).report
}

/// Diagnoses with the families of `registry`, and keeps the files that were read for the loader.
pub fn diagnose_with(registry: &[&'static Family], path: &Path, hardware: &Hardware, policy: &Policy) -> Diagnosis {
    let mut diagnosis = diagnose_one(registry, path, None, hardware, policy);
    if let Some(Error::Ambiguous { candidates, .. }) = &diagnosis.error {
        let models = candidates.iter().flat_map(|path| candidates_at(registry, path, hardware, policy));
        let models: Vec<Candidate> = models.collect();
        diagnosis.report.hold(models);
    }
    diagnosis
}

/// Like [`diagnose_with`], for files at `path` that belong to `model` of the Hub or stand for them: the report names
/// the input by its id, and commands have the form of the id that each program takes.
pub fn diagnose_hub(
    registry: &[&'static Family],
    path: &Path,
    model: &HubModel,
    hardware: &Hardware,
    policy: &Policy,
) -> Diagnosis {
    diagnose_one(registry, path, Some(model), hardware, policy)
}

/// The report of a diagnosis that ended with `error` before there was a file to read at `path`.
pub fn unread(error: &Error, path: &Path, hardware: &Hardware, policy: &Policy) -> Report {
    assess::assess_error(error, InputSummary::unknown(path), hardware, policy)
}

/// The model at `path`, or the models if it is a folder of several. Goes no deeper, as a link in it may lead back.
fn candidates_at(registry: &[&'static Family], path: &Path, hardware: &Hardware, policy: &Policy) -> Vec<Candidate> {
    let diagnosis = diagnose_one(registry, path, None, hardware, policy);
    match &diagnosis.error {
        Some(Error::Ambiguous { candidates, .. }) => {
            let reports = candidates.iter().map(|path| diagnose_one(registry, path, None, hardware, policy).report);
            reports.map(|report| Candidate::from(&report)).collect()
        }
        _ => vec![Candidate::from(&diagnosis.report)],
    }
}

fn diagnose_one(
    registry: &[&'static Family],
    path: &Path,
    hub: Option<&HubModel>,
    hardware: &Hardware,
    policy: &Policy,
) -> Diagnosis {
    let mut input = InputSummary::unknown(path);
    let understood = source::probe(path).and_then(|source| {
        input = InputSummary::from(&source);
        let source = if policy.sees() { source.with_projector(policy.mmproj.as_deref())? } else { source };
        input = InputSummary::from(&source);
        let mut header = Header::read(source)?;
        if let Some(given) = &policy.tokenizer {
            TokenizerSpec::give(&mut header, given)?;
        }
        input = InputSummary::from(&header);
        let mut spec =
            spec::inspect_as(&header, registry, Wanted { predictor: policy.predictor, vision: policy.sees() })?;
        if let Some(given) = &policy.tokenizer {
            spec.tokenizer = spec.tokenizer.with_given(&header, given)?;
        }
        Ok((header, spec))
    });
    if let Some(model) = hub {
        (input.path, input.hub) = (model.to_string(), Some(model.clone()));
    }
    match understood {
        Ok((header, spec)) => {
            let read = |path: &PathBuf| AdapterSpec::read(path, &spec, header.source.format);
            let adapters: Vec<Result<AdapterSpec>> = policy.lora.iter().map(read).collect();
            let case = Case { spec: &spec, input: &input, hardware, policy, adapters: &adapters };
            let Assessment { report, ready } = case.assess();
            let ready = ready.map(|(plan, device)| Ready { header, spec, plan, device });
            Diagnosis { report, ready, error: None }
        }
        Err(error) => {
            let report = assess::assess_error(&error, input, hardware, policy);
            Diagnosis { report, ready: None, error: Some(error) }
        }
    }
}
