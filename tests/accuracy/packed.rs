//! Packed integers of compressed-tensors against float64: weights as they are stored, activations that keep 16 bits.

#![allow(clippy::expect_used, clippy::print_stdout)]

use crate::common::{self, fixtures};
use model_factory::kernels::Isa;
use safetensors::SafeTensors;
use serde::Deserialize;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Expected {
    tokens: Vec<u32>,
    stride: usize,
    compressed_tensors_error: f64,
}

/// Every checkpoint, sorted by name.
fn checkpoints() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(fixtures().join("packed")).expect("fixtures/packed");
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.expect("an entry").path()).collect();
    folders.sort();
    assert!(folders.len() >= 9, "only {} checkpoints", folders.len());
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

/// The worst was 1.1e-4. A head in BF16 by the BF16 instruction adds the rounding of its activations, 1.7e-3 at most, so models are
/// held to the best level without it; that level's bits are everyone's in packed products.
#[test]
fn weights_are_exact_and_activations_keep_sixteen_bits() {
    let level = Isa::available().into_iter().rev().find(|isa| !isa.name().contains("bf16")).expect("a level");
    for folder in checkpoints() {
        let (error, expected) = error(&folder, level);
        println!("{}: {error:.2e}, compressed-tensors {:.2e}", folder.display(), expected.compressed_tensors_error);
        assert!(error < 3e-4, "{}: {error:e}", folder.display());
    }
}
