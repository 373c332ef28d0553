//! The report as people and tools get it: text as snapshots, JSON by the contract's table of keys.

mod common;

use common::{LLAMA_31_8B, LLAMA_32_1B, TINY_LLAMA, gguf, safetensors};
use model_factory_diagnostics::family::REGISTRY;
use model_factory_diagnostics::hardware::Gpu;
use model_factory_diagnostics::hardware::profiles::Profile;
use model_factory_diagnostics::plan::{CpuBuffers, KvDtype, kv_bytes};
use model_factory_diagnostics::report::{
    DeviceList, FileStatus, HubModel, InputFile, InputSummary, Remedy, SCHEMA_VERSION, ServingEngine,
};
use model_factory_diagnostics::spec::{ModelSpec, RopeScaling};
use model_factory_diagnostics::tokenizer::DEFAULT_TEMPLATE;
use model_factory_diagnostics::{DType, Hardware, Policy, Report, Verdict, assess, diagnose, diagnose_hub};
use serde_json::Value;
use std::path::Path;

fn machine(profile: &str) -> Hardware {
    Profile::find(profile).unwrap_or_else(|| panic!("no profile {profile}")).hardware()
}

fn llama_31() -> Report {
    let (mut spec, input) = gguf(&LLAMA_31_8B, "Q4_K_M");
    spec.ropes[0].theta = 500000.0;
    spec.ropes[0].scaling =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192 };
    assess(&spec, &input, &machine("cpu-avx2-16gb"), &Policy::default())
}

#[test]
fn text_of_a_model_that_runs() {
    insta::assert_snapshot!("fits_with_less_context", llama_31());
}

