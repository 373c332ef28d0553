//! The checks of a model that was understood, one function each.

use super::Case;
use super::gpus;
use super::target::Target;
use crate::adapter::AdapterSpec;
use crate::capability::{self, ComputeCapability, DeviceEngine, FileType, Lacking, TensorKind, Tier};
use crate::error::{Error, IncompleteKind, some_of};
use crate::hardware::{Hardware, Memory};
use crate::header::TensorInfo;
use crate::plan::{ENCODER_CONTEXT, KV_PAGE, KvDtype, Plan, Request, SMALLEST_CONTEXT};
use crate::policy::{DeviceChoice, DtypePolicy, Policy};
use crate::report::{
    AdapterSummary, Bytes, Check, InputSummary, Remedy, Status, Verdict, counted, of_error, roles, tower_roles,
};
use crate::spec::{ModelSpec, RopeScaling};
use crate::tokenizer::TokenizerKind;
use model_factory_dtypes::DType;
use std::collections::BTreeMap;

pub(super) fn input(input: &InputSummary) -> Check {
    Check::pass("input", format!("one model in {}", counted(input.files.len(), "file")))
}

pub(super) fn format(input: &InputSummary) -> Check {
    Check::pass("format", format!("{}, well formed", input.format_name()))
}

pub(super) fn integrity(spec: &ModelSpec, input: &InputSummary) -> Check {
    if let Some(first) = input.warnings.first() {
        return Check::warn("integrity", first.clone()).evidence(some_of(&input.warnings[1..], 2));
    }
    let tensors = needed(spec) + spec.unused_tensors.len();
    let bytes = Bytes(input.bytes());
    Check::pass("integrity", format!("{tensors} tensors lie within {} of {bytes}", counted(input.files.len(), "file")))
}

pub(super) fn architecture(spec: &ModelSpec) -> Check {
    let summary = format!("{} is {} of the family {}", spec.architecture, spec.variant, spec.family);
    Check::pass("architecture", summary)
}

/// The number of tensors that are used, those of a vision tower too.
fn needed(spec: &ModelSpec) -> usize {
    spec.tensors().count() + spec.vision.iter().flat_map(|tower| tower.tensors()).count()
}

pub(super) fn tensors(spec: &ModelSpec) -> Check {
    let unused = &spec.unused_tensors;
    let needed = needed(spec);
    if unused.is_empty() {
        return Check::pass("tensors", format!("all {needed} are there with the right shapes"));
    }
    let summary = match unused.len() {
        1 => "1 stored tensor is not used".to_owned(),
        more => format!("{more} stored tensors are not used"),
    };
    Check::warn("tensors", summary).evidence(some_of(unused, 2))
}

pub(super) fn hardware(target: &Target<'_>) -> Check {
    match (target.device, target.gpu) {
        (_, Some(gpu)) => gpus::hardware(target.case, gpu),
        (DeviceChoice::Cuda(index), None) => gpus::absent(target.case.hardware, index),
        (DeviceChoice::Cpu | DeviceChoice::Auto, None) => processor(target),
    }
}

fn processor(target: &Target<'_>) -> Check {
    let hardware = target.case.hardware;
    let missing = &hardware.cpu.missing;
    if !missing.is_empty() {
        let summary = format!("this build takes for granted what the processor lacks: {}", missing.join(", "));
        let remedy = "build without target-cpu flags; kernels are chosen at run time";
        return Check::warn("hardware", summary).evidence(hardware.cpu.model.clone()).remedies([remedy]);
    }
    let Some((level, lacked)) = hardware.cpu.level() else {
        let summary = "portable kernels compute here: correct and slow";
        return Check::warn("hardware", summary).evidence("vector kernels need AVX2, FMA and F16C, or NEON");
    };
    let check =
        Check::pass("hardware", format!("the processor, {} threads, {level} kernels", hardware.cpu.fast_threads()));
    let what = if hardware.gpus.is_empty() { &hardware.cpu.model } else { &target.why };
    check.evidence(if lacked.is_empty() { what.clone() } else { format!("{what}; lacks {}", lacked.join(", ")) })
}

pub(super) fn environment(hardware: &Hardware) -> Check {
    let variables = &hardware.casting_variables;
    if variables.is_empty() {
        return Check::pass("environment", "no variable asks for a cast");
    }
    let summary = format!("the environment asks candle to cast weights: {}", variables.join(", "));
    let remedy = format!("unset {}", variables.join(" "));
    Check::fail("environment", Verdict::UnsupportedDtype, summary).remedies([remedy])
}

/// The tensors of one dtype and role that do not run.
struct Refused<'a> {
    first: &'a TensorInfo,
    count: usize,
    bytes: u64,
    /// What the tensors lack; `None` if they would be widened and only native arithmetic was requested.
    lacking: Option<Lacking>,
}

