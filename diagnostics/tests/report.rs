//! The report as people and tools get it: text as snapshots, JSON by the contract's table of keys.

mod common;

use common::{LLAMA_31_8B, TINY_LLAMA, gguf, safetensors};
use model_diagnostics::hardware::profiles::Profile;
use model_diagnostics::report::{DeviceList, FileStatus, InputFile, SCHEMA_VERSION};
use model_diagnostics::spec::RopeScaling;
use model_diagnostics::tokenizer::DEFAULT_TEMPLATE;
use model_diagnostics::{DType, Hardware, Policy, Report, Verdict, assess};
use serde_json::Value;

fn machine(profile: &str) -> Hardware {
    Profile::find(profile).unwrap_or_else(|| panic!("no profile {profile}")).hardware()
}

fn llama_31() -> Report {
    let (mut spec, input) = gguf(&LLAMA_31_8B, "Q4_K_M");
    spec.rope.theta = 500000.0;
    spec.rope.scaling =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 8192 };
    assess(&spec, &input, &machine("cpu-16gb"), &Policy::default())
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
fn text_of_the_described_machines() {
    insta::assert_snapshot!("devices", DeviceList::new(&machine("cpu-8gb")));
}

/// A key's path and the JSON types it may have.
type Key = (&'static str, &'static [&'static str]);

#[rustfmt::skip]
const KEYS: &[Key] = &[
    ("schema_version", &["string"]),
    ("verdict", &["string"]), ("exit_code", &["whole"]), ("reason", &["string"]), ("remedies", &["array"]),
    ("casts", &["whole"]),
    ("input.path", &["string"]), ("input.kind", &["string"]), ("input.candidates", &["array"]),
    ("input.files", &["array"]), ("input.files.0.name", &["string"]), ("input.files.0.bytes", &["whole"]),
    ("input.files.0.part", &["whole"]), ("input.files.0.status", &["string"]),
    ("model.family", &["string"]), ("model.variant", &["string"]), ("model.architecture", &["string"]),
    ("model.parameters", &["whole"]), ("model.layers", &["whole"]), ("model.hidden", &["whole"]),
    ("model.heads", &["whole"]), ("model.kv_heads", &["whole"]), ("model.head_dim", &["whole"]),
    ("model.vocab", &["whole"]), ("model.context_trained", &["whole"]), ("model.tied_embeddings", &["bool"]),
    ("model.rope.layout", &["string"]), ("model.rope.theta", &["number"]), ("model.rope.scaling", &["string"]),
    ("model.rope.dimensions", &["whole"]), ("model.rope.source", &["string"]),
    ("model.sliding_window", &["null", "whole"]),
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
    ("plan.kv_cache", &["whole"]), ("plan.kv_per_token", &["whole"]), ("plan.activations", &["whole"]),
    ("plan.tokenizer", &["whole"]), ("plan.device_context", &["whole"]), ("plan.total", &["whole"]),
    ("plan.load_peak", &["whole"]), ("plan.available", &["whole"]), ("plan.max_context", &["whole"]),
];

#[test]
fn json_has_every_key_of_the_contract_with_its_type() {
    let mut report = llama_31();
    report.hardware.gpus.push(model_diagnostics::hardware::Gpu {
        name: "Tesla T4".into(),
        uuid: None,
        compute_capability: (7, 5),
        memory_total: Some(16 << 30),
        memory_free: None,
        shared_memory: false,
        driver: "580.1".into(),
        cuda: Some((13, 0)),
        bandwidth: None,
    });
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
        // For a card of this machine there may be no engine.
        let own = device["name"].as_str().is_some_and(|name| name.starts_with("cuda"));
        assert!(tiers["F32"] == "native" || own, "{device}");
        assert!(tiers["NVFP4"].is_null());
    }
}