#[test]
fn text_of_a_model_that_does_not_fit() {
    let (spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    insta::assert_snapshot!("does_not_fit", assess(&spec, &input, &machine("cpu-2gb"), &Policy::default()));
}

#[test]
fn text_of_a_context_that_does_not_fit() {
    let (spec, input) = gguf(&LLAMA_31_8B, "Q8_0");
    let policy = Policy { context: Some(65536), ..Policy::default() };
    insta::assert_snapshot!("context_does_not_fit", assess(&spec, &input, &machine("cpu-16gb"), &policy));
}

#[test]
fn text_of_a_refused_dtype() {
    let (spec, input) = safetensors(&TINY_LLAMA, DType::F64);
    insta::assert_snapshot!("refused_dtype", assess(&spec, &input, &machine("cpu-8gb"), &Policy::default()));
}

#[test]
fn text_with_warnings_assumptions_and_parts() {
    let (mut spec, mut input) = safetensors(&TINY_LLAMA, DType::BF16);
    spec.unused_tensors = (0..6).map(|layer| format!("model.layers.{layer}.self_attn.rotary_emb.inv_freq")).collect();
    spec.assumptions = vec!["rope theta 10000: rope_theta is absent (transformers LlamaConfig)".into()];
    let template = spec.tokenizer.chat_templates.remove(DEFAULT_TEMPLATE).expect("one");
    spec.tokenizer.chat_templates = ["rag", "tool_use"].map(|name| (name.into(), template.clone())).into();
    let half = input.files[0].bytes / 2;
    input.files = (1..=2)
        .map(|part| InputFile {
            name: format!("model-0000{part}-of-00002.safetensors"),
            bytes: half,
            part,
            status: FileStatus::Present,
        })
        .collect();
    insta::assert_snapshot!("warnings", assess(&spec, &input, &machine("cpu-avx2-16gb"), &Policy::default()));
}

#[test]
fn text_of_a_model_that_fits() {
    let (spec, input) = gguf(&LLAMA_32_1B, "Q8_0");
    let policy = Policy { context: Some(8192), ..Policy::default() };
    insta::assert_snapshot!("fits", assess(&spec, &input, &machine("cpu-bf16-64gb"), &policy));
}

#[test]
fn text_of_a_model_past_one_machine() {
    let (spec, input) = gguf(&LLAMA_31_8B, "Q8_0");
    insta::assert_snapshot!("past_one_machine", assess(&spec, &input, &machine("cpu-4gb"), &Policy::default()));
}

/// The report of the file or folder `name` of the fixtures: tests run in the folder of their package.
fn of_fixture(name: &str) -> Report {
    diagnose(&Path::new("../../fixtures").join(name), &machine("cpu-8gb"), &Policy::default())
}

/// The report of `folder`, which is shown as `name`: lines are folded, and a temporary folder's path is of any length.
fn of_folder(folder: &Path, name: &str) -> Report {
    let mut report = diagnose(folder, &machine("cpu-8gb"), &Policy::default());
    let path = folder.display().to_string();
    let checks = report.checks.iter_mut().map(|check| &mut check.summary);
    let models = report.input.models.iter_mut().flat_map(|model| [&mut model.path, &mut model.reason]);
    let remedies = report.remedies.iter_mut().filter_map(|remedy| match remedy {
        Remedy::Words(words) => Some(words),
        _ => None,
    });
    let texts = remedies.chain(checks).chain(models);
    for text in texts.chain([&mut report.input.path, &mut report.reason]) {
        *text = text.replace(&path, name);
    }
    report
}

#[test]
fn text_of_a_split_gguf() {
    insta::assert_snapshot!("split_gguf", of_fixture("models/llama-256/split"));
}

#[test]
fn text_of_int8_w8a8() {
    insta::assert_snapshot!("w8a8", of_fixture("int8/phi3"));
}

#[test]
fn text_of_a_file_that_is_no_model() {
    insta::assert_snapshot!("refused_format", of_fixture("README.md"));
}

#[test]
fn text_of_a_folder_of_models() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = |from: &str, to: &str, files: &[&str]| {
        let to = folder.path().join(to);
        std::fs::create_dir_all(&to).expect("a folder");
        for file in files {
            std::fs::copy(Path::new("../../fixtures").join(from).join(file), to.join(file)).expect("a copy");
        }
    };
    copy("", "", &["demo-q4_k_m.gguf"]);
    copy("models/llama-256", "", &["q8_0.gguf", "tq2_0.gguf"]);
    copy("int8/phi3", "phi-3-w8a8", &["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]);
    copy("models/llama-3.1/f32-sharded", "unfinished", &["config.json", "model-00001-of-00003.safetensors"]);
    std::fs::write(folder.path().join("page.gguf"), "<!doctype html>please log in").expect("a page");
    insta::assert_snapshot!("folder_of_models", of_folder(folder.path(), "models"));
}

#[test]
fn text_of_an_ambiguous_folder() {
    insta::assert_snapshot!("ambiguous", of_fixture("models/smollm2"));
}

#[test]
fn text_of_a_folder_on_a_gpu() {
    let report = diagnose(Path::new("../../fixtures/models/smollm2"), &machine("t4"), &Policy::default());
    insta::assert_snapshot!("folder_on_a_gpu", report);
}

#[test]
fn text_of_an_incomplete_checkpoint() {
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/llama-3.1/f32-sharded");
    let folder = tempfile::tempdir().expect("a folder");
    for file in ["config.json", "model.safetensors.index.json", "model-00001-of-00003.safetensors"] {
        std::fs::copy(Path::new(from).join(file), folder.path().join(file)).expect("a copy");
    }
    insta::assert_snapshot!("incomplete", of_folder(folder.path(), "models/llama"));
}

#[test]
fn text_of_an_architecture_nothing_here_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/tinyllama/bf16");
    for file in ["model.safetensors", "tokenizer.json"] {
        std::fs::copy(Path::new(from).join(file), folder.path().join(file)).expect("a copy");
    }
    let config = r#"{"architectures": ["Zamba2ForCausalLM"], "model_type": "zamba2", "hidden_size": 64}"#;
    std::fs::write(folder.path().join("config.json"), config).expect("a config");
    insta::assert_snapshot!("refused_architecture", of_folder(folder.path(), "models/mamba"));
}

#[test]
fn text_of_a_dtype_that_a_gpu_lacks() {
    let (spec, input) = safetensors(&TINY_LLAMA, DType::BF16);
    insta::assert_snapshot!("refused_dtype_on_t4", assess(&spec, &input, &machine("t4"), &Policy::default()));
}

#[test]
fn text_of_a_model_on_a_gpu() {
    let (spec, input) = gguf(&LLAMA_31_8B, "Q4_K_M");
    insta::assert_snapshot!("on_a_gpu", assess(&spec, &input, &machine("t4"), &Policy::default()));
}

#[test]
fn text_of_a_remote_model() {
    let folder = tempfile::tempdir().expect("a folder");
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        std::fs::copy(Path::new("../../fixtures/demo").join(file), folder.path().join(file)).expect("a copy");
    }
    let here = this_machine("t4").with_build(&["cuda"]);
    let model = hub_model("org/demo", None, Some("v1.0"), &[]);
    let mut report = diagnose_hub(REGISTRY, folder.path(), &model, &here, &Policy::default()).report;
    report.rename(&folder.path().display().to_string(), "org/demo");
    insta::assert_snapshot!("remote", report);
}