pub(super) fn dtype(target: &Target<'_>) -> Check {
    let Target { case: Case { spec, policy, .. }, engine, .. } = target;
    let mut tiers: BTreeMap<DType, Tier> = BTreeMap::new();
    let mut refused: BTreeMap<(DType, bool), Refused<'_>> = BTreeMap::new();
    let of_head = spec.predictor.iter().flat_map(|head| roles(head));
    for (role, tensor) in roles(spec).chain(of_head).chain(spec.vision.iter().flat_map(|tower| tower_roles(tower))) {
        let matrix = role == TensorKind::Matrix;
        let lacking = match capability::tier_for(role, tensor.dtype, engine) {
            Err(lacking) => Some(lacking),
            // The policy applies to matrices: arithmetic with vectors does not grow with the model's size.
            Ok(Tier::Widened) if policy.dtypes == DtypePolicy::NativeOnly && matrix => None,
            Ok(tier) => {
                let known = tiers.entry(tensor.dtype).or_insert(tier);
                if matrix {
                    *known = tier;
                }
                continue;
            }
        };
        let new = Refused { first: tensor, count: 0, bytes: 0, lacking };
        let entry = refused.entry((tensor.dtype, matrix)).or_insert(new);
        entry.count += 1;
        entry.bytes = entry.bytes.saturating_add(tensor.bytes);
    }
    let Some(worst) = refused.values().max_by_key(|refused| refused.bytes) else {
        if !target.keeps(policy.kv_dtype) {
            return gpus::cache(target, policy.kv_dtype);
        }
        let list: Vec<_> = tiers.iter().map(|(dtype, tier)| format!("{dtype} {tier}")).collect();
        let summary = format!("computed as stored: {}", list.join(", "));
        let slow = target.gpu.filter(|_| tiers.contains_key(&DType::F16)).and_then(gpus::slow_f16);
        return slow.map_or_else(|| Check::pass("dtype", &summary), |slow| slow.evidence(&summary));
    };
    let (computer, dtype) = (target.computer(), worst.first.dtype);
    let share = format!("({} of {} tensors)", worst.count, spec.tensors().count());
    let summary = match &worst.lacking {
        Some(lacking) => {
            let place = target.gpu.map(|_| format!(" on {computer}")).unwrap_or_default();
            format!("running it{place} would need a cast: {lacking} {share}")
        }
        None => format!("{dtype} would be widened on {computer}, and only native arithmetic was asked for {share}"),
    };
    let all = refused.values().map(|Refused { first, count, bytes, .. }| {
        format!("{count} x {}, {}, the first is {}", first.dtype, Bytes(*bytes), first.name)
    });
    let runs: Vec<_> =
        FileType::supported(engine).filter(|file_type| native_enough(file_type, engine, policy)).collect();
    // Another GPU only helps if it supports all of them.
    let needed = refused.values().map(|refused| match refused.lacking {
        Some(Lacking::Capability { needed, kernel: true, .. }) => Some(needed),
        _ => None,
    });
    let needed = needed.collect::<Option<Vec<ComputeCapability>>>().and_then(|needed| needed.into_iter().max());
    let others = target.gpu.map(|_| gpus::instead(target.case, needed)).unwrap_or_default();
    let check = Check::fail("dtype", Verdict::UnsupportedDtype, summary);
    let check = check.evidence(all.collect::<Vec<_>>().join("; "));
    check.remedies(offer(&runs).map(Remedy::from).into_iter().chain(others))
}

fn native_enough(file_type: &FileType, engine: &DeviceEngine<'_>, policy: &Policy) -> bool {
    let native = |&dtype: &DType| capability::tier(dtype, engine) == Ok(Tier::Native);
    policy.dtypes == DtypePolicy::NativeOrWidened || file_type.matrices.iter().all(native)
}

/// What would run instead, in words: GGUF files, then checkpoints of any format.
fn offer(runs: &[&FileType]) -> Option<String> {
    let names = |gguf_only: bool| {
        let names = runs.iter().rev().filter(|file_type| file_type.gguf_only == gguf_only);
        names.map(|file_type| file_type.name).collect::<Vec<_>>()
    };
    Some(match (either(&names(false)), either(&names(true))) {
        (plain, None) => format!("use the {} file of the same model", plain?),
        (None, Some(gguf)) => format!("use the {gguf} GGUF file of the same model"),
        (Some(plain), Some(gguf)) => format!("use the {gguf} GGUF file of the same model, or its {plain} checkpoint"),
    })
}

/// `a`, `a or b` or `a, b or c`; `None` if there are no names.
fn either(names: &[&str]) -> Option<String> {
    match names.split_last()? {
        (last, []) => Some((*last).into()),
        (last, others) => Some(format!("{} or {last}", others.join(", "))),
    }
}

