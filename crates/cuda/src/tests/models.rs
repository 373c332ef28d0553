//! Whole models on a GPU: every family and every dtype that has kernels, within the bounds that hold for the
//! processor.

use super::super::driver::Gpu;
use super::super::{CudaDevice, dtypes};
use super::{archives, gpu};
use model_factory::DeviceChoice;
use model_factory::Model;
use model_factory::Session;
use model_factory::UnifiedModelFactory;
use model_factory_diagnostics::hardware::profiles::Profile;
use model_factory_diagnostics::{Hardware, Policy, Ready, assess, diagnose_with};
use model_factory_dtypes::DType;
use model_factory_engine::decoder::{Compute, Decoder};
use model_factory_engine::weights::Weights;
use model_factory_spec::family::REGISTRY;
use model_factory_spec::plan::{GpuBuffers, KvDtype, gpu_weight_bytes};
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A capability with tensor cores for every dtype, and one without any.
const NEW: (u32, u32) = (9, 0);
const OLD: (u32, u32) = (6, 1);

const CONTEXT: usize = 512;

/// The longest case that is emulated.
const LONGEST: usize = 304;

pub(super) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn folders(of: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixtures().join(of)).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.join("expected.json").exists()).collect();
    folders.sort();
    folders
}

/// Every model of `fixtures/models` and of the archives.
fn models() -> Vec<PathBuf> {
    let mut models = folders("models");
    models.extend(archives::names().map(|name| archives::unpacked(&name)));
    models.sort();
    models
}

fn on_processor(path: &Path) -> Model {
    with_cache(path, KvDtype::F32)
}

fn with_cache(path: &Path, kv: KvDtype) -> Model {
    with_context(path, kv, CONTEXT)
}

pub(super) fn with_context(path: &Path, kv: KvDtype, context: usize) -> Model {
    // Where there is a GPU, it would be the first choice.
    let builder = UnifiedModelFactory::builder().device(DeviceChoice::Cpu).threads(1);
    builder.context_length(context).kv_cache(kv).load(path).unwrap()
}

/// The model on an emulated GPU; `None` where nothing can be emulated. What the GPU holds is compared with the file.
fn on_gpu(model: &Model, path: &Path, capability: (u32, u32), kv: KvDtype) -> Option<Model> {
    let gpu = gpu(capability)?;
    Some(on(gpu, model, path, kv))
}

/// The model on this GPU, for the context that the model was loaded with.
pub(super) fn on(gpu: Arc<Gpu>, model: &Model, path: &Path, kv: KvDtype) -> Model {
    let diagnosis = diagnose_with(REGISTRY, path, &Hardware::detect(), &Policy::default());
    let Ready { header, spec, mut plan, .. } = diagnosis.ready.unwrap();
    (plan.kv_dtype, plan.cache_budget) = (kv, u64::MAX);
    let weights = Weights::map(&header.source).unwrap();
    let context = model.context_length();
    let device = || CudaDevice::new(gpu, &spec, &weights, kv, context, &|_, _| Ok(()));
    let decoder = Decoder::new(&spec, &weights, &plan, true, device).unwrap();
    assert_eq!(decoder.device().first_difference(&spec, &weights).unwrap(), None);
    let planned = gpu_weight_bytes(&spec, u64::MAX) + GpuBuffers::new(&spec, context).bytes();
    assert_eq!(decoder.device().bytes() as u64, planned);
    model.with_compute(Box::new(decoder))
}

/// Whether there are kernels for the dtypes of the model and, according to a diagnosis, for its block.
fn runs(model: &Model) -> bool {
    let known: Vec<DType> = dtypes().collect();
    let on_a_gpu = Profile::find("h100").unwrap().hardware();
    let report = assess(model.spec(), &model.report().input, &on_a_gpu, &Policy::default());
    model.spec().dtypes().keys().all(|dtype| known.contains(dtype)) && report.verdict.runs()
}

