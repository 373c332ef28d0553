//! This library and candle's own Llama on the same file, run in turns in one process: tokens a second and their ratio.
//!
//! `MODEL=path cargo bench --bench candle` (`P`, `N`, `R`: prompt tokens, generated tokens, repetitions). candle's
//! release code is the same build's, so both have the same compiler and flags; `RUSTFLAGS="-C target-cpu=native"` gives
//! candle its vector code, which it chooses when it is compiled.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::unwrap_used)] // a measurement that cannot go on says why

use candle_core::quantized::gguf_file;
use candle_core::{DType, Device, IndexOp, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{llama, quantized_llama};
use model_factory::{Model, UnifiedModelFactory};
use std::path::Path;
use std::time::Instant;

fn main() {
    // `cargo test --benches` and `cargo bench` without a model have nothing to measure.
    let Ok(path) = std::env::var("MODEL") else {
        println!("skipped: set MODEL to a GGUF file or a folder with model.safetensors");
        return;
    };
    let number =
        |name: &str, default: usize| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (prompt, generated, repetitions) = (number("P", 256), number("N", 64), number("R", 5));

    let ours = UnifiedModelFactory::load(&path).expect("the model loads here");
    let mut candle = Candle::load(Path::new(&path));
    ours_run(&ours, 8, 2);
    candle.run(8, 2);
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let (our_prefill, our_decode) = ours_run(&ours, prompt, generated);
        let (their_prefill, their_decode) = candle.run(prompt, generated);
        prefill.push((our_prefill, their_prefill));
        decode.push((our_decode, their_decode));
    }
    println!("{path}: {prompt} prompt and {generated} generated tokens, {repetitions} interleaved repetitions");
    println!("                ours   candle    ratio  (medians; the ratio's is over pairs)");
    for (name, mut pairs) in [("prefill", prefill), ("decode", decode)] {
        let ours = median(pairs.iter().map(|pair| pair.0));
        let theirs = median(pairs.iter().map(|pair| pair.1));
        let ratio = median(pairs.drain(..).map(|(ours, theirs)| ours / theirs));
        println!("{name:<8} {ours:>10.1} {theirs:>8.1} {ratio:>8.2}");
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
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