/// A machine that is described, as the one of the run.
fn this_machine(profile: &str) -> Hardware {
    let mut hardware = machine(profile);
    hardware.profile = None;
    hardware
}

fn hub_model(repo: &str, wanted: Option<&str>, revision: Option<&str>, files: &[&str]) -> HubModel {
    let own = |text: Option<&str>| text.map(str::to_owned);
    let files = files.iter().map(|file| (*file).into()).collect();
    HubModel { repo: repo.into(), wanted: own(wanted), revision: own(revision), files }
}

/// The report of a model that is on the Hub and too large for `profile`.
fn past_one_machine(model: HubModel, spec: &ModelSpec, input: InputSummary, profile: &str) -> Report {
    let input = InputSummary { path: model.to_string(), hub: Some(model), ..input };
    assess(spec, &input, &machine(profile), &Policy { context: Some(8192), ..Policy::default() })
}

#[test]
fn text_of_a_remote_model_past_one_machine() {
    let (spec, input) = gguf(&LLAMA_31_8B, "Q8_0");
    let model = hub_model("org/model-GGUF", Some("Q8_0"), None, &["model-Q8_0.gguf"]);
    insta::assert_snapshot!("remote_past_one_machine", past_one_machine(model, &spec, input, "cpu-4gb"));
}

