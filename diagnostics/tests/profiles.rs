//! Models on described machines with GPUs, and the choice among the devices of a machine: verdicts, reasons, remedies.
#![allow(clippy::expect_used)] // all of it is test code

mod common;
#[path = "profiles/models.rs"]
mod models;
#[path = "profiles/options.rs"]
mod options;

use common::{LLAMA_31_8B, TINY_LLAMA, gguf, safetensors};
use model_factory_diagnostics::capability::{self, DeviceEngine, Lacking};
use model_factory_diagnostics::family::REGISTRY;
use model_factory_diagnostics::hardware::Gpu;
use model_factory_diagnostics::hardware::profiles::{PROFILES, Profile};
use model_factory_diagnostics::plan::{self, KvDtype, PlanMemory};
use model_factory_diagnostics::report::{InputSummary, NextStep, Remedy};
use model_factory_diagnostics::spec::{
    Activation, AltUpWeights, AttentionWeights, DenseWeights, FeedForwardLayer, InputWeights, KeyValueProjections,
    KeysValues, LaurelWeights, LayerWeights, Mixer, ModelSpec, Norm, NormWeights, QueryScale,
};
use model_factory_diagnostics::{
    DType, DeviceChoice, Hardware, Policy, Ready, Report, Speed, Verdict, assess, diagnose_with,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

const GIB: u64 = 1 << 30;

fn machine(profile: &str) -> Hardware {
    Profile::find(profile).unwrap_or_else(|| panic!("no profile {profile}")).hardware()
}

fn with_gpus() -> impl Iterator<Item = (&'static Profile, &'static Gpu)> {
    PROFILES.iter().filter_map(|profile| Some((profile, profile.gpu()?)))
}

/// Reads a model on a machine that runs everything.
fn read(path: &Path) -> (ModelSpec, InputSummary) {
    let diagnosis = diagnose_with(REGISTRY, path, &machine("cpu-bf16-512gb"), &Policy::default());
    let Ready { header, spec, .. } = diagnosis.ready.unwrap_or_else(|| panic!("{}", diagnosis.report.first_line()));
    // References lie beside the weights.
    let input = InputSummary { warnings: Vec::new(), ..InputSummary::from(&header) };
    (spec, input)
}

/// The dtypes of its matrices, on which verdicts about a small model rest.
fn dtypes(spec: &ModelSpec) -> String {
    let matrices = spec.tensors().filter(|tensor| tensor.shape.len() > 1);
    let scales: BTreeSet<_> = spec.scales().map(|scale| scale.name.as_str()).collect();
    let names: BTreeSet<_> =
        matrices.filter(|tensor| !scales.contains(tensor.name.as_str())).map(|tensor| tensor.dtype.name()).collect();
    names.into_iter().collect::<Vec<_>>().join(" ")
}

/// What a report says, without what is the profile's own.
fn said(report: &Report, profile: &Profile) -> String {
    let Gpu { name, compute_capability: (major, minor), .. } = profile.gpu().expect("a GPU");
    let own = [
        (format!("found {major}.{minor}"), "found its own"),
        (format!("runs on {},", profile.name), "runs on it,"),
        (name.to_owned(), "GPU"),
    ];
    // The model is not the point: several have the same dtypes.
    let reason = match report.reason.split_once(" runs on ") {
        Some((_, rest)) => format!("it runs on {rest}"),
        None => report.reason.split(" (").next().unwrap_or_default().to_owned(),
    };
    let reason = reason.split_once(", context ").map_or(reason.clone(), |(start, rest)| {
        let warnings = rest.split_once("; ").map(|(_, warnings)| format!("; {warnings}"));
        format!("{start}{}", warnings.unwrap_or_default())
    });
    let mut text = format!("  {} ({}): {reason}\n", report.verdict, report.exit_code);
    text = text.replace(&format!("it runs on {}", profile.name), "it runs");
    for remedy in &report.remedies {
        let _ = writeln!(text, "    - {remedy}");
    }
    // What is said of one dtype is said of others.
    for dtype in DType::all() {
        text = text.replace(&format!(": {dtype} matrices"), ": DTYPE matrices");
    }
    own.iter().fold(text, |text, (own, general)| text.replace(own, general))
}

/// The models that share dtypes, with the exit code on each profile, and what is said of the first of them.
#[derive(Default)]
struct Kind {
    models: Vec<PathBuf>,
    codes: Vec<u8>,
    said: BTreeMap<String, Vec<&'static str>>,
}

#[test]
fn fixtures_on_every_gpu() {
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    let fixtures = models::all();
    assert!(fixtures.len() > 80, "only {} fixtures", fixtures.len());
    let mut wrong = Vec::new();
    for path in &fixtures {
        let (spec, input) = read(path);
        let reports: Vec<_> =
            with_gpus().map(|(profile, _)| assess(&spec, &input, &profile.hardware(), &Policy::default())).collect();
        assert!(reports.iter().all(|report| report.device == "cuda:0" && report.casts == 0));
        let codes: Vec<u8> = reports.iter().map(|report| report.exit_code).collect();
        // What the kernels of GPUs lack is refused before dtypes are looked at.
        let beyond = reports.iter().any(|report| report.reason.contains("kernels for GPUs do not compute yet"));
        let options = if beyond { ", options of the block" } else { "" };
        let kind = kinds.entry(format!("{}{options}", dtypes(&spec))).or_default();
        if kind.models.is_empty() {
            kind.codes.clone_from(&codes);
            for (report, (profile, _)) in reports.iter().zip(with_gpus()) {
                kind.said.entry(said(report, profile)).or_default().push(profile.name);
            }
        }
        if kind.codes != codes {
            wrong.push(format!("{} is judged in another way than {}", path.display(), kind.models[0].display()));
        }
        kind.models.push(path.clone());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut alike: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (dtypes, kind) in &kinds {
        let lines = kind.said.iter().map(|(said, profiles)| format!("{said}    on {}\n", profiles.join(" ")));
        let models = kind.models.len();
        alike.entry(lines.collect()).or_default().push(format!("{dtypes} ({models})"));
    }
    let text: String = alike.iter().map(|(said, dtypes)| format!("{}\n{said}\n", dtypes.join(", "))).collect();
    insta::assert_snapshot!("fixtures_on_gpus", text);
}

#[test]
fn a_model_of_eight_billion_parameters_on_every_profile() {
    let models = [safetensors(&LLAMA_31_8B, DType::BF16), gguf(&LLAMA_31_8B, "Q8_0"), gguf(&LLAMA_31_8B, "Q4_K_M")];
    let mut text = format!("{:<24}{:<27}{:<27}{}\n", "", "BF16", "Q8_0", "Q4_K_M");
    for profile in PROFILES.iter() {
        let cell = |(spec, input): &(ModelSpec, InputSummary)| {
            let report = assess(spec, input, &profile.hardware(), &Policy::default());
            let speed = report.speed.map(|speed| format!(" {}-{} t/s", speed.full.0, speed.empty.1));
            match (&report.plan, report.verdict.runs()) {
                (Some(plan), true) => format!("{}{}", plan.context, speed.unwrap_or_default()),
                _ => report.verdict.to_string(),
            }
        };
        let cells: Vec<_> = models.iter().map(cell).collect();
        let line = format!("{:<24}{:<27}{:<27}{}", profile.name, cells[0], cells[1], cells[2]);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    insta::assert_snapshot!("eight_billion", text);
}

/// Shares of what copies reach, nine tenths of the bandwidth, by one token; and of the rate of tensor
/// cores by a prompt of 512.
#[test]
fn shares_of_memory_and_tensor_cores_on_gpus_whose_data_sheet_is_at_hand() {
    let whole = |dtype| safetensors(&LLAMA_31_8B, dtype).0;
    let named = |name| gguf(&LLAMA_31_8B, name).0;
    let formats =
        [("BF16", whole(DType::BF16)), ("Q8_0", named("Q8_0")), ("Q4_K_M", named("Q4_K_M")), ("I8", whole(DType::I8))];
    let (spec, input) = gguf(&LLAMA_31_8B, "Q4_K_M");
    let mut text = String::new();
    // Multiplications with additions of halves and of bytes, 10^12 a second.
    for (name, halves, bytes) in [
        ("t4", 32.5, 65.0),
        ("a10", 62.5, 125.0),
        ("l4", 60.5, 121.0),
        ("a100-80gb", 156.0, 312.0),
        ("h100", 494.7, 989.5),
        ("rtx-4090", 82.6, 330.3),
    ] {
        let gpu = Profile::find(name).and_then(Profile::gpu).expect("a GPU");
        let bandwidth = gpu.bandwidth.expect("a bandwidth");
        let engine = DeviceEngine::Cuda { compute_capability: gpu.compute_capability, compiled: true };
        let plan = assess(&spec, &input, &machine(name), &Policy::default()).plan.expect("a plan");
        // A T4 has no BF16.
        for (format, spec) in formats.iter().filter(|(format, _)| *format != "BF16" || gpu.compute_capability >= (8, 0))
        {
            let speed = Speed::new(spec, &plan, &engine, &gpu.name, bandwidth).expect("a speed");
            let copies = speed.weight_bytes_per_token as f64 / (0.9 * bandwidth as f64);
            let (slow, fast) = speed.empty;
            let _ =
                write!(text, "{name:<10} {format:<7} {slow:>4} {fast:>4}  {:.2} {:.2}", slow * copies, fast * copies);
            let (slow, fast) = speed.prompt.expect("tensor cores");
            let products = spec.weights.layers.iter().flat_map(|layer| layer.linears());
            let products: u64 = products.map(|linear| linear.weight.shape.iter().product::<u64>()).sum();
            let peak = products as f64 / 1e12 / if *format == "BF16" { halves } else { bytes };
            let _ = writeln!(text, "  {slow:>5} {fast:>5}  {:.3} {:.3}", slow * peak, fast * peak);
        }
    }
    insta::assert_snapshot!("shares", text);
}

#[test]
fn text_of_a_model_on_a_described_gpu() {
    let (spec, input) = gguf(&LLAMA_31_8B, "Q4_K_M");
    insta::assert_snapshot!("on_a_t4", assess(&spec, &input, &machine("t4"), &Policy::default()));
    let (spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    insta::assert_snapshot!("bf16_on_a_t4", assess(&spec, &input, &machine("t4"), &Policy::default()));
    let (spec, input) = gguf(&LLAMA_31_8B, "Q8_0");
    insta::assert_snapshot!("on_a_gb10", assess(&spec, &input, &machine("gb10"), &Policy::default()));
}

/// The count of the first line, of the dtypes and of the evidence is that of what is refused.
#[test]
fn what_a_gpu_refuses_is_counted_alike() {
    let int8 = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/int8/phi3");
    for (spec, input) in [safetensors(&TINY_LLAMA, DType::BF16), read(&int8)] {
        let matrices = matrices_in_bf16(&spec);
        let report = assess(&spec, &input, &machine("t4"), &Policy::default());
        let bf16 = report.model.as_ref().and_then(|model| model.dtypes.iter().find(|row| row.dtype == DType::BF16));
        assert_eq!(bf16.map(|row| (row.tier, row.refused)), Some((None, matrices)));
        let all = spec.tensors().count();
        assert!(report.reason.ends_with(&format!("({matrices} of {all} tensors)")), "{}", report.reason);
        let text = report.to_string();
        assert!(text.contains(&format!(" tensors  {matrices} of them not supported\n")), "{text}");
        assert!(text.contains(&format!("because    {matrices} x BF16, ")), "{text}");
    }
}

/// Matrices in BF16, scales of others aside.
fn matrices_in_bf16(spec: &ModelSpec) -> usize {
    let scales: BTreeSet<_> = spec.scales().map(|scale| scale.name.as_str()).collect();
    let matrices = spec.tensors().filter(|tensor| tensor.dtype == DType::BF16 && tensor.shape.len() > 1);
    matrices.filter(|tensor| !scales.contains(tensor.name.as_str())).count()
}

fn gpu(name: &str, compute_capability: (u32, u32), free: u64) -> Gpu {
    let mut gpu = Gpu::described(name, compute_capability, free);
    (gpu.driver, gpu.cuda) = ("580.1".into(), Some((13, 0)));
    gpu
}

/// A detected machine with these GPUs and a build for them.
fn detected(gpus: &[Gpu]) -> Hardware {
    let mut hardware = machine("cpu-32gb");
    (hardware.profile, hardware.gpus, hardware.gpu_note) = (None, gpus.to_vec(), None);
    hardware.with_build(&["cuda"])
}

fn on(device: DeviceChoice) -> Policy {
    Policy { device, ..Policy::default() }
}

#[test]
fn every_refusal_of_a_gpu_says_why_and_what_to_do() {
    let tiny = |dtype| safetensors(&TINY_LLAMA, dtype);
    let (t4, cuda) = (gpu("Tesla T4", (7, 5), 15 * GIB), on(DeviceChoice::Cuda(0)));
    let (mut old, mut silent) = (t4.clone(), t4.clone());
    (old.cuda, old.driver) = (Some((11, 4)), "470.1".into());
    (silent.memory_total, silent.memory_free) = (None, None);
    let mut driverless = detected(&[]);
    driverless.gpu_note = Some("no NVIDIA driver library".into());
    let context = Policy { context: Some(131_072), ..cuda.clone() };
    let without_build = detected(from_ref(&t4)).with_build(&[]);
    let cases = [
        ("capability", tiny(DType::BF16), detected(from_ref(&t4)), cuda.clone(), 12),
        ("capability, no kernel either", tiny(DType::F8_E4M3), detected(from_ref(&t4)), cuda.clone(), 12),
        ("kernel", gguf(&TINY_LLAMA, "IQ4_NL"), detected(from_ref(&t4)), cuda.clone(), 12),
        ("no dp4a", gguf(&TINY_LLAMA, "Q8_0"), machine("p100"), Policy::default(), 12),
        ("build", tiny(DType::F16), without_build, cuda.clone(), 13),
        ("no GPU", tiny(DType::F16), driverless, cuda.clone(), 13),
        ("no such GPU", tiny(DType::F16), detected(from_ref(&t4)), on(DeviceChoice::Cuda(1)), 13),
        ("driver", tiny(DType::F16), detected(&[old]), cuda.clone(), 13),
        ("described driver", tiny(DType::F16), machine("jetson-tx2"), Policy::default(), 13),
        ("too old a GPU", tiny(DType::F32), detected(&[gpu("Tesla K80", (3, 7), 11 * GIB)]), cuda.clone(), 13),
        ("unknown memory", tiny(DType::F16), detected(&[silent]), cuda.clone(), 13),
        ("memory", gguf(&LLAMA_31_8B, "Q8_0"), detected(&[gpu("NVIDIA A2", (8, 6), 8 * GIB)]), cuda.clone(), 14),
        ("context", gguf(&LLAMA_31_8B, "Q4_K_M"), detected(from_ref(&t4)), context, 14),
        ("described memory", gguf(&LLAMA_31_8B, "Q8_0"), machine("rtx-3070"), Policy::default(), 14),
    ];
    let mut text = String::new();
    for (name, (spec, input), hardware, policy, code) in &cases {
        let report = assess(spec, input, hardware, policy);
        assert_eq!(report.exit_code, *code, "{name}: {}", report.first_line());
        assert!(!report.remedies.is_empty(), "{name}");
        let _ = writeln!(text, "{name} ({code}): {}", report.reason);
        for remedy in &report.remedies {
            let _ = writeln!(text, "    - {remedy}");
        }
    }
    insta::assert_snapshot!("refusals_of_gpus", text);
    // The report speaks of the build before it looks at dtypes.
    let engine = DeviceEngine::Cuda { compute_capability: (9, 0), compiled: false };
    assert!(matches!(capability::tier(DType::F32, &engine), Err(Lacking::Build { .. })));
}

#[test]
fn the_choice_is_the_gpu_with_most_room_that_runs_the_model_and_says_so() {
    let (large, small) = (gpu("NVIDIA L4", (8, 9), 22 * GIB), gpu("Tesla T4", (7, 5), 15 * GIB));
    let choose = |gpus: &[Gpu], (spec, input): &(ModelSpec, InputSummary)| {
        let report = assess(spec, input, &detected(gpus), &Policy::default());
        assert_eq!(report.verdict, Verdict::CompatibleWithWarnings, "{}", report.first_line());
        assert_eq!(report.next, [NextStep::Run]);
        (report.device, report.device_reason)
    };
    let both = [small.clone(), large.clone()];
    let bf16 = safetensors(&TINY_LLAMA, DType::BF16);
    let q8_0 = gguf(&LLAMA_31_8B, "Q8_0");
    assert_eq!(choose(&both, &q8_0).0, "cuda:1");
    assert_eq!(choose(&[gpu("NVIDIA L4", (8, 9), 14 * GIB), small.clone()], &bf16).0, "cuda:0");
    let (device, reason) = choose(from_ref(&small), &bf16);
    assert!(device == "cpu" && reason.contains("BF16 matrices need compute capability 8.0, found 7.5"), "{reason}");
    let (device, reason) = choose(&[gpu("NVIDIA A2", (8, 6), 4 * GIB)], &q8_0);
    assert!(device == "cpu" && reason.contains("3.75 GiB") | reason.contains("4.00 GiB"), "{reason}");
    let (device, reason) = choose(&[], &q8_0);
    assert!(device == "cpu" && reason.contains("no NVIDIA GPU"), "{reason}");
    let unused = assess(&q8_0.0, &q8_0.1, &detected(&both).with_build(&[]), &Policy::default());
    assert_eq!((unused.device.as_str(), unused.verdict), ("cpu", Verdict::CompatibleWithWarnings));
    assert!(unused.device_reason.contains("not used: this build has no CUDA engine"), "{}", unused.device_reason);
}

#[test]
fn a_slice_that_cuda_does_not_list_is_judged_and_never_chosen() {
    let slice = |uuid: &str, free, hidden: bool| {
        let mut slice = gpu("NVIDIA A100-SXM4-40GB MIG", (8, 0), free);
        (slice.uuid, slice.visible_as) = (Some(uuid.into()), hidden.then(|| uuid.into()));
        slice
    };
    let machine = detected(&[slice("MIG-1", 4 * GIB, false), slice("MIG-2", 20 * GIB, true)]);
    let (spec, input) = gguf(&LLAMA_31_8B, "Q8_0");
    let auto = assess(&spec, &input, &machine, &Policy::default());
    assert_eq!((auto.device.as_str(), auto.verdict), ("cpu", Verdict::CompatibleWithWarnings));
    assert!(auto.device_reason.contains("1 more by CUDA_VISIBLE_DEVICES alone"), "{}", auto.device_reason);
    let asked = assess(&spec, &input, &machine, &on(DeviceChoice::Cuda(1)));
    assert_eq!((asked.exit_code, asked.plan.map(|plan| plan.available)), (13, Some(20 * GIB)), "{}", asked.reason);
    assert_eq!(asked.remedies[0].to_string(), "start it with CUDA_VISIBLE_DEVICES=MIG-2, which makes it cuda:0");
    assert!(auto.to_string().contains("with CUDA_VISIBLE_DEVICES=MIG-2"), "{auto}");
    let visible = detected(&[slice("MIG-2", 20 * GIB, false)]);
    assert_eq!(assess(&spec, &input, &visible, &Policy::default()).device, "cuda:0");
}

#[test]
fn the_plan_of_a_gpu_counts_what_lies_on_it() {
    let (spec, input) = gguf(&TINY_LLAMA, "Q8_0");
    let report = assess(&spec, &input, &detected(&[gpu("Tesla T4", (7, 5), 15 * GIB)]), &Policy::default());
    let plan = report.plan.expect("a plan");
    let placed: u64 = spec.tensors().map(|tensor| (tensor.bytes + 16).next_multiple_of(256)).sum();
    assert_eq!((plan.place, plan.weights_resident), (PlanMemory::Gpu, placed));
    assert_eq!(plan.kv_cache, plan::kv_bytes(&spec, 2048, KvDtype::F32));
    assert_eq!(plan.load_peak, plan.weights_resident + plan.device_context);
    assert_eq!(plan.total, plan.load_peak + plan.kv_cache + plan.activations);
    assert_eq!(plan.anonymous(), plan.tokenizer + plan.process);
    assert_eq!(plan.available, 15 * GIB);
    // Memory that the machine and the GPU share holds the tokenizer and the process too.
    let shared = assess(&spec, &input, &machine("gb10"), &Policy::default()).plan.expect("a plan");
    assert_eq!((shared.place, shared.available), (PlanMemory::Shared, 112 * GIB));
    assert_eq!(shared.total, plan.total + plan.tokenizer + plan.process);
}

#[test]
fn the_context_that_a_refusal_names_fits() {
    let (spec, input) = gguf(&LLAMA_31_8B, "Q4_K_M");
    let ask = |context| {
        let policy = Policy { context: Some(context), ..Policy::default() };
        assess(&spec, &input, &machine("t4"), &policy)
    };
    let refused = ask(131_072);
    let largest = refused.plan.as_ref().map(|plan| plan.max_context).expect("a plan");
    assert_eq!((refused.exit_code, &refused.remedies[0]), (14, &Remedy::SmallerContext(largest)));
    assert_eq!((ask(largest).exit_code, ask(largest + plan::KV_PAGE).exit_code), (0, 14));
}

/// Of a layer with a window a token reads what lies within it.
#[test]
fn the_cache_that_a_token_reads_is_summed_over_layers() {
    let (mut spec, input) = gguf(&LLAMA_31_8B, "Q8_0");
    for layer in spec.weights.layers.iter_mut().step_by(2) {
        let Some(Mixer::Attention(attention)) = layer.mixer.as_mut().map(|mixer| &mut mixer.layer) else {
            unreachable!("made by hand")
        };
        attention.window = Some(1024);
    }
    let bytes = |spec: &ModelSpec, context| {
        let report =
            assess(spec, &input, &machine("epyc-9654"), &Policy { context: Some(context), ..Policy::default() });
        (report.speed.as_ref().expect("a speed").cache_bytes_per_token, report.to_string())
    };
    let position = 2 * 8 * 128 * 4;
    let (long, text) = bytes(&spec, 4096);
    assert_eq!(long, 16 * (4096 + 1024) * position);
    assert!(text.contains("a window of 1024 in 16 of 32 layers"), "{text}");
    assert_eq!(bytes(&spec, 512).0, 32 * 512 * position);
}

#[test]
fn speed_is_bandwidth_over_the_bytes_of_a_token() {
    let (spec, input) = gguf(&LLAMA_31_8B, "Q8_0");
    let on = |name: &str| assess(&spec, &input, &machine(name), &Policy { context: Some(4096), ..Policy::default() });
    let speed = on("l40s").speed.expect("a speed");
    let weights = spec.tensors().map(|tensor| tensor.bytes).sum::<u64>() - spec.weights.embedding.weight.bytes;
    let cache = 4096 * 32 * 2 * 8 * 128 * 4;
    assert_eq!((speed.weight_bytes_per_token, speed.cache_bytes_per_token), (weights, cache));
    // Two digits are kept.
    let near = |found: f64, share: f64, bytes: u64| (found / (share * 864e9 / bytes as f64) - 1.0).abs() < 0.05;
    assert!(near(speed.empty.0, 0.5, weights) && near(speed.empty.1, 0.9, weights), "{speed:?}");
    assert!(near(speed.full.0, 0.5, weights + cache) && near(speed.full.1, 0.9, weights + cache), "{speed:?}");
    assert_eq!((speed.launches, speed.prompt), (None, None), "its data sheet is not at hand");
    // Launches and instructions take time on top: on an L4 hardly, as its memory is slow beside its processors.
    let (l4, h100) = (on("l4").speed.expect("a speed"), on("h100").speed.expect("a speed"));
    assert_eq!(l4.launches, Some(32 * 10 + 3));
    let of_bandwidth = |speed: &Speed| speed.empty.1 * weights as f64 / speed.bandwidth as f64;
    assert!((0.84..0.9).contains(&of_bandwidth(&l4)) && of_bandwidth(&h100) < of_bandwidth(&l4), "{l4:?} {h100:?}");
    let prompt = |speed: &Speed| speed.prompt.expect("tensor cores").1;
    // Instructions bind a prompt of blocks: 2.04 times as many a second.
    assert!(prompt(&h100) > 1.9 * prompt(&l4), "{l4:?} {h100:?}");
    // A model of a few hundred megabytes is not bound by the memory of an H200.
    let (small, input) = gguf(&TINY_LLAMA, "Q4_K_M");
    assert_eq!(assess(&small, &input, &machine("h200"), &Policy::default()).speed, None);
    let (spec, input) = gguf(&LLAMA_31_8B, "Q8_0");
    // Of this machine no data sheet is known, and what does not run has no speed.
    assert_eq!(assess(&spec, &input, &detected(&[]), &Policy::default()).speed, None);
    let (spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    assert_eq!(assess(&spec, &input, &machine("t4"), &Policy::default()).speed, None);
}

#[test]
fn a_described_gpu_is_judged_with_a_fitting_build() {
    let (spec, input) = gguf(&TINY_LLAMA, "Q8_0");
    let without = assess(&spec, &input, &machine("t4"), &Policy::default());
    assert_eq!(without.verdict, Verdict::CompatibleWithWarnings);
    assert!(without.reason.contains("this build has no CUDA engine"), "{}", without.reason);
    let with = assess(&spec, &input, &machine("t4").with_build(&["cuda"]), &Policy::default());
    assert_eq!((with.verdict, with.exit_code), (Verdict::CompatibleWithWarnings, 0), "{}", with.reason);
    let tried = "the engine for GPUs has been run on compute capability 9.0 only";
    assert!(with.reason.ends_with(&format!("; {tried}")), "{}", with.reason);
    assert!(without.to_string().contains(&format!("warning    hardware: {tried}\n")), "{without}");
    for (name, verdict) in [("h100", Verdict::Compatible), ("b200", Verdict::CompatibleWithWarnings)] {
        let report = assess(&spec, &input, &machine(name).with_build(&["cuda"]), &Policy::default());
        assert_eq!((report.verdict, report.to_string().contains(tried)), (verdict, name == "b200"), "{report}");
    }
    let processor = assess(&spec, &input, &machine("t4"), &on(DeviceChoice::Cpu));
    assert_eq!((processor.device.as_str(), processor.verdict), ("cpu", Verdict::Compatible));
}

#[test]
fn there_are_profiles_of_every_generation() {
    assert!(with_gpus().count() >= 30);
    let capabilities: BTreeSet<_> = with_gpus().map(|(_, gpu)| gpu.compute_capability).collect();
    let sold = [(5, 2), (5, 3), (6, 0), (6, 1), (6, 2), (7, 0), (7, 2), (7, 5), (8, 0), (8, 6), (8, 7), (8, 9)];
    let later = [(9, 0), (10, 0), (11, 0), (12, 0), (12, 1)];
    assert_eq!(capabilities, sold.into_iter().chain(later).collect());
    for (profile, gpu) in with_gpus() {
        let memory = gpu.memory_total.unwrap_or(profile.hardware().memory.total);
        assert!(memory >= 4 * GIB, "{}", profile.name);
        assert!(gpu.bandwidth.is_some_and(|bytes| (25e9..=8e12).contains(&(bytes as f64))), "{}", profile.name);
    }
}
