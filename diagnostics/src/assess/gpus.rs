//! The checks of NVIDIA GPUs.

use super::Case;
use super::target::Target;
use crate::capability::{
    self, ComputeCapability, DeviceEngine, GPU_MOST_HEAD_DIM, LOWEST_COMPUTE_CAPABILITY, LOWEST_CUDA, SLOW_F16,
};
use crate::hardware::{Gpu, Hardware, version};
use crate::plan::KvDtype;
use crate::report::{Bytes, Check, Remedy, Verdict, roles};
use crate::spec::{
    Activation, AttentionWeights, FeedForwardLayer, FeedForwardWeights, KeyValueProjections, LayerWeights, ModelSpec,
    Multipliers, NormWeights,
};

/// The compute capabilities of the GPUs that the engine has run on; `docs/cuda.md` says what was measured there.
const RUN_ON: [ComputeCapability; 1] = [(9, 0)];

/// The remedy of running without the GPU. The processor of a described machine is not this one's.
fn processor(hardware: &Hardware) -> Remedy {
    if hardware.profile.is_some() { Remedy::SomeProcessor } else { Remedy::Processor(None) }
}

/// Whether the GPU, its driver and this build work together, and the kernels support the model's block. A warning for
/// GPUs unlike all that have run these kernels.
pub(super) fn hardware(case: Case<'_>, gpu: &Gpu) -> Check {
    let Case { spec, hardware, .. } = case;
    let name = &gpu.name;
    let described = hardware.describes_gpu();
    let (found, lowest) = (version(gpu.compute_capability), version(LOWEST_COMPUTE_CAPABILITY));
    let mut remedies = Vec::new();
    let reason = if !described && !hardware.has_cuda() {
        remedies.push(Remedy::Feature("cuda"));
        Some(format!("this build has no CUDA engine, so it cannot use the {name}"))
    } else if gpu.compute_capability < LOWEST_COMPUTE_CAPABILITY {
        Some(format!("the {name} has compute capability {found}, kernels are made for {lowest} and later"))
    } else if let Some(cuda) = gpu.cuda.filter(|cuda| *cuda < LOWEST_CUDA) {
        if !described {
            remedies.push("install a newer NVIDIA driver: 525 or later on Linux, 528 or later on Windows".into());
        }
        let (found, needed) = (version(cuda), version(LOWEST_CUDA));
        Some(format!("the driver of the {name} runs CUDA {found}, the engine needs {needed}"))
    } else if let Some(visible_as) = &gpu.visible_as {
        remedies.push(format!("start it with CUDA_VISIBLE_DEVICES={visible_as}, which makes it cuda:0").into());
        Some(format!(
            "CUDA does not list the {name} to this process: it lists one slice of a divided GPU, and that alone"
        ))
    } else if spec.head_dim > GPU_MOST_HEAD_DIM {
        let most = GPU_MOST_HEAD_DIM;
        Some(format!("the heads have {} elements, kernels for GPUs take up to {most}", spec.head_dim))
    } else if let Some(option) = beyond_kernels(spec) {
        Some(format!("the model has {option}, which kernels for GPUs do not compute yet"))
    } else if case.policy.adapts() {
        Some("adapters are asked for, which kernels for GPUs do not compute yet".into())
    } else if hardware.gpu_memory(gpu).is_none() {
        Some(format!("the driver does not tell how much memory the {name} has"))
    } else {
        None
    };
    if let Some(reason) = reason {
        remedies.push(processor(hardware));
        return Check::fail("hardware", Verdict::HardwareInsufficient, reason).remedies(remedies);
    }
    let untried = (!RUN_ON.contains(&gpu.compute_capability)).then(|| {
        let tried = RUN_ON.map(version).join(", ");
        format!("the engine for GPUs has been run on compute capability {tried} only")
    });
    if !hardware.has_cuda() {
        let summary = "this build has no CUDA engine: the verdict is that of a build with the feature cuda";
        let check = Check::warn("hardware", summary);
        return untried.into_iter().fold(check, Check::evidence);
    }
    match untried {
        Some(summary) => Check::warn("hardware", summary),
        None => Check::pass("hardware", format!("the {name}, compute capability {found}")),
    }
}

