//! What a model is judged for: the device, its memory, and why it was chosen.

use super::{ChosenDevice, checks};
use crate::capability::DeviceEngine;
use crate::hardware::{Gpu, Hardware};
use crate::plan::{Budget, Plan};
use crate::policy::{DeviceChoice, Policy};
use crate::report::{Check, InputSummary, Status};
use crate::spec::ModelSpec;

/// A device to judge for.
pub(super) struct Target<'a> {
    pub(super) device: TargetDevice<'a>,
    /// Why it is this one.
    pub(super) why: String,
    pub(super) engine: DeviceEngine<'a>,
    pub(super) budget: Budget,
    /// Where the budget comes from.
    pub(super) how: String,
    /// `t4`, `this CPU`, `the NVIDIA L4`.
    pub(super) name: String,
    /// Bytes a second, where a data sheet is known.
    pub(super) bandwidth: Option<u64>,
}

/// Which device of a machine.
#[derive(Clone, Copy)]
pub(super) enum TargetDevice<'a> {
    Cpu,
    Gpu {
        index: usize,
        gpu: &'a Gpu,
    },
    /// A GPU that was asked for and is not there.
    Absent {
        index: usize,
    },
}

impl<'a> Target<'a> {
    /// The device that `policy` asks for, or the best one that runs the model.
    pub(super) fn choose(
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
            DeviceChoice::Auto => Target::best(spec, input, hardware, policy),
        }
    }

    /// The processor.
    fn cpu(hardware: &'a Hardware, policy: &Policy, why: String) -> Target<'a> {
        Target {
            device: TargetDevice::Cpu,
            why,
            engine: DeviceEngine::Cpu { features: &hardware.cpu.features },
            budget: Budget::new(&hardware.memory, policy.memory_limit),
            how: hardware.memory.how.clone(),
            name: hardware.profile.unwrap_or("this CPU").into(),
            bandwidth: hardware.memory.bandwidth,
        }
    }

    /// The GPU of this index, judged as if the build had its engine; the processor's figures where there is no such GPU.
    fn gpu_at(hardware: &'a Hardware, policy: &Policy, index: usize, why: String) -> Target<'a> {
        let Some(gpu) = hardware.gpus.get(index) else {
            return Target { device: TargetDevice::Absent { index }, ..Target::cpu(hardware, policy, why) };
        };
        let own = hardware.profile.filter(|_| hardware.describes_gpu());
        Target {
            device: TargetDevice::Gpu { index, gpu },
            why,
            engine: DeviceEngine::Cuda { compute_capability: gpu.compute_capability, compiled: true },
            budget: Budget::of_card(hardware, gpu, policy.memory_limit),
            how: hardware.gpu_memory(gpu).map_or_else(String::new, |(_, how)| how),
            name: own.map_or_else(|| format!("the {}", gpu.name), str::to_owned),
            bandwidth: gpu.bandwidth,
        }
    }

    /// The GPU with most memory free of those that run the model, or else the processor.
    fn best(spec: &ModelSpec, input: &InputSummary, hardware: &'a Hardware, policy: &Policy) -> Target<'a> {
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
            match target.refusal(spec, input, hardware, policy) {
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
    fn refusal(&self, spec: &ModelSpec, input: &InputSummary, hardware: &Hardware, policy: &Policy) -> Option<String> {
        let plan = self.plan(spec, input, policy);
        let checks: [&dyn Fn() -> Check; 3] =
            [&|| checks::hardware(spec, hardware, self), &|| checks::dtype(spec, hardware, self, policy), &|| {
                checks::memory(spec, input, hardware, policy, self, &plan)
            }];
        checks.iter().map(|check| check()).find(|check| check.status == Status::Fail).map(|check| check.summary)
    }

    /// The GPU, where it is one that is there.
    pub(super) fn gpu(&self) -> Option<&'a Gpu> {
        match self.device {
            TargetDevice::Gpu { gpu, .. } => Some(gpu),
            TargetDevice::Cpu | TargetDevice::Absent { .. } => None,
        }
    }

    /// The plan for it.
    pub(super) fn plan(&self, spec: &ModelSpec, input: &InputSummary, policy: &Policy) -> Plan {
        Plan::new(spec, input.bytes(), &self.budget, &policy.request())
    }

    /// The GPU's name, or `this processor`.
    pub(super) fn computer(&self) -> String {
        self.gpu().map_or_else(|| "this processor".into(), |gpu| format!("the {}", gpu.name))
    }
}

impl TargetDevice<'_> {
    /// What loading uses; `None` for a GPU that is not there.
    pub(super) fn chosen(self) -> Option<ChosenDevice> {
        match self {
            TargetDevice::Cpu => Some(ChosenDevice::Cpu),
            TargetDevice::Gpu { index, gpu } => Some(ChosenDevice::Gpu { index, gpu: gpu.clone() }),
            TargetDevice::Absent { .. } => None,
        }
    }

    /// Its name for the user.
    pub(super) fn choice(self) -> DeviceChoice {
        match self {
            TargetDevice::Cpu => DeviceChoice::Cpu,
            TargetDevice::Gpu { index, .. } | TargetDevice::Absent { index } => DeviceChoice::Cuda(index),
        }
    }
}
