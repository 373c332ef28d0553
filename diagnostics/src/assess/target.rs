//! The target of a judgment: the device, its memory, the plan for it, and why it was chosen.

use super::{Case, ChosenDevice, checks};
use crate::capability::DeviceEngine;
use crate::hardware::{Gpu, Hardware};
use crate::plan::{Budget, KvDtype, Plan, PlanMemory};
use crate::policy::DeviceChoice;
use crate::report::{Check, Status};

pub(super) struct Target<'a> {
    pub(super) case: Case<'a>,
    /// The processor or a GPU by its index.
    pub(super) device: DeviceChoice,
    /// The GPU, if it is one that exists.
    pub(super) gpu: Option<&'a Gpu>,
    pub(super) why: String,
    pub(super) engine: DeviceEngine<'a>,
    pub(super) budget: Budget,
    /// The source of the budget.
    pub(super) how: String,
    /// The name in the report: `t4`, `this CPU`, `the NVIDIA L4`.
    pub(super) name: String,
    /// Memory bandwidth in bytes a second, if a data sheet is known.
    pub(super) bandwidth: Option<u64>,
    pub(super) plan: Plan,
}

impl<'a> Target<'a> {
    /// The processor, or the GPU of an index, judged as if the build supported it. If there is no such GPU, the figures
    /// are the processor's.
    pub(super) fn new(case: Case<'a>, device: DeviceChoice, why: String) -> Target<'a> {
        let (hardware, limit) = (case.hardware, case.policy.memory_limit);
        let Hardware { profile, cpu, memory, gpus, .. } = hardware;
        let gpu = match device {
            DeviceChoice::Cuda(index) => gpus.get(index),
            DeviceChoice::Cpu | DeviceChoice::Auto => None,
        };
        let engine = match gpu {
            Some(gpu) => DeviceEngine::Cuda { compute_capability: gpu.compute_capability, compiled: true },
            None => DeviceEngine::Cpu { features: &cpu.features },
        };
        let (budget, how, name) = match gpu {
            Some(gpu) => {
                // There is no budget if the amount of memory is not known.
                let (free, how) = hardware.gpu_memory(gpu).unwrap_or_default();
                let place = if gpu.shared_memory { PlanMemory::Shared } else { PlanMemory::Gpu };
                let budget = Budget { available: free.min(limit.unwrap_or(u64::MAX)), anonymous: None, place };
                let own = profile.filter(|_| hardware.describes_gpu());
                (budget, how, own.map_or_else(|| format!("the {}", gpu.name), str::to_owned))
            }
            None => (memory.budget(limit), memory.how.clone(), profile.unwrap_or("this CPU").into()),
        };
        let bandwidth = gpu.map_or(memory.bandwidth, |gpu| gpu.bandwidth);
        let plan = case.plan(&budget);
        Target { case, device, gpu, why, engine, budget, how, name, bandwidth, plan }
    }

    /// The device for loading; `None` for a requested GPU that does not exist.
    pub(super) fn chosen(&self) -> Option<ChosenDevice> {
        match (self.device, self.gpu) {
            (DeviceChoice::Cuda(index), gpu) => Some(ChosenDevice::Gpu { index, gpu: gpu?.clone() }),
            (DeviceChoice::Cpu | DeviceChoice::Auto, _) => Some(ChosenDevice::Cpu),
        }
    }

    /// Whether the device has kernels for keys and values in `dtype`.
    pub(super) fn keeps(&self, dtype: KvDtype) -> bool {
        match dtype {
            KvDtype::F32 | KvDtype::F16 => true,
            KvDtype::Q8_0 => self.gpu.is_none(),
        }
    }

    /// The GPU's name, or `this processor`.
    pub(super) fn computer(&self) -> String {
        self.gpu.map_or_else(|| "this processor".into(), |gpu| format!("the {}", gpu.name))
    }
}

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

/// The GPU with the most free memory of those that run the model, or else the processor.
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