pub(super) fn rope(spec: &ModelSpec) -> Check {
    let Some(rope) = spec.rope() else { return Check::pass("rope", "none: positions are rows of a matrix") };
    let layout = rope.layout.to_string().replace('_', "-");
    let scaling = match &rope.scaling {
        RopeScaling::Proportional { pairs, .. } => format!("{pairs} of {} pairs", rope.dimensions / 2),
        scaling => scaling.to_string(),
    };
    Check::pass("rope", format!("{layout}, theta {}, {scaling}", rope.theta)).evidence(rope.source.clone())
}

pub(super) fn tokenizer(spec: &ModelSpec, policy: &Policy) -> Check {
    let tokenizer = &spec.tokenizer;
    let (tokens, rows) = (tokenizer.tokens, spec.vocab);
    if tokenizer.kind == TokenizerKind::Missing && policy.tokenizer.is_none() {
        let remedy = "put the model's tokenizer.json beside its weights, or name one by ModelBuilder::tokenizer";
        let check = Check::fail("tokenizer", Verdict::IncompleteOrCorrupt, "the model has no tokenizer");
        return check.remedies([remedy]);
    }
    if tokens > rows {
        let summary = format!("the tokenizer has {tokens} ids, the embedding has rows for {rows} of them");
        return Check::warn("tokenizer", summary);
    }
    if spec.weights.head.is_none() {
        return Check::pass("tokenizer", format!("{tokens} tokens"));
    }
    if tokenizer.stop_ids.is_empty() {
        let summary = "no file names a token that ends a text, so generation ends at its limit";
        return Check::warn("tokenizer", summary);
    }
    if tokenizer.kind == TokenizerKind::Missing {
        return Check::pass("tokenizer", "the one that was given");
    }
    let sources = tokenizer.stop_ids.iter().map(|(id, sources)| format!("{id} by {}", sources.join(", ")));
    let summary = format!("{tokens} tokens, {} of them end a text", tokenizer.stop_ids.len());
    Check::pass("tokenizer", summary).evidence(sources.collect::<Vec<_>>().join("; "))
}

pub(super) fn template(spec: &ModelSpec) -> Check {
    let templates = &spec.tokenizer.chat_templates;
    let summary = match (spec.tokenizer.chat_template(), templates.len()) {
        (_, 0) => "no chat template: the model completes text, chat is not offered".into(),
        (Some(text), 1) => format!("a chat template of {} characters", text.len()),
        (default, _) => {
            let names = templates.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let choose = if default.is_some() { "" } else { "; one has to be chosen by name" };
            format!("chat templates by name: {names}{choose}")
        }
    };
    Check::pass("template", summary)
}

pub(super) fn context(spec: &ModelSpec, policy: &Policy) -> Check {
    let trained = spec.context_trained;
    match policy.context {
        Some(context) if context > trained => {
            let summary = format!("context {context} was asked for, {trained} is what the model was trained for");
            Check::warn("context", summary).remedies([Remedy::TrainedContext(trained)])
        }
        Some(context) => Check::pass("context", format!("{context} as asked for, of {trained}")),
        None if spec.is_encoder() && trained > ENCODER_CONTEXT => {
            let why = "an encoder takes memory for all of a text at once";
            Check::pass("context", format!("up to {ENCODER_CONTEXT} of {trained}, unless more is asked for: {why}"))
        }
        None => Check::pass("context", format!("the largest that fits, up to {trained}")),
    }
}

