//! This library and candle's own Llama on the same file, run in turns in one process: tokens a second and their ratio.
//!
//! `MODELS=path,path cargo run --release` in this folder (`P`, `N`, `R`: prompt tokens, generated tokens, repetitions). candle's
//! release code is the same build's, so both have the same compiler and flags; `RUSTFLAGS="-C target-cpu=native"` gives
//! candle its vector code, which it chooses when it is compiled. A table goes to standard error, one JSON object to
//! standard output.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::expect_used, clippy::unwrap_used)] // a measurement that cannot go on says why

use candle_core::quantized::gguf_file;
use candle_core::{DType, Device, IndexOp, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{llama, quantized_llama};
use model_factory::{Model, UnifiedModelFactory};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

fn main() {
    let Ok(paths) = std::env::var("MODELS") else {
        println!("skipped: set MODELS to GGUF files or folders with model.safetensors, separated by commas");
        return;
    };
    let number =
        |name: &str, default: usize| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (prompt, generated, repetitions) = (number("P", 256), number("N", 64), number("R", 5));

    eprintln!(
        "{:<24} {:>8} {:>7} {:>6} {:>8} {:>7} {:>6}",
        "model", "prefill", "candle", "ratio", "decode", "candle", "ratio"
    );
    let mut rows = Vec::new();
    for path in paths.split(',').map(Path::new) {
        let ours = UnifiedModelFactory::load(path).expect("the model loads here");
        let mut candle = Candle::load(path);
        ours_run(&ours, 8, 2);
        candle.run(8, 2);
        let (mut prefill, mut decode) = (Vec::new(), Vec::new());
        for _ in 0..repetitions {
            let (our_prefill, our_decode) = ours_run(&ours, prompt, generated);
            let (their_prefill, their_decode) = candle.run(prompt, generated);
            prefill.push((our_prefill, their_prefill));
            decode.push((our_decode, their_decode));
        }
        let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into());
        let [prefill, decode] = [prefill, decode].map(Comparison::of);
        eprintln!("{name:<24} {prefill} {decode}");
        rows.push(json!({ "model": name, "prefill": prefill.json(), "decode": decode.json() }));
    }
    println!(
        "{:#}",
        json!({ "prompt_tokens": prompt, "generated_tokens": generated, "rounds": repetitions, "rows": rows })
    );
}

/// Medians of tokens a second; the ratio's is over the rounds.
struct Comparison {
    ours: f64,
    theirs: f64,
    ratio: f64,
}

impl Comparison {
    fn of(rounds: Vec<(f64, f64)>) -> Comparison {
        Comparison {
            ours: median(rounds.iter().map(|round| round.0)),
            theirs: median(rounds.iter().map(|round| round.1)),
            ratio: median(rounds.iter().map(|(ours, theirs)| ours / theirs)),
        }
    }

    fn json(&self) -> Value {
        json!({ "tok_s": self.ours, "candle_tok_s": self.theirs, "ratio": self.ratio })
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>8.1} {:>7.1} {:>6.2}", self.ours, self.theirs, self.ratio)
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let last = figures.len() - 1;
    (figures[last / 2] + figures[last.div_ceil(2)]) / 2.0
}

fn ids(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * 7919 + 13) % 32000).collect()
}

/// Tokens a second of a prompt and of single tokens after it.
fn timed(prompt: usize, generated: usize, mut forward: impl FnMut(&[u32], usize)) -> (f64, f64) {
    let tokens = ids(prompt);
    let start = Instant::now();
    forward(&tokens, 0);
    let prefill = prompt as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    (0..generated).for_each(|i| forward(&tokens[i % prompt..=i % prompt], prompt + i));
    (prefill, generated as f64 / start.elapsed().as_secs_f64())
}

fn ours_run(model: &Model, prompt: usize, generated: usize) -> (f64, f64) {
    let mut session = model.session();
    timed(prompt, generated, |tokens, _| drop(session.forward(tokens).expect("tokens compute")))
}

/// candle's model of the file's format.
enum Candle {
    Gguf(Box<quantized_llama::ModelWeights>),
    Safetensors(Box<(llama::Llama, llama::Config)>),
}

impl Candle {
    fn load(path: &Path) -> Candle {
        let device = Device::Cpu;
        if path.is_file() {
            let mut file = std::fs::File::open(path).expect("the file opens");
            let content = gguf_file::Content::read(&mut file).expect("candle reads the header");
            let model = quantized_llama::ModelWeights::from_gguf(content, &mut file, &device);
            return Candle::Gguf(Box::new(model.expect("candle loads the weights")));
        }
        let config = std::fs::read(path.join("config.json")).expect("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
        let stored = match config["dtype"].as_str().or(config["torch_dtype"].as_str()) {
            Some("bfloat16") => DType::BF16,
            Some("float16") => DType::F16,
            _ => DType::F32,
        };
        if config["rope_theta"].is_null() {
            config["rope_theta"] = config["rope_parameters"]["rope_theta"].clone();
        }
        let config: llama::LlamaConfig = serde_json::from_value(config).expect("a Llama config");
        let config = config.into_config(false);
        let weights = std::fs::read(path.join("model.safetensors")).expect("model.safetensors");
        let weights = VarBuilder::from_buffered_safetensors(weights, stored, &device).expect("valid weights");
        let model = llama::Llama::load(weights, &config).expect("candle loads the weights");
        Candle::Safetensors(Box::new((model, config)))
    }

    fn run(&mut self, prompt: usize, generated: usize) -> (f64, f64) {
        let input = |tokens: &[u32]| Tensor::new(tokens, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        match self {
            Candle::Gguf(model) => {
                model.clear_kv_cache();
                timed(prompt, generated, |tokens, at| {
                    model.forward(&input(tokens), at).expect("candle computes").i(0).unwrap();
                })
            }
            Candle::Safetensors(model) => {
                let (model, config) = &**model;
                let dtype = model.embed(&input(&[1])).unwrap().dtype();
                let mut cache = llama::Cache::new(true, dtype, config, &Device::Cpu).expect("a cache");
                timed(prompt, generated, |tokens, at| {
                    model.forward(&input(tokens), at, &mut cache).expect("candle computes");
                })
            }
        }
    }
}
