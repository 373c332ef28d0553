//! ModelSpec x Hardware x Policy -> Report. Pure and total: it reads nothing but its arguments, and always answers.

mod cards;
mod checks;
mod failure;
mod target;

pub(crate) use failure::assess_error;

use crate::hardware::Hardware;
use crate::plan::{KvDtype, Request, WeightStorage};
use crate::report::{self, Check, Input, ModelSummary, Report, SCHEMA_VERSION, Status, Verdict};
use crate::spec::ModelSpec;
use crate::speed::Speed;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use target::Target;

/// What the user asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Where to run.
    pub device: DeviceChoice,
    /// Tokens of context; `None` is the largest that fits.
    pub context: Option<usize>,
    /// Bytes that the plan may use at most, below what the machine has.
    pub memory_limit: Option<u64>,
    /// Which tiers are good enough.
    pub dtypes: DtypePolicy,
    /// The element type of the KV cache.
    pub kv_dtype: KvDtype,
    /// Sessions that are open at once; `None` plans one, and does not limit how many share what memory is left.
    pub sessions: Option<usize>,
    /// Where weights lie for the processor.
    pub weights: WeightStorage,
    /// A `tokenizer.json` that takes the place of the model's own, which need not have one then.
    pub tokenizer: Option<PathBuf>,
}

impl Policy {
    /// What a plan is made for.
    pub(crate) fn request(&self) -> Request {
        Request { context: self.context, sessions: self.sessions, kv_dtype: self.kv_dtype, weights: self.weights }
    }
}

/// Where to run. Complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The best device that can run the model.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The NVIDIA card of this index among those of [`Hardware::gpus`].
    Cuda(usize),
}

/// Which tiers are good enough. Complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DtypePolicy {
    /// Native arithmetic, or loss-free widening inside a register.
    #[default]
    NativeOrWidened,
    /// Only arithmetic in the stored dtype.
    NativeOnly,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// A text that names no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, cpu, cuda or cuda:N")]
pub struct UnknownDevice;

impl FromStr for DeviceChoice {
    type Err = UnknownDevice;

    /// `auto`, `cpu`, `cuda` (the first card), `cuda:N`.
    fn from_str(text: &str) -> Result<DeviceChoice, UnknownDevice> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            _ => {
                let index = text.strip_prefix("cuda:").and_then(|index| index.parse().ok());
                index.map(DeviceChoice::Cuda).ok_or(UnknownDevice)
            }
        }
    }
}

/// Judges a model, whose files `input` describes, on a machine.
///
/// A described machine with a card is judged for that card, by a build that has its engine.
pub fn assess(spec: &ModelSpec, input: &Input, hardware: &Hardware, policy: &Policy) -> Report {
    let mut report = judge(spec, input, hardware, policy);
    if report.verdict == Verdict::DoesNotFit {
        report.distribution = report::distribute(spec, input, hardware, policy);
        report.remedies.extend(report.distribution.iter().map(ToString::to_string));
    }
    let elsewhere = Policy { device: DeviceChoice::Auto, ..policy.clone() };
    let runs_on = |hardware: &Hardware| judge(spec, input, hardware, &elsewhere).verdict.runs();
    report.commands = report::commands(&report, policy, runs_on);
    report
}

/// The report without the commands to go on with.
fn judge(spec: &ModelSpec, input: &Input, hardware: &Hardware, policy: &Policy) -> Report {
    let target = Target::choose(spec, input, hardware, policy);
    let plan = target.plan(spec, input, policy);
    let checks = vec![
        checks::input(input),
        checks::format(input),
        checks::integrity(spec, input),
        checks::architecture(spec),
        checks::tensors(spec),
        checks::hardware(spec, hardware, &target),
        checks::environment(hardware),
        checks::dtype(spec, hardware, &target, policy),
        checks::rope(spec),
        checks::tokenizer(spec, policy),
        checks::template(spec),
        checks::context(spec, policy),
        checks::memory(spec, input, hardware, policy, &target, &plan),
    ];
    let model = ModelSummary::new(spec, &target.engine);
    let success = format!(
        "{} ({}, {}) runs on {}, context {} of {}",
        spec.variant,
        spec.architecture,
        stored_as(&model, input),
        target.name,
        plan.context,
        spec.context_trained
    );
    let mut report = conclude(input.clone(), hardware, policy, checks, success);
    let bandwidth = target.bandwidth.filter(|_| report.verdict.runs());
    report.speed = bandwidth.and_then(|bandwidth| Speed::new(spec, &plan, &target.engine, bandwidth));
    // Of a card that is not there nothing is known to plan for.
    report.plan = (!target.absent()).then_some(plan);
    report.device = target.device.to_string();
    report.device_reason = target.why;
    report.model = Some(model);
    report
}

