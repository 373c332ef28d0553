//! Policy x machine -> the device that a model is judged for.

use super::target::Target;
use super::{Case, checks};
use crate::policy::DeviceChoice;
use crate::report::{Check, Status};

/// The device that the policy asks for, or the best one that runs the model.
pub(super) fn choose(case: Case<'_>) -> Target<'_> {
    match case.policy.device {
        DeviceChoice::Auto if case.hardware.describes_gpu() => {
            Target::new(case, DeviceChoice::Cuda(0), "the GPU of the described machine".into())
        }
        DeviceChoice::Auto => best(case),
        asked => Target::new(case, asked, "asked for".into()),
    }
}

/// The GPU with most memory free of those that run the model, or else the processor.
fn best(case: Case<'_>) -> Target<'_> {
    let hardware = case.hardware;
    let Some(first) = hardware.gpus.first() else {
        let note = hardware.gpu_note.as_deref().unwrap_or("none found");
        return Target::new(case, DeviceChoice::Cpu, format!("there is no NVIDIA GPU: {note}"));
    };
    if !hardware.has_cuda() {
        let why = format!("the {} is not used: this build has no CUDA engine", first.name);
        return Target::new(case, DeviceChoice::Cpu, why);
    }
    let (mut visible, hidden): (Vec<usize>, Vec<usize>) =
        (0..hardware.gpus.len()).partition(|index| hardware.gpus[*index].visible_as.is_none());
    let free = |index: &usize| hardware.gpu_memory(&hardware.gpus[*index]).map_or(0, |(bytes, _)| bytes);
    visible.sort_by_key(|index| std::cmp::Reverse(free(index)));
    let mut refusals = Vec::new();
    for index in visible {
        let mut target = Target::new(case, DeviceChoice::Cuda(index), String::new());
        match refusal(&target) {
            None => {
                let several = hardware.gpus.len() > hidden.len() + 1;
                let most = if several { ", the most free memory of those that do" } else { "" };
                target.why = format!("{} computes it as stored and has room for it{most}", target.name);
                return target;
            }
            Some(refusal) => refusals.push(format!("not cuda:{index}: {refusal}")),
        }
    }
    if !hidden.is_empty() {
        refusals.push(format!("{} more by CUDA_VISIBLE_DEVICES alone", hidden.len()));
    }
    Target::new(case, DeviceChoice::Cpu, refusals.join("; "))
}

fn refusal(target: &Target<'_>) -> Option<String> {
    let checks: [fn(&Target<'_>) -> Check; 3] = [checks::hardware, checks::dtype, checks::memory];
    checks.iter().map(|check| check(target)).find(|check| check.status == Status::Fail).map(|check| check.summary)
}