fn logits(model: &Model, tokens: &[u32]) -> Vec<f32> {
    model.logits(tokens).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn expected(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap()
}

fn floats(file: &[u8], name: &str) -> Vec<f32> {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let data = tensors.tensor(name).unwrap().data().to_vec();
    data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// `||a - truth|| / ||truth||`.
fn distance(a: &[f32], truth: &[f32]) -> f64 {
    assert_eq!(a.len(), truth.len());
    let square = |x: f64| x * x;
    let difference: f64 = a.iter().zip(truth).map(|(a, t)| square(f64::from(*a) - f64::from(*t))).sum();
    (difference / truth.iter().map(|t| square(f64::from(*t))).sum::<f64>()).sqrt()
}

/// The bounds of `tests/accuracy/accuracy.rs`, with its reasons. With many tokens F16 and BF16 activations are rounded
/// before they are multiplied, as transformers rounds them.
fn bound(file: &Value, case: &str) -> f64 {
    let reference = file["reference_error"][case].as_f64().unwrap();
    let transformers = file["transformers_error"][case].as_f64().unwrap_or(reference);
    match file["dtype"].as_str().unwrap() {
        "F32" => 2.0 * transformers,
        "BF16" | "F16" => transformers,
        _ => 1.1 * reference,
    }
}

#[test]
fn every_fixture_is_as_near_to_the_truth_as_on_the_processor() {
    let (mut compared, mut dtypes_seen, mut failures) = (0, BTreeSet::new(), Vec::new());
    println!("{:<40} {:<14} {:>10} {:>10} {:>10}", "file", "case", "error", "processor", "bound");
    for folder in models() {
        let (expected, truths) = (expected(&folder), std::fs::read(folder.join("expected.safetensors")).unwrap());
        for (name, file) in expected["files"].as_object().unwrap() {
            let path = folder.join(name);
            let processor = on_processor(&path);
            if !runs(&processor) {
                continue;
            }
            let Some(gpu) = on_gpu(&processor, &path, NEW, KvDtype::F32) else { return };
            dtypes_seen.extend(processor.spec().dtypes().into_keys());
            for case in file["reference_error"].as_object().unwrap().keys() {
                let tokens = ids(&expected["cases"][case]["tokens"]);
                if tokens.len() > LONGEST {
                    continue;
                }
                let kept = expected["cases"][case]["first_kept"].as_u64().unwrap() as usize * gpu.spec().vocab;
                let truth = floats(&truths, &format!("{}/{case}", file["truth"].as_str().unwrap()));
                let error = |model| distance(&logits(model, &tokens)[kept..], &truth);
                let (error, on_processor, bound) = (error(&gpu), error(&processor), bound(file, case));
                let label = format!("{}/{name}", archives::without_sum(folder.file_name().unwrap().to_str().unwrap()));
                println!("{label:<40} {case:<14} {error:>10.2e} {on_processor:>10.2e} {bound:>10.2e}");
                if error.is_nan() || error > bound {
                    failures.push(format!("{label} {case}: {error:.3e} is more than {bound:.3e}"));
                }
                compared += 1;
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(compared >= 80, "only {compared} comparisons");
    let missing: Vec<DType> = dtypes().filter(|dtype| *dtype != DType::I8 && !dtypes_seen.contains(dtype)).collect();
    assert_eq!(missing, [], "no fixture has these");
}

/// The bound of `tests/accuracy/int8.rs`, with its reason.
#[test]
fn int8_fixtures_are_as_near_to_the_truth_as_the_integers_allow() {
    let mut compared = 0;
    for folder in folders("int8") {
        let (expected, truths) = (expected(&folder), std::fs::read(folder.join("expected.safetensors")).unwrap());
        let (tokens, truth) = (ids(&expected["tokens"]), floats(&truths, "truth"));
        let stride = expected["stride"].as_u64().unwrap() as usize;
        let processor = on_processor(&folder);
        for capability in [NEW, OLD] {
            let Some(gpu) = on_gpu(&processor, &folder, capability, KvDtype::F32) else { return };
            let rows = gpu.logits(&tokens).unwrap().to_vec2::<f32>().unwrap();
            let computed: Vec<f32> = rows.iter().flat_map(|row| row.iter().step_by(stride).copied()).collect();
            let (error, integers) = (distance(&computed, &truth), expected["integer_error"].as_f64().unwrap());
            println!("{:<60} {capability:?} {error:.4} {integers:.4}", folder.display());
            assert!(error <= 1.03 * integers, "{}: {error} is more than 1.03 * {integers}", folder.display());
            compared += 1;
        }
    }
    assert!(compared >= 26, "only {compared} comparisons");
}

/// Numbers that the processor sums in another order: a difference in a last bit moves an activation to the
/// neighboring integer, BF16 or F16 now and then, so models of those may be as far apart as either is from the truth.
fn assert_near(label: &str, gpu: &[f32], processor: &[f32], bound: f64) {
    let found = distance(gpu, processor);
    println!("{label}: {found:.2e} apart, bound {bound:.2e}");
    assert!(found <= bound, "{label}: {found:.3e} apart, expected at most {bound:.3e}");
}

/// A file for each kind of kernel, and how far apart its results may be.
fn kinds() -> Vec<(PathBuf, f64)> {
    let names = ["llama-3.2/f32", "llama-3.2/bf16", "tinyllama/f16", "tinyllama/q8_0.gguf", "llama-256/q4_k_m.gguf"];
    let kinds = names.map(|name| {
        let (folder, file) = name.split_once('/').unwrap();
        let folder = fixtures().join("models").join(folder);
        let bound = bound(&expected(&folder)["files"][file], "short");
        (folder.join(file), bound)
    });
    kinds.into()
}

#[test]
fn gpus_without_tensor_cores_compute_many_tokens_too() {
    for (path, bound) in kinds() {
        let processor = on_processor(&path);
        let Some(gpu) = on_gpu(&processor, &path, OLD, KvDtype::F32) else { return };
        let tokens: Vec<u32> = (0..21).map(|i| (i * 37 + 5) % processor.spec().vocab as u32).collect();
        assert_near(&path.display().to_string(), &logits(&gpu, &tokens), &logits(&processor, &tokens), bound);
    }
}

/// A prompt, single tokens at a depth where attention is divided into parts, a batch, and a sequence that is
/// truncated.
#[test]
fn sessions_go_on_as_on_the_processor() {
    for (path, bound) in kinds() {
        for kv in [KvDtype::F32, KvDtype::F16] {
            let processor = with_cache(&path, kv);
            let Some(gpu) = on_gpu(&processor, &path, NEW, kv) else { return };
            let models = [&gpu, &processor];
            let vocab = processor.spec().vocab as u32;
            let prompt: Vec<u32> = (0..290).map(|i| (i * 37 + 5) % vocab).collect();
            let mut last = models.map(|model| {
                let mut session = model.session();
                let mut all = session.forward(&prompt).unwrap().to_vec1::<f32>().unwrap();
                for id in [3, 7, 11] {
                    all.extend(session.forward(&[id % vocab]).unwrap().to_vec1::<f32>().unwrap());
                }
                assert_eq!(session.len(), 293);
                session.truncate(250);
                let mut other = model.session();
                other.forward(&prompt[..5]).unwrap();
                let steps = &mut [(&mut session, &prompt[..20]), (&mut other, &prompt[9..10])];
                all.extend(Session::batch(steps).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap());
                all
            });
            let pages = gpu.session();
            assert_eq!(pages.cache_bytes(), 0);
            let [gpu, processor] = &mut last;
            // Keys and values that differ in a last bit are now and then rounded to neighboring F16, 2^-11 apart.
            let bound = if kv == KvDtype::F16 { bound.max(1e-3) } else { bound };
            assert_near(&format!("{} {kv}", path.display()), gpu, processor, bound);
        }
    }
}

/// A sequence that outgrows the original context is rotated in another way, and computed again.
#[test]
fn a_longrope_model_turns_where_the_processor_does() {
    let path = archives::path("phi-3.5/f32");
    let processor = on_processor(&path);
    let Some(gpu) = on_gpu(&processor, &path, NEW, KvDtype::F32) else { return };
    let decoder = processor.decoder().unwrap();
    let limit = (1..CONTEXT).find(|length| decoder.rotation(*length) != decoder.rotation(1));
    let limit = limit.expect("a model that turns");
    let vocab = processor.spec().vocab as u32;
    let prompt: Vec<u32> = (0..limit as u32 - 1).map(|i| (i * 37 + 5) % vocab).collect();
    let [a, b] = [&gpu, &processor].map(|model| {
        let mut session = model.session();
        let mut all = session.forward(&prompt).unwrap().to_vec1::<f32>().unwrap();
        all.extend(session.forward(&[1]).unwrap().to_vec1::<f32>().unwrap());
        all
    });
    assert_near("phi-3.5", &a, &b, 4.0 * 9.7e-7);
}
