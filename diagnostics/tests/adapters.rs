//! Adapters in the diagnosis of a model: what they change, and what they are refused for, before a weight is read.
#![allow(clippy::unwrap_used)] // a test that cannot go on says why

use model_factory_diagnostics::hardware::profiles::Profile;
use model_factory_diagnostics::plan::{ReservedAdapters, adapter_bytes, adapter_rows_bytes, adapter_step_bytes};
use model_factory_diagnostics::report::{Remedy, Status};
use model_factory_diagnostics::{DeviceChoice, Policy, Report, Verdict, diagnose, diagnose_with, family};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn base() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/llama-3/bf16")
}

/// An adapter of rank 2 for the queries of both layers, whose tensors are zeros; `change` has its keys and tensors.
fn adapter(change: impl FnOnce(&mut Value, &mut Vec<(String, [u64; 2])>)) -> tempfile::TempDir {
    let config: Value = serde_json::from_slice(&std::fs::read(base().join("config.json")).unwrap()).unwrap();
    let size = |key: &str| config[key].as_u64().unwrap();
    let queries = size("num_attention_heads")
        * config["head_dim"].as_u64().unwrap_or(size("hidden_size") / size("num_attention_heads"));
    let mut tensors = Vec::new();
    for layer in 0..2 {
        let front = format!("base_model.model.model.layers.{layer}.self_attn.q_proj");
        tensors.push((format!("{front}.lora_A.weight"), [2, size("hidden_size")]));
        tensors.push((format!("{front}.lora_B.weight"), [queries, 2]));
    }
    let mut keys = json!({
        "peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "base_model_name_or_path": "org/base",
    });
    change(&mut keys, &mut tensors);
    let mut end = 0;
    let entries = tensors.iter().map(|(name, shape)| {
        let begin = end;
        end += 2 * shape[0] * shape[1];
        (name.clone(), json!({ "dtype": "F16", "shape": shape, "data_offsets": [begin, end] }))
    });
    let header = Value::Object(entries.collect()).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; end as usize]].concat();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("adapter_model.safetensors"), bytes).unwrap();
    std::fs::write(folder.path().join("adapter_config.json"), keys.to_string()).unwrap();
    folder
}

fn judge(lora: &[&Path], machine: &str) -> Report {
    let policy = Policy { lora: lora.iter().map(|path| (*path).into()).collect(), ..Policy::default() };
    diagnose(&base(), &Profile::find(machine).unwrap().hardware(), &policy)
}

#[test]
fn a_report_says_what_adapters_change() {
    let folder = adapter(|_, _| ());
    let report = judge(&[folder.path(), folder.path()], "cpu-8gb");
    assert!(report.verdict.runs(), "{}", report.first_line());
    let [first, second] = report.adapters.as_slice() else { panic!("{:?}", report.adapters) };
    assert_eq!(first, second);
    assert_eq!((first.kind, first.changed, first.ranks.as_slice()), ("peft", 2, &[2][..]));
    assert!(first.changeable > 10 && first.bytes > 0, "{first:?}");
    let text = report.to_string();
    for says in ["(PEFT, rank 2, F16, ", "2 of 15 linear layers: self_attn.q_proj 2, made for org/base"] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let json: Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["adapters"][1]["layers"], json!({ "self_attn.q_proj": 2 }));
    assert_eq!(json["adapters"][0]["base"], "org/base");
    assert_eq!(json["checks"].as_array().unwrap().last().unwrap()["id"], "adapters");
    // Without adapters the report is as it was.
    let without = judge(&[], "cpu-8gb");
    assert!(without.check("adapters").is_none() && !without.to_json().contains("adapters"));
}

#[test]
fn an_adapter_of_another_model_is_refused_by_tensor() {
    let cases: [(&str, tempfile::TempDir, u8, &str); 6] = [
        (
            "a width",
            adapter(|_, tensors| tensors[0].1[1] += 1),
            15,
            "layers.0.self_attn.q_proj.lora_A.weight has shape",
        ),
        (
            "a layer",
            adapter(|_, tensors| {
                tensors.iter_mut().for_each(|tensor| tensor.0 = tensor.0.replace("layers.1", "layers.7"))
            }),
            15,
            "layers.7.self_attn.q_proj, which is no linear layer of the model",
        ),
        (
            "a vocabulary",
            adapter(|keys, tensors| {
                keys["target_modules"] = json!(["q_proj", "lm_head"]);
                let hidden = tensors[0].1[1];
                tensors.push(("base_model.model.lm_head.lora_A.weight".into(), [2, hidden]));
                tensors.push(("base_model.model.lm_head.lora_B.weight".into(), [152_064, 2]));
            }),
            15,
            "lm_head.lora_B.weight has shape [152064, 2]",
        ),
        ("a missing tensor", adapter(|_, tensors| drop(tensors.pop())), 15, "q_proj.lora_B.weight is missing"),
        ("DoRA", adapter(|keys, _| keys["use_dora"] = json!(true)), 11, "use_dora true"),
        ("no rank", adapter(|keys, _| keys["r"] = json!(null)), 10, "key r is missing"),
    ];
    for (case, folder, code, says) in &cases {
        let report = judge(&[folder.path()], "cpu-8gb");
        assert!(report.exit_code == *code && report.reason.contains(says), "{case}: {}", report.first_line());
        assert!(report.adapters.is_empty() && report.model.is_some(), "{case}");
        assert_eq!(report.check("adapters").map(|check| check.status), Some(Status::Fail), "{case}");
        if *code == 15 {
            let given = "give an adapter of this model, or the model that it was made for";
            assert_eq!(report.remedies.first(), Some(&Remedy::from(given)), "{case}");
        }
    }
    // One sound adapter does not make up for another, and a model is not loaded with it.
    let sound = adapter(|_, _| ());
    assert_eq!(judge(&[sound.path(), cases[0].1.path()], "cpu-8gb").exit_code, 15);
    let policy = Policy { lora: vec![cases[0].1.path().into()], ..Policy::default() };
    let hardware = Profile::find("cpu-8gb").unwrap().hardware();
    assert!(diagnose_with(family::REGISTRY, &base(), &hardware, &policy).ready.is_none());
    let gone = judge(&[Path::new("/no/such/adapter")], "cpu-8gb");
    assert_eq!((gone.verdict, gone.exit_code), (Verdict::Unreadable, 1));
}

