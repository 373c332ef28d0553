//! The draws of candle's `LogitsProcessor`, as `src/generate/draw/candle.txt` records them: `cargo run --release --bin draws` in
//! this folder fails where candle draws otherwise; with `--record` it writes the file.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // a comparison that cannot go on says why

use candle_core::{Device, Tensor};
use candle_transformers::generation::{LogitsProcessor, Sampling};
use std::path::Path;

#[path = "../../../src/generate/draw/tests/shapes.rs"]
mod shapes;

fn main() {
    let mut text = String::from(
        "# A seed, and what candle's LogitsProcessor draws with it; written by benches/candle/src/draws.rs\n",
    );
    for seed in shapes::SEEDS {
        let mut candle = LogitsProcessor::from_sampling(seed, Sampling::All { temperature: 1.0 });
        text.push_str(&format!("{seed}:"));
        for logits in shapes::shapes().iter().flat_map(|shape| shapes::TEMPERATURES.map(|by| shapes::scaled(shape, by)))
        {
            let logits = Tensor::new(logits, &Device::Cpu).unwrap();
            text.push_str(&format!(" {}", candle.sample(&logits).unwrap()));
        }
        text.push('\n');
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/generate/draw/candle.txt");
    if std::env::args().any(|argument| argument == "--record") {
        std::fs::write(path, text).unwrap();
    } else {
        assert!(std::fs::read_to_string(path).unwrap() == text, "candle draws otherwise than recorded");
        println!("candle draws as recorded");
    }
}