/// Lets the checks decide: the first failure, else a warning, else nothing.
fn conclude(input: Input, hardware: &Hardware, policy: &Policy, checks: Vec<Check>, success: String) -> Report {
    let failure = checks.iter().find(|check| check.status == Status::Fail);
    let warnings: Vec<&Check> = checks.iter().filter(|check| check.status == Status::Warn).collect();
    let (verdict, reason) = match failure {
        // Every failing check carries its verdict; one that did not would be a fault of ours, not of the file.
        Some(check) => (check.verdict.unwrap_or(Verdict::Unreadable), check.summary.clone()),
        None if warnings.is_empty() => (Verdict::Compatible, success),
        None => {
            let summaries: Vec<_> = warnings.iter().map(|check| check.summary.as_str()).collect();
            (Verdict::CompatibleWithWarnings, format!("{success}; {}", summaries.join("; ")))
        }
    };
    let (failed, others): (Vec<_>, Vec<_>) = checks.iter().partition(|check| check.status == Status::Fail);
    let remedies = failed.into_iter().chain(others);
    let remedies = merged(remedies.flat_map(|check| check.remedy.iter().chain(&check.more_remedies)));
    let device = match policy.device {
        DeviceChoice::Auto => DeviceChoice::Cpu,
        chosen => chosen,
    };
    Report {
        schema_version: SCHEMA_VERSION,
        verdict,
        exit_code: verdict.exit_code(),
        reason,
        remedies,
        commands: Vec::new(),
        distribution: None,
        input,
        model: None,
        device: device.to_string(),
        device_reason: "no device was looked at".into(),
        hardware: hardware.clone(),
        checks,
        plan: None,
        speed: None,
        casts: 0,
    }
}

/// Each remedy once, and of two of which one goes on where the other ends the longer one, which says more.
fn merged<'a>(remedies: impl Iterator<Item = &'a String>) -> Vec<String> {
    // A longer number or name is another one.
    let says = |longer: &str, shorter: &str| {
        longer.strip_prefix(shorter).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ',', ';']))
    };
    let mut merged: Vec<String> = Vec::new();
    for remedy in remedies {
        match merged.iter_mut().find(|known| says(known, remedy) || says(remedy, known)) {
            Some(known) if known.len() >= remedy.len() => {}
            Some(known) => known.clone_from(remedy),
            None => merged.push(remedy.clone()),
        }
    }
    merged
}

/// `GGUF Q4_K_M`, `safetensors BF16`: the scheme where there is one, else the dtype most bytes are stored in.
pub(crate) fn stored_as(model: &ModelSummary, input: &Input) -> String {
    if model.quantization.starts_with(input.format_name()) {
        return model.quantization.clone();
    }
    let dtype = model.dtypes.first().map_or("empty", |summary| summary.dtype.name());
    match model.quantization.as_str() {
        "none" => format!("{} {dtype}", input.format_name()),
        scheme => format!("{} {scheme}", input.format_name()),
    }
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn remedies_merge_at_the_ends_of_words() {
        let cases: [(&[&str], &[&str]); 5] = [
            (&["use it", "use it"], &["use it"]),
            (&["use it", "free memory", "use it, with 8 threads"], &["use it, with 8 threads", "free memory"]),
            (&["use it with 8 threads", "use it"], &["use it with 8 threads"]),
            (&["--context 512", "--context 51"], &["--context 512", "--context 51"]),
            (&["--device cuda", "--device cuda:1"], &["--device cuda", "--device cuda:1"]),
        ];
        for (remedies, expected) in cases {
            let remedies: Vec<String> = remedies.iter().map(|remedy| (*remedy).to_owned()).collect();
            assert_eq!(merged(remedies.iter()), expected);
        }
    }
}