/// Tensors are read when an adapter is loaded, so their bytes do not matter here.
#[test]
#[cfg(unix)]
fn no_tensor_of_an_adapter_is_read() {
    let folder = adapter(|_, _| ());
    let file = folder.path().join("adapter_model.safetensors");
    // The same length, of which only the header is stored.
    let (bytes, length) = (std::fs::read(&file).unwrap(), std::fs::metadata(&file).unwrap().len());
    let header = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap());
    let sparse = std::fs::File::create(&file).unwrap();
    std::io::Write::write_all(&mut &sparse, &bytes[..header as usize]).unwrap();
    sparse.set_len(length).unwrap();
    let report = judge(&[folder.path()], "cpu-8gb");
    assert_eq!(report.adapters.len(), 1, "{}", report.first_line());
}

#[test]
fn gpus_take_no_adapters() {
    let folder = adapter(|_, _| ());
    let without = judge(&[], "h100");
    assert!(without.verdict.runs(), "{}", without.first_line());
    let reserved = Policy { adapters: Some(ReservedAdapters { count: 2, rank: 8 }), ..Policy::default() };
    let hardware = Profile::find("h100").unwrap().hardware();
    for report in [judge(&[folder.path()], "h100"), diagnose(&base(), &hardware, &reserved)] {
        assert_eq!((report.verdict, report.exit_code), (Verdict::HardwareInsufficient, 13));
        assert_eq!(report.reason, "adapters are asked for, which kernels for GPUs do not compute yet");
        assert_eq!(report.remedies, [Remedy::SomeProcessor]);
    }
    // The processor of a machine that has a GPU is chosen where nothing else was asked for.
    let mut here = hardware;
    here.profile = None;
    here.build.push("cuda");
    let auto = Policy { lora: vec![folder.path().into()], ..Policy::default() };
    let chosen = diagnose(&base(), &here, &auto);
    assert!(
        chosen.device == "cpu" && chosen.device_reason.contains("adapters are asked for"),
        "{}",
        chosen.device_reason
    );
    let asked = diagnose(&base(), &here, &Policy { device: DeviceChoice::Cuda(0), ..auto });
    assert_eq!(asked.exit_code, 13);
}

#[test]
fn reserved_adapters_are_in_the_plan() {
    let hardware = Profile::find("cpu-8gb").unwrap().hardware();
    let plan = |adapters, context| {
        let policy = Policy { adapters, context, threads: Some(2), ..Policy::default() };
        diagnose_with(family::REGISTRY, &base(), &hardware, &policy)
    };
    let reserved = |count, rank| Some(ReservedAdapters { count, rank });
    let without = plan(None, Some(512)).report.plan.unwrap();
    let with = plan(reserved(3, 16), Some(512));
    let (spec, with) = (with.ready.unwrap().spec, with.report.plan.unwrap());
    let each = adapter_bytes(&spec, 16) + adapter_rows_bytes(&spec, 512, 2, 16);
    assert_eq!(with.adapters, 3 * each + adapter_step_bytes(&spec, 512, 2));
    assert_eq!((without.adapters, with.total), (0, without.total + with.adapters));
    assert_eq!(adapter_bytes(&spec, 32), 2 * adapter_bytes(&spec, 16));
    let report = plan(reserved(3, 16), Some(512)).report;
    assert!(report.to_string().contains("adapters "), "{report}");
    let json: Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["plan"]["adapters"], with.adapters);
    // What does not fit is refused, and said to be the adapters.
    let report = plan(reserved(100_000, 4096), None).report;
    assert_eq!(report.verdict, Verdict::DoesNotFit, "{}", report.first_line());
    let memory = report.check("memory").unwrap();
    assert!(memory.evidence.contains("adapters "), "{}", memory.evidence);
    let endless = plan(reserved(usize::MAX, usize::MAX), None).report;
    assert_eq!(endless.verdict, Verdict::DoesNotFit);
}
