//! ModelSpec x Hardware x Policy -> Report. Pure and total: it reads nothing but its arguments, and always answers.

mod checks;
mod distribute;
mod failure;
mod gpus;
mod target;

pub(crate) use failure::assess_error;

use crate::adapter::AdapterSpec;
use crate::error::Error;
use crate::hardware::profiles::{PROFILES, Profile};
use crate::hardware::{Gpu, Hardware};
use crate::plan::{Batching, Budget, Plan};
use crate::policy::{DeviceChoice, Policy};
use crate::report::{
    self, AdapterSummary, Check, InputSummary, ModelSummary, NextStep, Remedy, Report, SCHEMA_VERSION, Status, Verdict,
};
use crate::spec::ModelSpec;
use crate::speed::Speed;

/// The device that a model was judged for and will run on. Complete.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum ChosenDevice {
    /// The processor.
    Cpu,
    /// The NVIDIA GPU of this index in [`Hardware::gpus`], with its properties.
    Gpu { index: usize, gpu: Gpu },
}

/// The result of the checks, and what loading needs if the model runs.
pub(crate) struct Assessment {
    pub(crate) report: Report,
    /// The plan and the device; `None` unless the verdict is that the model runs.
    pub(crate) ready: Option<(Plan, ChosenDevice)>,
}

/// Judges a model, whose files `input` describes, on a machine.
///
/// A described machine with a GPU is judged for that GPU, with a build that supports it.
pub fn assess(spec: &ModelSpec, input: &InputSummary, hardware: &Hardware, policy: &Policy) -> Report {
    Case { spec, input, hardware, policy, adapters: &[] }.assess().report
}

/// What is judged: a model, its files, the machine, and the user's options.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) spec: &'a ModelSpec,
    pub(crate) input: &'a InputSummary,
    pub(crate) hardware: &'a Hardware,
    pub(crate) policy: &'a Policy,
    /// The adapters that are judged with the model, or why they are none of it, in the order of [`Policy::lora`].
    pub(crate) adapters: &'a [Result<AdapterSpec, Error>],
}

impl Case<'_> {
    pub(crate) fn assess(self) -> Assessment {
        let Assessment { mut report, ready } = self.judge();
        if report.verdict == Verdict::DoesNotFit {
            report.distribution = distribute::distribute(self);
            report.remedies.extend(report.distribution.iter().map(|plan| plan.to_string().into()));
        }
        let elsewhere = Policy { device: DeviceChoice::Auto, ..self.policy.clone() };
        let runs_on = |hardware: &Hardware| Case { hardware, policy: &elsewhere, ..self }.judge().ready.is_some();
        report.next = next_steps(&report, self.policy, runs_on);
        Assessment { report, ready }
    }

    fn plan(self, budget: &Budget) -> Plan {
        Plan::new(self.spec, self.input.bytes(), budget, &self.policy.request(self.hardware))
    }

    fn judge(self) -> Assessment {
        let Case { spec, input, hardware, policy, adapters } = self;
        let target = target::choose(self);
        let mut checks = vec![
            checks::input(input),
            checks::format(input),
            checks::integrity(spec, input),
            checks::architecture(spec),
            checks::tensors(spec),
            checks::hardware(&target),
            checks::environment(hardware),
            checks::dtype(&target),
            checks::rope(spec),
            checks::tokenizer(spec, policy),
            checks::template(spec),
            checks::context(spec, policy),
            checks::memory(&target),
        ];
        let belonging =
            || policy.lora.iter().zip(adapters).filter_map(|(path, adapter)| Some((path, adapter.as_ref().ok()?)));
        let summaries: Vec<_> = belonging().map(|(path, adapter)| AdapterSummary::new(path, adapter, spec)).collect();
        checks.extend((!adapters.is_empty()).then(|| checks::adapters(adapters, &summaries)));
        if target.gpu.is_some() && gpus::beyond(self) {
            // No other dtype, smaller file or other GPU would help.
            for check in checks.iter_mut().filter(|check| matches!(check.id, "dtype" | "memory")) {
                check.remedies.retain(|it| matches!(it, Remedy::Processor(_) | Remedy::SomeProcessor));
            }
        }
        let model = ModelSummary::new(spec, &target.engine, policy.activation_dtype);
        let success = format!(
            "{} ({}, {}) runs on {}, context {} of {}",
            spec.variant,
            spec.architecture,
            report::stored_as(&model, input),
            target.name,
            target.plan.context,
            spec.context_trained
        );
        let mut report = conclude(input.clone(), hardware, policy, checks, success);
        let runs = report.verdict.runs();
        let product = target.gpu.map_or("", |gpu| &gpu.name);
        let bandwidth = target.bandwidth.filter(|_| runs);
        report.speed =
            bandwidth.and_then(|bandwidth| Speed::new(spec, &target.plan, &target.engine, product, bandwidth));
        report.batching = Batching::new(spec, target.device != DeviceChoice::Cpu).reason().filter(|_| runs);
        let chosen = target.chosen();
        // No plan can be made for a GPU that does not exist.
        report.plan = chosen.as_ref().map(|_| target.plan.clone());
        report.device = target.device.to_string();
        report.device_reason = target.why;
        report.model = Some(model);
        report.adapters = summaries;
        Assessment { report, ready: chosen.filter(|_| runs).map(|device| (target.plan, device)) }
    }
}