pub(super) fn memory(target: &Target<'_>) -> Check {
    let Target { case: Case { spec, hardware, policy, .. }, budget, plan, .. } = target;
    if target.device != DeviceChoice::Cpu && target.gpu.is_none() {
        return Check::new("memory", Status::Skipped, "there is no GPU to plan for");
    }
    let (how, total, context) = (&target.how, Bytes(plan.total), plan.context);
    if plan.fits() && plan.available == Memory::UNKNOWN {
        let unknown = "fit could not be checked: how much memory is available is unknown";
        return Check::warn("memory", format!("whether {total} at context {context} {unknown}")).evidence(how.clone());
    }
    if plan.fits() {
        let summary = format!("{total} of {} at context {context}", Bytes(plan.available));
        return Check::pass("memory", summary).evidence(how.clone());
    }
    let anonymous = budget.anonymous.filter(|&limit| plan.anonymous() > limit && plan.total <= plan.available);
    let (needed, available) = match anonymous {
        Some(limit) => (plan.anonymous(), limit),
        None => (plan.total, plan.available),
    };
    let place = match target.gpu {
        Some(_) => &*target.name,
        None => hardware.profile.unwrap_or("this machine"),
    };
    let (variant, need, there) = (&spec.variant, Bytes(needed), Bytes(available));
    let summary = format!("{variant} needs {need} at context {context}, {there} are available on {place}");
    let how = if anonymous.is_some() { "RLIMIT_DATA (ulimit -d) leaves that beside mapped files" } else { how };
    let (draft, vision) = ((plan.draft_name(), plan.draft()), ("vision", plan.vision_memory));
    let adapters = ("adapters", plan.adapters);
    let mut parts = vec![("weights", plan.weights()), ("KV cache", plan.kv_cache), draft, vision, adapters];
    let named = parts.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
    parts.push(("everything else", plan.total.saturating_sub(named)));
    let parts = parts.iter().filter(|(name, bytes)| *bytes > 0 || ![draft.0, vision.0, adapters.0].contains(name));
    let parts: Vec<String> = parts.map(|(name, bytes)| format!("{name} {}", Bytes(*bytes))).collect();
    let evidence = format!("{}; {how}", parts.join(", "));
    let request = Request { draft: None, ..policy.request(hardware) };
    let without = policy.draft.is_some() && Plan::new(spec, plan.weights_file, budget, &request).fits();
    let without = without.then(|| Remedy::from("load it without the draft model"));
    let context = proposed_context(plan, hardware);
    let context = (context > 0).then_some(Remedy::SmallerContext(context));
    let smaller = smaller_files(target);
    let smaller_caches = [KvDtype::F32, KvDtype::F16, KvDtype::Q8_0].into_iter();
    let smaller_caches = smaller_caches.skip_while(|dtype| *dtype != policy.kv_dtype).skip(1);
    let cache = smaller_caches.filter(|&dtype| target.keeps(dtype)).find_map(|kv_dtype| {
        let plan = Plan::new(spec, plan.weights_file, budget, &Request { kv_dtype, ..policy.request(hardware) });
        plan.fits().then_some(Remedy::CacheDtype(kv_dtype, Some(plan.context)))
    });
    let room = match target.gpu {
        Some(_) => gpus::room(target.case, needed),
        None => vec![format!("give it {} of memory", Bytes(needed)).into()],
    };
    let check = Check::fail("memory", Verdict::DoesNotFit, summary).evidence(evidence);
    check.remedies(without.into_iter().chain(context).chain(cache).chain(smaller.map(Remedy::from)).chain(room))
}

/// Whether the adapters belong to the model: the first that does not decides.
pub(super) fn adapters(adapters: &[Result<AdapterSpec, Error>], belonging: &[AdapterSummary]) -> Check {
    if let Some(error) = adapters.iter().find_map(|adapter| adapter.as_ref().err()) {
        let remedy = match error {
            Error::Incomplete {
                kind: IncompleteKind::HeaderTruncated { .. } | IncompleteKind::DataTruncated { .. },
                ..
            } => error.remedy(),
            Error::Incomplete { .. } => Some("give an adapter of this model, or the model that it was made for".into()),
            error => error.remedy(),
        };
        return Check::fail("adapters", of_error(error).0, error.to_string()).remedies(remedy);
    }
    let each = belonging.iter().map(|adapter| format!("{} of {}", adapter.changed, adapter.changeable));
    let summary = format!("{} linear layers are changed", each.collect::<Vec<_>>().join(", then "));
    Check::pass("adapters", summary)
}

/// The context to propose if the requested one does not fit: the largest one that fits on a described machine; an
/// eighth less on this one, whose free memory changes all the time.
pub(super) fn proposed_context(plan: &Plan, hardware: &Hardware) -> usize {
    match hardware.profile {
        Some(_) => plan.max_context,
        None if plan.max_context < 8 * KV_PAGE => plan.max_context,
        None => (plan.max_context - plan.max_context / 8) / KV_PAGE * KV_PAGE,
    }
}

/// Clearly smaller file types of the same model that would fit, the largest first, with their largest context.
fn smaller_files(target: &Target<'_>) -> impl Iterator<Item = String> {
    let Target { case: Case { spec, policy, input, hardware, .. }, budget, engine, .. } = target;
    let bytes = input.bytes();
    let smallest = SMALLEST_CONTEXT.min(spec.context_trained);
    FileType::supported(engine).filter_map(move |file_type| {
        let estimate = file_type.estimated_bytes(spec.parameters);
        let most =
            Plan::new(spec, estimate, budget, &Request { context: None, ..policy.request(hardware) }).max_context;
        let helps = estimate < bytes - bytes / 20 && most >= smallest;
        helps.then(|| {
            let kind = if file_type.gguf_only { "GGUF file" } else { "checkpoint" };
            let context = policy.context.unwrap_or(most).min(most);
            let estimate = Bytes(estimate);
            format!("use the {} {kind} of this model, about {estimate}: it fits with context {context}", file_type.name)
        })
    })
}