/// Whether only the processor supports the model's block, or adapters of it, whatever the GPU.
pub(super) fn beyond(Case { spec, policy, .. }: Case<'_>) -> bool {
    spec.head_dim > GPU_MOST_HEAD_DIM || beyond_kernels(spec).is_some() || policy.adapts()
}

/// An option of the model's block that only the processor supports.
fn beyond_kernels(spec: &ModelSpec) -> Option<&'static str> {
    let Multipliers { embedding, residual, logits, logit_cap } = spec.multipliers;
    let layers = || spec.weights.layers.iter();
    let attentions = || spec.attentions();
    let whole = |norm: Option<&NormWeights>| norm.is_some_and(|norm| norm.width != spec.head_dim);
    let of_blocks = || layers().filter_map(|layer| layer.mixer.as_ref());
    let of_mixers = of_blocks().map(|mixer| mixer.norm.as_ref());
    let feed_forwards = || layers().filter_map(|layer| layer.feed_forward.as_ref());
    let in_front = of_mixers.clone().chain(feed_forwards().map(|layer| layer.norm.as_ref()));
    let of_heads = || attentions().flat_map(|attention| [attention.q_norm.as_ref(), attention.k_norm()]);
    let norms = || in_front.clone().chain(of_heads()).flatten().chain(&spec.weights.final_norm);
    let mut sizes = attentions().map(|of| (of.heads, of.kv_heads, of.head_dim));
    let first = sizes.next();
    let plain_values =
        |of: &AttentionWeights| of.kv.own().is_some_and(|own| !own.projections.are_keys() && own.v_norm_eps.is_none());
    let joined = |of: &AttentionWeights| {
        of.kv.own().is_some_and(|own| !matches!(own.projections, KeyValueProjections::Apart { .. }))
    };
    let other_gate = |layer: &FeedForwardWeights| match &layer.layer {
        FeedForwardLayer::Dense(dense) => match dense.activation {
            Activation::SwiGlu { .. } | Activation::GeluTanh => false,
            Activation::GeGlu { .. }
            | Activation::GeGluErf { .. }
            | Activation::ReGlu { .. }
            | Activation::ClampedSwiGlu { .. }
            | Activation::Gelu
            | Activation::QuickGelu
            | Activation::Relu
            | Activation::ReluSquared
            | Activation::XIelu => true,
        },
        FeedForwardLayer::Experts(_) => false,
    };
    let sparse =
        |layer: &FeedForwardWeights| matches!(&layer.layer, FeedForwardLayer::Dense(dense) if dense.sparsity.is_some());
    let narrower = |layer: &FeedForwardWeights| match &layer.layer {
        FeedForwardLayer::Dense(dense) => dense.up.weight.shape.first() != Some(&(spec.feed_forward as u64)),
        FeedForwardLayer::Experts(_) => false,
    };
    let options = [
        ("a vision tower", spec.vision.is_some()),
        ("layers with a state", layers().flat_map(LayerWeights::mixers).any(|mixer| mixer.attention().is_none())),
        ("layers that are passed several times", spec.passes > 1),
        ("layers of one sub-layer", layers().any(|layer| layer.mixer.is_none() || layer.feed_forward.is_none())),
        ("gated attention", attentions().any(|of| of.gated || of.gates > 0)),
        ("norms behind its sub-layers", layers().any(LayerWeights::norms_outputs)),
        ("attention to later positions", attentions().any(|of| !of.causal)),
        ("norms of the residual stream", layers().any(LayerWeights::norms_sums)),
        ("layers without a norm in front", of_mixers.clone().any(|norm| norm.is_none())),
        ("norms over all heads together", attentions().any(|of| whole(of.q_norm.as_ref()) || whole(of.k_norm()))),
        ("norms of heads after their rotation", attentions().any(|of| of.norms_rotated && of.q_norm.is_some())),
        ("heads of other sizes in some layers", sizes.any(|of| Some(of) != first)),
        ("latent attention", attentions().any(|of| of.kv.latent().is_some())),
        ("keys and values of other layers", attentions().any(|of| of.kv.own().is_none())),
        ("values that are keys, or normed", !attentions().all(plain_values)),
        ("several residual streams", spec.weights.altup.is_some()),
        ("a residual beside attention", of_blocks().any(|mixer| mixer.laurel.is_some())),
        ("gates of which only the largest count", feed_forwards().any(sparse)),
        ("embeddings of layers", spec.weights.layer_embedding.is_some()),
        ("a factor behind each layer", layers().any(|layer| layer.scale.is_some())),
        ("norms stored as offsets from one", norms().any(NormWeights::is_from_one)),
        ("norms without weights", norms().any(|norm| norm.weight.is_none())),
        ("sinks of attention", attentions().any(|of| of.sinks.is_some())),
        ("ALiBi", attentions().any(|of| of.alibi.is_some())),
        ("a limit of queries, keys and values", attentions().any(|of| of.qkv_limit.is_some())),
        ("queries, keys and values in one matrix by heads", attentions().any(joined)),
        ("a norm or positions at its input", spec.weights.input.is_some()),
        (
            "a norm for each part of a parallel block",
            layers().any(|layer| layer.parallel && layer.feed_forward.as_ref().is_some_and(|of| of.norm.is_some())),
        ),
        ("a cap on scores", attentions().any(|of| of.score_cap.is_some())),
        ("layers that rotate unlike others", attentions().any(|of| of.rope != Some(0))),
        ("queries that grow with their position", attentions().any(|of| of.query_scale.is_some())),
        ("attention within chunks", attentions().any(|of| of.chunked)),
        ("factors of products", spec.weights.matrices().any(|matrix| !matrix.multipliers.is_empty())),
        ("factors of activations", [embedding, residual, logits].iter().any(|factor| *factor != 1.0)),
        ("a cap on logits", logit_cap.is_some()),
        ("another activation than SwiGLU or GELU", feed_forwards().any(other_gate)),
        ("feed-forward layers of experts", layers().any(|layer| layer.experts().is_some())),
        ("matrices that are stored by inputs", spec.weights.matrices().any(|matrix| matrix.transposed)),
        ("feed-forward layers of other widths in some layers", feed_forwards().any(narrower)),
    ];
    options.into_iter().find(|(_, has)| *has).map(|(option, _)| option)
}