/// Derives the verdict from the checks: the first failure, else a warning, else that the model runs.
fn conclude(input: InputSummary, hardware: &Hardware, policy: &Policy, checks: Vec<Check>, success: String) -> Report {
    let failure = checks.iter().find(|check| check.status == Status::Fail);
    let warnings: Vec<&Check> = checks.iter().filter(|check| check.status == Status::Warn).collect();
    let (verdict, reason) = match failure {
        // Every failing check carries its verdict; one without would be a fault of this library, not of the file.
        Some(check) => (check.verdict.unwrap_or(Verdict::Unreadable), check.summary.clone()),
        None if warnings.is_empty() => (Verdict::Compatible, success),
        None => {
            let summaries: Vec<_> = warnings.iter().map(|check| check.summary.as_str()).collect();
            (Verdict::CompatibleWithWarnings, format!("{success}; {}", summaries.join("; ")))
        }
    };
    let (failed, others): (Vec<_>, Vec<_>) = checks.iter().partition(|check| check.status == Status::Fail);
    let remedies = failed.into_iter().chain(others);
    let remedies = merged(remedies.flat_map(|check| &check.remedies));
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
        next: Vec::new(),
        policy: policy.clone(),
        distribution: None,
        input,
        model: None,
        adapters: Vec::new(),
        device: device.to_string(),
        device_reason: "no device was looked at".into(),
        hardware: hardware.clone(),
        checks,
        plan: None,
        speed: None,
        batching: None,
        casts: 0,
    }
}

/// Each remedy once; if one is the beginning of another, only the longer one, which says more.
fn merged<'a>(remedies: impl Iterator<Item = &'a Remedy>) -> Vec<Remedy> {
    // A number or name that goes on is a different one.
    let says = |longer: &str, shorter: &str| {
        longer.strip_prefix(shorter).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ',', ';']))
    };
    let mut merged: Vec<(String, Remedy)> = Vec::new();
    for remedy in remedies {
        let said = remedy.to_string();
        match merged.iter_mut().find(|(known, _)| says(known, &said) || says(&said, known)) {
            Some((known, _)) if known.len() >= said.len() => {}
            Some(known) => *known = (said, remedy.clone()),
            None => merged.push((said, remedy.clone())),
        }
    }
    merged.into_iter().map(|(_, remedy)| remedy).collect()
}

/// The next steps after `report`. `runs_on` says whether the model runs on another machine.
fn next_steps(report: &Report, policy: &Policy, runs_on: impl Fn(&Hardware) -> bool) -> Vec<NextStep> {
    let hardware = &report.hardware;
    let here = hardware.profile.is_none();
    let larger = || larger_machine(hardware, &runs_on).map(NextStep::OnMachine);
    let step = match report.verdict {
        Verdict::Compatible | Verdict::CompatibleWithWarnings => here.then_some(NextStep::Run),
        Verdict::HardwareInsufficient => {
            let processor = here && matches!(policy.device, DeviceChoice::Cuda(_)) && runs_on(hardware);
            processor.then_some(NextStep::RunOnProcessor)
        }
        Verdict::DoesNotFit => {
            let most = report.plan.as_ref().map_or(0, |plan| checks::proposed_context(plan, hardware));
            let less = (most > 0).then_some(NextStep::WithContext(most));
            return less.into_iter().chain(larger()).collect();
        }
        Verdict::UnsupportedDtype => larger(),
        _ => None,
    };
    step.into_iter().collect()
}

/// The described machine with the least memory that runs the model; machines of the kind of `like`, with a GPU or
/// without, are preferred.
fn larger_machine(like: &Hardware, runs_on: impl Fn(&Hardware) -> bool) -> Option<&'static str> {
    let mut profiles: Vec<&Profile> = PROFILES.iter().collect();
    profiles.sort_by_key(|profile| (profile.gpu().is_none() != like.gpus.is_empty(), profile.memory()));
    profiles.into_iter().find(|profile| runs_on(&profile.hardware())).map(|profile| profile.name)
}

#[cfg(test)]
mod tests {
    use super::{Remedy, merged};

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
            let remedies: Vec<Remedy> = remedies.iter().map(|remedy| (*remedy).into()).collect();
            let merged: Vec<String> = merged(remedies.iter()).iter().map(Remedy::to_string).collect();
            assert_eq!(merged, expected);
        }
    }
}
