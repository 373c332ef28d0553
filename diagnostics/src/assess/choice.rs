//! Policy x machine -> the device that a model is judged for.

use super::checks;
use super::target::Target;
use crate::hardware::Hardware;
use crate::policy::{DeviceChoice, Policy};
use crate::report::{Check, InputSummary, Status};
use crate::spec::ModelSpec;

/// The device that `policy` asks for, or the best one that runs the model.
pub(super) fn choose<'a>(
    spec: &ModelSpec,
    input: &InputSummary,
    hardware: &'a Hardware,
    policy: &Policy,
) -> Target<'a> {
    let asked = || "asked for".to_owned();
    match policy.device {
        DeviceChoice::Cpu => Target::cpu(hardware, policy, asked()),
        DeviceChoice::Cuda(index) => Target::gpu_at(hardware, policy, index, asked()),
        DeviceChoice::Auto if hardware.describes_gpu() => {
            Target::gpu_at(hardware, policy, 0, "the GPU of the described machine".into())
        }
        DeviceChoice::Auto => best(spec, input, hardware, policy),
    }
}

/// The GPU with most memory free of those that run the model, or else the processor.
fn best<'a>(spec: &ModelSpec, input: &InputSummary, hardware: &'a Hardware, policy: &Policy) -> Target<'a> {
    let Some(first) = hardware.gpus.first() else {
        let note = hardware.gpu_note.as_deref().unwrap_or("none found");
        return Target::cpu(hardware, policy, format!("there is no NVIDIA GPU: {note}"));
    };
    if !hardware.has_cuda() {
        let why = format!("the {} is not used: this build has no CUDA engine", first.name);
        return Target::cpu(hardware, policy, why);
    }
    let (mut visible, hidden): (Vec<usize>, Vec<usize>) =
        (0..hardware.gpus.len()).partition(|index| hardware.gpus[*index].visible_as.is_none());
    let free = |index: &usize| hardware.gpu_memory(&hardware.gpus[*index]).map_or(0, |(bytes, _)| bytes);
    visible.sort_by_key(|index| std::cmp::Reverse(free(index)));
    let mut refusals = Vec::new();
    for index in visible {
        let mut target = Target::gpu_at(hardware, policy, index, String::new());
        match refusal(&target, spec, input, hardware, policy) {
            None => {
                let only = if hardware.gpus.len() == hidden.len() + 1 {
                    ""
                } else {
                    ", the most free memory of those that do"
                };
                target.why = format!("{} computes it as stored and has room for it{only}", target.name);
                return target;
            }
            Some(refusal) => refusals.push(format!("not cuda:{index}: {refusal}")),
        }
    }
    if !hidden.is_empty() {
        refusals.push(format!("{} more by CUDA_VISIBLE_DEVICES alone", hidden.len()));
    }
    Target::cpu(hardware, policy, refusals.join("; "))
}

/// Why the target does not run the model.
fn refusal(
    target: &Target<'_>,
    spec: &ModelSpec,
    input: &InputSummary,
    hardware: &Hardware,
    policy: &Policy,
) -> Option<String> {
    let plan = target.plan(spec, input, policy);
    let checks: [&dyn Fn() -> Check; 3] =
        [&|| checks::hardware(spec, hardware, target), &|| checks::dtype(spec, hardware, target, policy), &|| {
            checks::memory(spec, input, hardware, policy, target, &plan)
        }];
    checks.iter().map(|check| check()).find(|check| check.status == Status::Fail).map(|check| check.summary)
}
