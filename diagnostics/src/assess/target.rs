//! What a model is judged for: the device, its memory, and why it was chosen.

use super::ChosenDevice;
use crate::capability::DeviceEngine;
use crate::hardware::{Gpu, Hardware};
use crate::plan::{Budget, KvDtype, Plan};
use crate::policy::{DeviceChoice, Policy};
use crate::report::InputSummary;
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
    /// The processor.
    pub(super) fn cpu(hardware: &'a Hardware, policy: &Policy, why: String) -> Target<'a> {
        Target {
            device: TargetDevice::Cpu,
            why,
            engine: DeviceEngine::Cpu { features: &hardware.cpu.features },
            budget: hardware.memory.budget(policy.memory_limit),
            how: hardware.memory.how.clone(),
            name: hardware.profile.unwrap_or("this CPU").into(),
            bandwidth: hardware.memory.bandwidth,
        }
    }

    /// The GPU of this index, judged as if the build had its engine; the processor's figures where there is no such GPU.
    pub(super) fn gpu_at(hardware: &'a Hardware, policy: &Policy, index: usize, why: String) -> Target<'a> {
        let Some(gpu) = hardware.gpus.get(index) else {
            return Target { device: TargetDevice::Absent { index }, ..Target::cpu(hardware, policy, why) };
        };
        let own = hardware.profile.filter(|_| hardware.describes_gpu());
        Target {
            device: TargetDevice::Gpu { index, gpu },
            why,
            engine: DeviceEngine::Cuda { compute_capability: gpu.compute_capability, compiled: true },
            budget: hardware.gpu_budget(gpu, policy.memory_limit),
            how: hardware.gpu_memory(gpu).map_or_else(String::new, |(_, how)| how),
            name: own.map_or_else(|| format!("the {}", gpu.name), str::to_owned),
            bandwidth: gpu.bandwidth,
        }
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

    /// Whether it has kernels for keys and values in `dtype`.
    pub(super) fn keeps(&self, dtype: KvDtype) -> bool {
        match dtype {
            KvDtype::F32 | KvDtype::F16 => true,
            KvDtype::Q8_0 => self.gpu().is_none(),
        }
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
