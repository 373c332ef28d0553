//! What a model is judged for: the device, its memory, the plan for it, and why it was chosen.

use super::{Case, ChosenDevice};
use crate::capability::DeviceEngine;
use crate::hardware::{Gpu, Hardware};
use crate::plan::{Budget, KvDtype, Plan};
use crate::policy::DeviceChoice;

/// A device to judge for.
pub(super) struct Target<'a> {
    pub(super) case: Case<'a>,
    /// The processor or a GPU by its index.
    pub(super) device: DeviceChoice,
    /// The GPU, where it is one that is there.
    pub(super) gpu: Option<&'a Gpu>,
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
    pub(super) plan: Plan,
}

impl<'a> Target<'a> {
    /// The processor.
    pub(super) fn cpu(case: Case<'a>, why: String) -> Target<'a> {
        let Hardware { profile, cpu, memory, .. } = case.hardware;
        let budget = memory.budget(case.policy.memory_limit);
        Target {
            case,
            device: DeviceChoice::Cpu,
            gpu: None,
            why,
            engine: DeviceEngine::Cpu { features: &cpu.features },
            how: memory.how.clone(),
            name: profile.unwrap_or("this CPU").into(),
            bandwidth: memory.bandwidth,
            plan: case.plan(&budget),
            budget,
        }
    }

    /// The GPU of this index, judged as if the build had its engine; the processor's figures where there is no such GPU.
    pub(super) fn gpu_at(case: Case<'a>, index: usize, why: String) -> Target<'a> {
        let (device, hardware) = (DeviceChoice::Cuda(index), case.hardware);
        let Some(gpu) = hardware.gpus.get(index) else { return Target { device, ..Target::cpu(case, why) } };
        let own = hardware.profile.filter(|_| hardware.describes_gpu());
        let budget = hardware.gpu_budget(gpu, case.policy.memory_limit);
        Target {
            case,
            device,
            gpu: Some(gpu),
            why,
            engine: DeviceEngine::Cuda { compute_capability: gpu.compute_capability, compiled: true },
            how: hardware.gpu_memory(gpu).map_or_else(String::new, |(_, how)| how),
            name: own.map_or_else(|| format!("the {}", gpu.name), str::to_owned),
            bandwidth: gpu.bandwidth,
            plan: case.plan(&budget),
            budget,
        }
    }

    /// What loading uses; `None` for a GPU that was asked for and is not there.
    pub(super) fn chosen(&self) -> Option<ChosenDevice> {
        match (self.device, self.gpu) {
            (DeviceChoice::Cuda(index), gpu) => Some(ChosenDevice::Gpu { index, gpu: gpu?.clone() }),
            (DeviceChoice::Cpu | DeviceChoice::Auto, _) => Some(ChosenDevice::Cpu),
        }
    }

    /// Whether it has kernels for keys and values in `dtype`.
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
