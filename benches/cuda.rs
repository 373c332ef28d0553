//! What a GPU does with models of 8 billion weights: shares of its copy bandwidth and of its matrix rate, and memory next to
//! what was counted. `docs/cuda.md` says how to run it and what was measured.
//!
//!     cargo bench --features cuda --bench cuda -- [FOLDER] [DTYPE ...] [layers=N]
//!     cargo bench --features cuda --bench cuda -- facts
//!     cargo bench --features cuda --bench cuda -- products
//!
//! Writes each model into FOLDER (a temporary one when absent), one after the other, and removes it again: Llama 3.1 8B's
//! geometry, with made-up weights in sane ranges. Prints one JSON object a dtype. Fewer layers are for trying it out. `facts` prints what the
//! GPU is and what its driver takes, `products` the time of single products of that geometry.
#![allow(clippy::expect_used, clippy::print_stdout)] // a measurement that cannot go on says why

#[cfg(feature = "cuda")]
#[path = "cuda/gpu.rs"]
mod gpu;

#[cfg(feature = "cuda")]
#[path = "cuda/model.rs"]
mod model;

#[cfg(feature = "cuda")]
fn main() {
    match std::env::args().skip(1).find(|argument| !argument.starts_with('-')).as_deref() {
        Some("facts") => gpu::facts(),
        Some("products") => gpu::products(),
        _ => measure::run(),
    }
}

#[cfg(not(feature = "cuda"))]
fn main() {
    println!("skipped: this measures the feature cuda");
}

#[cfg(feature = "cuda")]
mod measure {
    use super::model::{self, Stored};
    use model_factory::diagnostics::plan::{GpuBuffers, gpu_weight_bytes, kv_bytes};
    use model_factory::diagnostics::source;
    use model_factory::weights::Weights;
    use model_factory::{DeviceChoice, KvDtype, Model, UnifiedModelFactory};
    use serde_json::json;
    use std::path::{Path, PathBuf};
    use std::time::Instant;

    const PROMPT: usize = 512;
    const STEPS: usize = 128;
    const REPETITIONS: usize = 5;
    /// Sequences are this long when memory is measured.
    const CONTEXT: usize = 4096;

    pub(super) fn run() {
        let (layers, arguments): (Vec<String>, Vec<String>) = std::env::args()
            .skip(1)
            .filter(|argument| !argument.starts_with('-'))
            .partition(|argument| argument.starts_with("layers="));
        let layers = layers.first().and_then(|text| text.strip_prefix("layers=")?.parse().ok()).unwrap_or(32);
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let folder = arguments.first().map_or_else(|| temporary.path().to_path_buf(), PathBuf::from);
        let wanted = arguments.get(1..).unwrap_or_default();
        for stored in Stored::ALL {
            if wanted.is_empty() || wanted.iter().any(|name| name.eq_ignore_ascii_case(stored.name)) {
                let path = model::write(&folder, stored, layers).expect("room for the model");
                measure(&path, stored);
                let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
                removed.expect("the model can be removed");
            }
        }
    }

    fn measure(path: &Path, stored: &Stored) {
        // The models have no tokenizer: ids go in and logits come out. Benches run in the package's root.
        let builder = UnifiedModelFactory::builder().device(DeviceChoice::Cuda(0)).context_length(CONTEXT);
        let builder = builder.tokenizer("fixtures/demo/tokenizer.json");
        let model = match builder.load(path) {
            Ok(model) => model,
            Err(error) => {
                let on_processor = builder.device(DeviceChoice::Cpu).diagnose(path).first_line().to_string();
                let refused = json!({ "dtype": stored.name, "error": error.to_string(), "on_processor": on_processor });
                return println!("{refused}");
            }
        };
        let spec = model.spec();
        let decoder = model.cuda().expect("a model on a GPU");
        let copy = decoder.copy_rate().expect("a copy");
        let rate = decoder.matrix_rate(stored.dtype).expect("a measurement");
        let (linear, read) = model::linear_weights(spec);

        let free = || decoder.memory().expect("the driver answers").0;
        let before = free();
        let mut session = model.session();
        session.forward(&tokens(CONTEXT)).expect("a context of tokens");
        let of_cache = before.saturating_sub(free());
        drop(session);

        let weights = Weights::map(&source::probe(path).expect("the model")).expect("its files");
        let difference = decoder.first_difference(spec, &weights).expect("bytes from the GPU");
        let bytes_are_the_files = difference.is_none();
        drop(weights);

        let prompt_speed = median(|| prefill(&model));
        let speed = median(|| decode(&model, 0));
        let deep_speed = median(|| decode(&model, CONTEXT - STEPS));
        let object = json!({
            "dtype": stored.name,
            "bytes_are_the_files": bytes_are_the_files,
            "gpu": model.report().hardware.gpus.first(),
            "copy_gb_s": copy / 1e9,
            "matrix_tera_ops": rate.map(|rate| rate / 1e12),
            "load_s": model.load_time().as_secs_f64(),
            "decode_tok_s": speed,
            "decode_share_of_copy": speed * read as f64 / copy,
            "decode_at_depth_tok_s": deep_speed,
            "prefill_tok_s": prompt_speed,
            "prefill_share_of_matrix_rate": rate.map(|rate| prompt_speed * 2.0 * linear as f64 / rate),
            "weights_counted": gpu_weight_bytes(spec, u64::MAX),
            "activations_counted": GpuBuffers::new(spec, CONTEXT).bytes(),
            "model_on_gpu": decoder.bytes(),
            "cache_counted": kv_bytes(spec, CONTEXT, KvDtype::F32),
            "cache_on_gpu": of_cache,
            "gpu_in_use": decoder.memory().map(|(free, total)| total - free).ok(),
            "planned": model.report().plan.as_ref().map(|plan| plan.total),
        });
        println!("{object}");
    }

    fn tokens(count: usize) -> Vec<u32> {
        (0..count as u32).map(|i| i * 7919 % 100_000).collect()
    }

    /// Tokens a second into an empty cache.
    fn prefill(model: &Model) -> f64 {
        let tokens = tokens(PROMPT);
        let start = Instant::now();
        model.session().forward(&tokens).expect("a prompt");
        PROMPT as f64 / start.elapsed().as_secs_f64()
    }

    /// Tokens a second, one after the other after `depth` others, each after the logits of the one before are there.
    fn decode(model: &Model, depth: usize) -> f64 {
        let mut session = model.session();
        if depth > 0 {
            session.forward(&tokens(depth)).expect("a prompt");
        }
        let start = Instant::now();
        for token in tokens(STEPS) {
            session.forward(&[token]).expect("a token");
        }
        STEPS as f64 / start.elapsed().as_secs_f64()
    }

    fn median(measure: impl Fn() -> f64) -> f64 {
        measure();
        let mut figures: Vec<f64> = (0..REPETITIONS).map(|_| measure()).collect();
        figures.sort_by(f64::total_cmp);
        figures[REPETITIONS / 2]
    }
}
