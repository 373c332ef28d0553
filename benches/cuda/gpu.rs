//! What a GPU is, what its driver takes, and what single products do on it.

use crate::model::{FEED_FORWARD, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, VOCAB};
use model_factory::cuda::dtypes;
use model_factory::diagnostics::DType;
use model_factory::diagnostics::Hardware;
use model_factory::{DeviceChoice, GenerateOptions, Model, UnifiedModelFactory};
use serde_json::json;
use std::time::Instant;

/// Benches run in the package's root.
const SMALL: &str = "fixtures/demo";

fn load() -> Model {
    let builder = UnifiedModelFactory::builder().device(DeviceChoice::Cuda(0)).context_length(512);
    builder.load(SMALL).unwrap_or_else(|error| panic!("{SMALL}: {error}"))
}

/// Bytes that are taken on the first GPU, by NVML, which needs no context there.
fn in_use() -> Option<u64> {
    let hardware = Hardware::detect();
    let gpu = hardware.gpus.first()?;
    Some(gpu.memory_total? - gpu.memory_free?)
}

fn seconds<T>(of: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let made = of();
    (start.elapsed().as_secs_f64(), made)
}

/// One JSON object: the GPU, and what lies on it next to the model.
pub(crate) fn facts() {
    let before = in_use();
    let (first, model) = seconds(load);
    let of_model = model.cuda().expect("a model on a GPU").bytes() as u64;
    let beside = |counted: u64| Some(in_use()?.saturating_sub(before?).saturating_sub(counted));
    let loaded = beside(of_model);
    let options = GenerateOptions::default().max_tokens(16).temperature(0.0);
    let pieces = model.generate("Once upon a time", &options).expect("a generation");
    let text: String = pieces.map(|piece| piece.expect("a piece").text).collect();
    // The generation and its cache are gone.
    let generated = beside(of_model);
    let (second, other) = seconds(load);
    drop(other);
    let decoder = model.cuda().expect("a model on a GPU");
    let (total_compile, rates) = seconds(|| {
        let rate = |dtype| decoder.matrix_rate(dtype).expect("a measurement").map(|rate| rate / 1e12);
        dtypes().map(|dtype| (dtype.name().to_owned(), json!(seconds(|| rate(dtype))))).collect()
    });
    let rates: serde_json::Map<String, serde_json::Value> = rates;
    let copies: Vec<f64> = (0..3).map(|_| decoder.copy_rate().expect("a copy") / 1e9).collect();
    let facts = json!({
        "gpu": Hardware::detect().gpus.first(),
        "text": text,
        "load_s": first,
        "load_again_s": second,
        "beside_model_when_loaded": loaded,
        "beside_model_after_generation": generated,
        "beside_model_with_all_kernels": beside(of_model),
        "planned_beside_model": model.report().plan.as_ref().map(|plan| plan.device_context),
        "model_on_gpu": of_model,
        "copy_gb_s": copies,
        "seconds_and_tera_ops": rates,
        "all_dtypes_s": total_compile,
    });
    println!("{facts}");
}

/// One JSON object a product: those of Llama 3.1 8B's geometry, for one token and for a prompt.
pub(crate) fn products() {
    let model = load();
    let decoder = model.cuda().expect("a model on a GPU");
    let qkv = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
    let shapes = [[qkv, HIDDEN], [HIDDEN, HIDDEN], [2 * FEED_FORWARD, HIDDEN], [HIDDEN, FEED_FORWARD]];
    let copy = decoder.copy_rate().expect("a copy");
    for dtype in [DType::BF16, DType::I8, DType::Q8_0, DType::Q4_K, DType::Q6_K, DType::F16, DType::Q4_0] {
        let head = (dtype != DType::I8).then_some([VOCAB, HIDDEN]);
        for tokens in [1, 8, 512] {
            for shape @ [outputs, inputs] in shapes.into_iter().chain(head.filter(|_| tokens == 1)) {
                let taken = decoder.product_seconds(dtype, shape, tokens).expect("a product");
                let alone = taken.product - taken.prepare;
                let bytes = dtype.bytes_of((outputs * inputs) as u64).expect("whole blocks") as f64;
                let object = json!({
                    "dtype": dtype.name(),
                    "outputs": outputs,
                    "inputs": inputs,
                    "tokens": tokens,
                    "prepare_us": taken.prepare * 1e6,
                    "product_us": alone * 1e6,
                    "share_of_copy": bytes / alone / copy,
                    "tera_ops": 2e-12 * (outputs * inputs * tokens) as f64 / alone,
                });
                println!("{object}");
            }
        }
    }
}
