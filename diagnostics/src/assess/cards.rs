//! What the checks say of NVIDIA cards.

use super::checks::{Refused, Why};
use crate::capability::{self, CARD_MOST_HEAD_DIM, Engine, LOWEST_COMPUTE_CAPABILITY, LOWEST_CUDA, Lacking, SLOW_F16};
use crate::dtype::DType;
use crate::hardware::{Gpu, Hardware};
use crate::plan::{Budget, Plan};
use crate::policy::Policy;
use crate::report::{Bytes, Check, Input, Verdict, roles};
use crate::spec::ModelSpec;
use std::collections::BTreeMap;

const ON_THE_PROCESSOR: &str = "run it on the processor: --device cpu";
/// Of a machine that is only described: its processor is not what `--device cpu` is.
const ON_A_PROCESSOR: &str = "run it on a processor: --device cpu judges the one of this machine";
const UNTRIED: &str = "the engine for cards has not been run on a card yet";
const WITH_THE_FEATURE: &str = "build with --features cuda";

/// The remedy of whoever can do without the card.
fn processor(hardware: &Hardware) -> &'static str {
    if hardware.profile.is_some() { ON_A_PROCESSOR } else { ON_THE_PROCESSOR }
}

/// Whether the card, its driver and this build work together, and the kernels take the model's heads. Never more than a
/// warning, as no card has run these kernels.
pub(super) fn hardware(spec: &ModelSpec, hardware: &Hardware, gpu: &Gpu) -> Check {
    let name = &gpu.name;
    let described = hardware.describes_card();
    let ((major, minor), lowest) = (gpu.compute_capability, LOWEST_COMPUTE_CAPABILITY);
    let mut remedies = Vec::new();
    let reason = if !described && !hardware.has_cuda() {
        remedies.push(WITH_THE_FEATURE.into());
        Some(format!("this build has no CUDA engine, so it cannot use the {name}"))
    } else if gpu.compute_capability < lowest {
        Some(format!(
            "the {name} has compute capability {major}.{minor}, kernels are made for {}.{} and later",
            lowest.0, lowest.1
        ))
    } else if let Some(cuda) = gpu.cuda.filter(|cuda| *cuda < LOWEST_CUDA) {
        if !described {
            remedies.push("install a newer NVIDIA driver: 525 or later on Linux, 528 or later on Windows".into());
        }
        let (found, needed) = (format!("{}.{}", cuda.0, cuda.1), format!("{}.{}", LOWEST_CUDA.0, LOWEST_CUDA.1));
        Some(format!("the driver of the {name} runs CUDA {found}, the engine needs {needed}"))
    } else if let Some(visible_as) = &gpu.visible_as {
        remedies.push(format!("start it with CUDA_VISIBLE_DEVICES={visible_as}, which makes it cuda:0"));
        Some(format!(
            "CUDA does not list the {name} to this process: it lists one slice of a divided card, and that alone"
        ))
    } else if spec.head_dim > CARD_MOST_HEAD_DIM {
        let most = CARD_MOST_HEAD_DIM;
        Some(format!("the heads have {} elements, kernels for cards take up to {most}", spec.head_dim))
    } else if hardware.card_memory(gpu).is_none() {
        Some(format!("the driver does not tell how much memory the {name} has"))
    } else {
        None
    };
    if let Some(reason) = reason {
        remedies.push(processor(hardware).into());
        return Check::fail("hardware", Verdict::HardwareInsufficient, reason).remedies(remedies);
    }
    if !hardware.has_cuda() {
        let summary = "this build has no CUDA engine: the verdict is that of a build with the feature cuda";
        return Check::warn("hardware", summary).evidence(UNTRIED);
    }
    Check::warn("hardware", UNTRIED)
}

/// There is no card of this index.
pub(super) fn absent(hardware: &Hardware, index: usize) -> Check {
    let summary = match hardware.gpus.len() {
        0 => {
            let note = hardware.gpu_note.as_deref().unwrap_or("none found");
            format!("there is no NVIDIA card to run on: {note}")
        }
        count => format!("there is no card {index}; the machine has {count}"),
    };
    Check::fail("hardware", Verdict::HardwareInsufficient, summary).remedies([processor(hardware).into()])
}

/// A warning for cards whose F16 arithmetic is there in name only.
pub(super) fn slow_f16(gpu: &Gpu) -> Option<Check> {
    let (major, minor) = SLOW_F16;
    let summary =
        format!("compute capability {major}.{minor} multiplies F16 at a 64th of its F32 rate, so it is widened to F32");
    (gpu.compute_capability == SLOW_F16).then(|| Check::warn("dtype", summary))
}

/// What else would compute the tensors that a card does not: another card, or the processor.
pub(super) fn instead(
    spec: &ModelSpec,
    hardware: &Hardware,
    refused: &BTreeMap<(DType, bool), Refused<'_>>,
) -> Vec<String> {
    let needed = refused.values().map(|refused| match refused.why {
        Why::Lacking(Lacking::Capability { needed, kernel: true, .. }) => Some(needed),
        _ => None,
    });
    // Another card helps only when it helps all of them.
    let needed: Option<Vec<_>> = needed.collect();
    let card = needed.and_then(|needed| needed.into_iter().max());
    let card = card.map(|(major, minor)| format!("take a card of compute capability {major}.{minor} or later"));
    let engine = Engine::Cpu { features: &hardware.cpu.features };
    let runs = roles(spec).all(|(role, tensor)| capability::tier_for(role, tensor.dtype, &engine).is_ok());
    card.into_iter().chain(runs.then(|| processor(hardware).to_owned())).collect()
}

/// Where `needed` bytes would be found.
pub(super) fn room(spec: &ModelSpec, input: &Input, hardware: &Hardware, policy: &Policy, needed: u64) -> Vec<String> {
    let budget = Budget::new(&hardware.memory, policy.memory_limit);
    let plan = Plan::new(spec, input.bytes(), &budget, &policy.request());
    let processor = (plan.fits() && hardware.profile.is_none())
        .then(|| format!("{ON_THE_PROCESSOR}, where context {} fits", plan.context));
    processor.into_iter().chain([format!("take a card with {} free", Bytes(needed))]).collect()
}
