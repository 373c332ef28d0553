//! Packed integers of compressed-tensors, whose activations keep 16 bits, and floats of 8 bits, whose activations are F32, against
//! float64 of the weights as they are stored.

#![allow(clippy::expect_used, clippy::print_stdout)]

use super::int8::copy_with;
use crate::common::{self, fixtures};
use model_factory::UnifiedModelFactory;
use model_factory::kernels::Isa;
use safetensors::SafeTensors;
use serde::Deserialize;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Expected {
    tokens: Vec<u32>,
    stride: usize,
    #[serde(alias = "compressed_tensors_error", alias = "transformers_error", alias = "mlx_error")]
    theirs: f64,
}

/// At least `least` checkpoints in this folder of fixtures, sorted by name.
fn checkpoints(folder: &str, least: usize) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(fixtures().join(folder)).expect("a folder of fixtures");
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.expect("an entry").path()).collect();
    folders.sort();
    assert!(folders.len() >= least, "only {} checkpoints", folders.len());
    folders
}

fn error(folder: &Path, level: Isa) -> (f64, Expected) {
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let expected: Expected = serde_json::from_slice(&read("expected.json")).expect("expected.json is valid");
    let file = read("expected.safetensors");
    let tensors = SafeTensors::deserialize(&file).expect("valid");
    let truth = tensors.tensor("truth").expect("the truth");
    let truth = truth.data().as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
    let model = common::builder().isa(level).load(folder).expect("it loads");
    assert_eq!(model.report().casts, 0);
    let logits = model.all_logits(&expected.tokens).expect("logits");
    let kept = logits.rows().flat_map(|row| row.iter().step_by(expected.stride));
    let squares = kept.zip(truth).map(|(x, truth)| ((f64::from(*x) - truth).powi(2), truth.powi(2)));
    let (distance, size) = squares.fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    ((distance / size).sqrt(), expected)
}

/// Holds the best level without the BF16 instruction to `bound`: with it a head in BF16 adds the rounding of its activations.
fn assert_near(folder: &str, least: usize, bound: f64) {
    let level = Isa::available().into_iter().rev().find(|isa| !isa.name().contains("bf16")).expect("a level");
    for folder in checkpoints(folder, least) {
        let (error, expected) = error(&folder, level);
        println!("{}: {error:.2e}, theirs {:.2e}", folder.display(), expected.theirs);
        assert!(error < bound, "{}: {error:e}", folder.display());
    }
}

/// The worst was 1.1e-4. That level's bits are everyone's in packed products.
#[test]
fn weights_are_exact_and_activations_keep_sixteen_bits() {
    assert_near("packed", 9, 3e-4);
}

/// The worst was 1.1e-4, as of other packed integers.
#[test]
fn fields_of_mlx_are_exact_and_activations_keep_sixteen_bits() {
    assert_near("mlx", 5, 3e-4);
}

/// The bound of plain F32.
#[test]
fn floats_of_eight_bits_are_exact() {
    assert_near("fp8", 4, 5e-6);
}

/// Like those of int8, scales that are infinite or no number are refused when the model is loaded; others are numbers.
#[test]
fn scales_of_floats_are_finite() {
    for (folder, name) in [
        ("fp8/llama-block", "model.layers.1.mlp.up_proj.weight_scale_inv"),
        ("mlx/llama-4-64", "model.layers.1.mlp.up_proj.scales"),
        ("mlx/llama-4-64", "model.embed_tokens.biases"),
        ("mlx/qwen3-moe-4-64", "model.layers.0.mlp.switch_mlp.down_proj.biases"),
    ] {
        let folder = fixtures().join(folder);
        let file = std::fs::read(folder.join("model.safetensors")).expect("the model");
        let tensors = SafeTensors::deserialize(&file).expect("valid");
        let at = tensors.tensor(name).expect("the scales").data().as_ptr().addr() - file.as_ptr().addr();
        // NaN, both infinities, 0 and -1 in BF16.
        for (bits, sound) in [(0x7fc0_u16, false), (0x7f80, false), (0xff80, false), (0, true), (0xbf80, true)] {
            let mut damaged = file.clone();
            damaged[at..at + 2].copy_from_slice(&bits.to_le_bytes());
            match UnifiedModelFactory::load(copy_with(&folder, &damaged).path()) {
                Ok(_) => assert!(sound, "{name}: {bits:x} was loaded"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(!sound && error.code() == 15, "{bits:x}: {said}");
                    assert!(said.contains(name) && said.contains("expected a finite number"), "{said}");
                }
            }
        }
    }
}