#[test]
fn text_is_one_screen_and_its_first_line_alone_carries_the_verdict() {
    let (spec, input) = gguf(&LLAMA_32_1B, "Q8_0");
    let reports = [llama_31(), assess(&spec, &input, &machine("cpu-avx2-16gb"), &Policy::default())];
    for report in reports {
        let text = report.to_string();
        assert_eq!(text.lines().next(), Some(report.first_line().as_str()));
        assert!(text.lines().count() <= 24, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

#[test]
fn a_refusal_is_one_screen_of_lines_no_wider_than_it() {
    let (spec, input) = safetensors(&LLAMA_31_8B, DType::BF16);
    let text = assess(&spec, &input, &machine("cpu-16gb"), &Policy::default()).to_string();
    assert!(text.lines().count() <= 24, "{text}");
}

/// Three cases of one 8B model on GPUs of 8 and 16 GB, and what no number of machines runs.
#[test]
fn what_one_machine_does_not_hold_is_split_over_the_fewest_of_its_kind() {
    let policy = Policy { context: Some(8192), ..Policy::default() };
    let (spec, input) = gguf(&LLAMA_31_8B, "Q8_0");
    let plan = assess(&spec, &input, &machine("cpu-4gb"), &policy).distribution.expect("a plan");
    assert_eq!((plan.engine, plan.tensor_parallel, plan.context), (ServingEngine::LlamaCpp, 1, 8192));
    let layers: Vec<usize> = plan.shares.iter().map(|share| share.layers.len()).collect();
    assert_eq!(layers, [11, 11, 10], "7.95 GiB of weights and 1 GiB of cache, in 3.5 GiB each");
    assert!(plan.shares.iter().all(|share| share.bytes <= plan.available), "{plan}");
    let held: u64 = plan.shares.iter().map(|share| share.bytes).sum();
    let buffers = CpuBuffers::new(&spec).bytes(512) * layers.len() as u64;
    let weights: u64 = spec.tensors().map(|tensor| tensor.bytes).sum();
    assert_eq!(held, weights + kv_bytes(&spec, 8192, KvDtype::F16) + buffers, "nothing is counted twice or forgotten");

    let (spec, input) = safetensors(&LLAMA_31_8B, DType::BF16);
    let plan = assess(&spec, &input, &machine("rtx-4060"), &policy).distribution.expect("a plan");
    assert_eq!(
        (plan.engine, plan.tensor_parallel, plan.shares.len()),
        (ServingEngine::Vllm, 4, 4),
        "16 GB, 7.2 GiB each"
    );
    assert_eq!(plan.dtype, Some(DType::BF16));
    // Three GPUs would hold it, and do not divide 32 heads; nor does vLLM split keys of 8 heads over 3.
    assert!(!plan.shares.len().is_multiple_of(3));

    let none = assess(&spec, &input, &machine("cpu-8gb"), &policy);
    assert_eq!((none.verdict, none.distribution), (Verdict::DoesNotFit, None), "no engine runs safetensors over CPUs");
    let (spec, input) = gguf(&LLAMA_32_1B, "Q8_0");
    assert_eq!(assess(&spec, &input, &machine("cpu-8gb"), &policy).distribution, None, "one machine is enough");
}

#[test]
fn text_of_the_described_machines() {
    insta::assert_snapshot!("devices", DeviceList::new(&machine("cpu-8gb")));
}

/// A key's path and the JSON types it may have.
type Key = (&'static str, &'static [&'static str]);

#[rustfmt::skip]
const KEYS: &[Key] = &[
    ("schema_version", &["string"]),
    ("verdict", &["string"]), ("exit_code", &["whole"]), ("reason", &["string"]), ("remedies", &["array"]),
    ("casts", &["whole"]), ("distribution", &["null"]), ("input.models", &["array"]),
    ("input.path", &["string"]), ("input.hub", &["null"]), ("input.kind", &["string"]), ("input.candidates", &["array"]),
    ("input.files", &["array"]), ("input.files.0.name", &["string"]), ("input.files.0.bytes", &["whole"]),
    ("input.files.0.part", &["whole"]), ("input.files.0.status", &["string"]),
    ("model.family", &["string"]), ("model.variant", &["string"]), ("model.architecture", &["string"]),
    ("model.parameters", &["whole"]), ("model.layers", &["whole"]), ("model.hidden", &["whole"]),
    ("model.heads", &["whole"]), ("model.kv_heads", &["whole"]), ("model.head_dim", &["whole"]),
    ("model.vocab", &["whole"]), ("model.context_trained", &["whole"]), ("model.tied_embeddings", &["bool"]),
    ("model.rope.layout", &["string"]), ("model.rope.theta", &["number"]), ("model.rope.scaling", &["string"]),
    ("model.rope.dimensions", &["whole"]), ("model.rope.source", &["string"]),
    ("model.sliding_window", &["null", "whole"]), ("model.windows", &["array"]),
    ("model.dtypes.0.dtype", &["string"]), ("model.dtypes.0.tensors", &["whole"]),
    ("model.dtypes.0.bytes", &["whole"]), ("model.dtypes.0.tier", &["string"]),
    ("model.quantization", &["string"]),
    ("model.tokenizer.kind", &["string"]), ("model.tokenizer.pre", &["string"]), ("model.tokenizer.bos", &["whole"]),
    ("model.tokenizer.stop_ids.0", &["whole"]),
    ("model.chat_template", &["bool"]), ("model.chat_templates", &["array"]), ("model.assumptions", &["array"]), ("model.unused_tensors", &["array"]),
    ("hardware.cpu.model", &["string"]), ("hardware.cpu.features", &["array"]), ("hardware.cpu.threads", &["whole"]),
    ("hardware.memory.total", &["whole"]), ("hardware.memory.available", &["whole"]),
    ("hardware.memory.how", &["string"]),
    ("hardware.gpus.0.name", &["string"]), ("hardware.gpus.0.compute_capability", &["string"]),
    ("hardware.gpus.0.memory_total", &["whole"]), ("hardware.gpus.0.memory_free", &["null"]),
    ("hardware.gpus.0.driver", &["string"]), ("hardware.gpus.0.cuda", &["null", "string"]),
    ("hardware.gpus.0.shared_memory", &["bool"]), ("hardware.gpus.0.bandwidth", &["null", "whole"]),
    ("device", &["string"]), ("device_reason", &["string"]), ("speed", &["null"]), ("plan.place", &["string"]),
    ("hardware.build.features", &["array"]),
    ("checks.0.id", &["string"]), ("checks.0.status", &["string"]), ("checks.0.summary", &["string"]),
    ("checks.0.evidence", &["string"]), ("checks.0.remedy", &["null", "string"]),
    ("plan.context", &["whole"]), ("plan.weights_file", &["whole"]), ("plan.weights_resident", &["whole"]),
    ("plan.sessions", &["whole"]), ("plan.kv_cache", &["whole"]), ("plan.kv_per_token", &["whole"]), ("plan.activations", &["whole"]),
    ("plan.draft_weights", &["whole"]), ("plan.draft_memory", &["whole"]),
    ("plan.tokenizer", &["whole"]), ("plan.device_context", &["whole"]), ("plan.total", &["whole"]),
    ("plan.load_peak", &["whole"]), ("plan.available", &["whole"]), ("plan.max_context", &["whole"]),
];

#[test]
fn json_has_every_key_of_the_contract_with_its_type() {
    let mut report = llama_31();
    let mut gpu = Gpu::described("Tesla T4", (7, 5), 16 << 30);
    gpu.memory_free = None;
    report.hardware.gpus.push(gpu);
    let json: Value = serde_json::from_str(&report.to_json()).unwrap();
    let wrong: Vec<String> = KEYS
        .iter()
        .filter_map(|(path, types)| {
            let found = json.pointer(&format!("/{}", path.replace('.', "/")));
            let found = found.map_or("absent", json_type);
            let accepted = types.contains(&found) || (types.contains(&"number") && found == "whole");
            (!accepted).then(|| format!("{path} is {found}, expected {types:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((&json["schema_version"], &json["casts"]), (&SCHEMA_VERSION.into(), &0.into()));
    assert_eq!(json["hardware"]["gpus"][0]["compute_capability"], "7.5");
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_u64() => "whole",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[test]
fn verdicts_have_the_words_and_codes_of_the_contract() {
    use Verdict::*;
    let table = [
        (Compatible, "compatible", 0),
        (CompatibleWithWarnings, "compatible_with_warnings", 0),
        (UnsupportedFormat, "unsupported_format", 10),
        (UnsupportedArchitecture, "unsupported_architecture", 11),
        (UnsupportedDtype, "unsupported_dtype", 12),
        (HardwareInsufficient, "hardware_insufficient", 13),
        (DoesNotFit, "does_not_fit", 14),
        (IncompleteOrCorrupt, "incomplete_or_corrupt", 15),
        (AmbiguousInput, "ambiguous_input", 16),
    ];
    for (verdict, word, code) in table {
        assert_eq!((verdict.word(), verdict.exit_code()), (word, code));
        assert_eq!(serde_json::to_value(verdict).unwrap(), word);
    }
}

#[test]
fn a_list_of_devices_has_the_tier_of_every_dtype_on_each() {
    let list: Value = serde_json::from_str(&DeviceList::new(&Hardware::detect()).to_json()).unwrap();
    let devices = list["devices"].as_array().unwrap();
    assert!(devices.len() > 5 && devices[0]["name"] == "cpu");
    for device in devices {
        let tiers = device["tiers"].as_object().unwrap();
        assert_eq!(tiers.len(), DType::all().count());
        // For a GPU of this machine there may be no engine.
        let own = device["name"].as_str().is_some_and(|name| name.starts_with("cuda"));
        assert!(tiers["F32"] == "native" || own, "{device}");
        assert!(tiers["F8_E5M2"].is_null());
    }
}