pub(super) fn absent(hardware: &Hardware, index: usize) -> Check {
    let summary = match hardware.gpus.len() {
        0 => {
            let note = hardware.gpu_note.as_deref().unwrap_or("none found");
            format!("there is no NVIDIA GPU to run on: {note}")
        }
        count => format!("there is no GPU {index}; the machine has {count}"),
    };
    Check::fail("hardware", Verdict::HardwareInsufficient, summary).remedies([processor(hardware)])
}

/// A warning for GPUs whose F16 arithmetic is too slow to be useful.
pub(super) fn slow_f16(gpu: &Gpu) -> Option<Check> {
    let slow = version(SLOW_F16);
    let summary =
        format!("compute capability {slow} multiplies F16 at a 64th of its F32 rate, so it is widened to F32");
    (gpu.compute_capability == SLOW_F16).then(|| Check::warn("dtype", summary))
}

/// What else supports the tensors that a GPU does not: a GPU of the compute capability `needed`, or the processor.
pub(super) fn instead(case: Case<'_>, needed: Option<ComputeCapability>) -> Vec<Remedy> {
    let Case { spec, hardware, .. } = case;
    let gpu = needed.map(|least| format!("take a GPU of compute capability {} or later", version(least)));
    let engine = DeviceEngine::Cpu { features: &hardware.cpu.features };
    let runs = roles(spec).all(|(role, tensor)| capability::tier_for(role, tensor.dtype, &engine).is_ok());
    gpu.map(Remedy::from).into_iter().chain(runs.then(|| processor(hardware))).collect()
}

pub(super) fn cache(target: &Target<'_>, dtype: KvDtype) -> Check {
    let summary = format!("a KV cache in {dtype} has no CUDA kernel, so it cannot be kept on {}", target.computer());
    let in_f16 = std::iter::once(Remedy::CacheDtype(KvDtype::F16, None));
    Check::fail("dtype", Verdict::UnsupportedDtype, summary).remedies(in_f16.chain(instead(target.case, None)))
}

/// Remedies that provide `needed` bytes of memory.
pub(super) fn room(case: Case<'_>, needed: u64) -> Vec<Remedy> {
    let plan = case.plan(&case.hardware.memory.budget(case.policy.memory_limit));
    let processor = plan.fits() && case.hardware.profile.is_none();
    let processor = processor.then_some(Remedy::Processor(Some(plan.context)));
    processor.into_iter().chain([format!("take a GPU with {} free", Bytes(needed)).into()]).collect()
}
