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
    #[serde(alias = "compressed_tensors_error", alias = "transformers_error")]
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

/// As for packed integers: the worst was 1.1e-4.
#[test]
fn floats_of_four_bits_are_exact_and_activations_keep_sixteen_bits() {
    assert_near("fp4", 4, 3e-4);
}

/// llama.cpp's definition of these products: activations have 8 bits.
#[test]
fn floats_of_four_bits_and_the_narrowest_integers_of_gguf_are_exact() {
    assert_near("fp4-gguf", 3, 3e-2);
}

/// The bound of plain F32.
#[test]
fn floats_of_eight_bits_are_exact() {
    assert_near("fp8", 4, 5e-6);
}

/// Scales that no sound model has are refused when the model is loaded, with the tensor.
#[test]
fn scales_are_numbers() {
    let bf16 = |bits: u16| bits.to_le_bytes().to_vec();
    let f32 = |value: f32| value.to_le_bytes().to_vec();
    let (finite, above, least) = ("a finite number", "a number above 0", "a number, 0 or more");
    let of_floats = ("fp8/llama-block", "model.layers.1.mlp.up_proj.weight_scale_inv", finite);
    let divisor = ("fp4/llama-nvfp4", "model.layers.1.mlp.up_proj.weight_global_scale", above);
    let factor = ("fp4/qwen3moe-modelopt-nvfp4", "model.layers.0.mlp.experts.2.up_proj.weight_scale_2", above);
    let of_halves = ("fp4/llama-nvfp4", "model.layers.1.mlp.up_proj.weight_scale", least);
    let powers = ("fp4/qwen3moe-mxfp4a16", "model.layers.0.mlp.experts.2.up_proj.weight_scale", least);
    let mut cases = Vec::new();
    // NaN, both infinities, 0 and -1.
    for (bits, sound) in [(0x7fc0, false), (0x7f80, false), (0xff80, false), (0, true), (0xbf80, true)] {
        cases.push((of_floats, bf16(bits), sound));
    }
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -1.0, 1e-45, f32::MAX] {
        cases.extend([(divisor, f32(value), false), (factor, f32(value), false)]);
    }
    // NaN, the same with a sign, -1, 0 and the largest; exponents from the least on.
    for (byte, sound) in [(0x7f, false), (0xff, false), (0xb8, false), (0, true), (0x7e, true)] {
        cases.push((of_halves, vec![byte], sound));
    }
    cases.extend([(powers, vec![0xff], false), (powers, vec![0], true), (powers, vec![0xfe], true)]);
    for ((folder, name, expected), bytes, sound) in &cases {
        let folder = fixtures().join(folder);
        let mut file = std::fs::read(folder.join("model.safetensors")).expect("the model");
        let tensors = SafeTensors::deserialize(&file).expect("valid");
        let at = tensors.tensor(name).expect("the scales").data().as_ptr().addr() - file.as_ptr().addr();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        match UnifiedModelFactory::load(copy_with(&folder, &file).path()) {
            Ok(_) => assert!(sound, "{name}: {bytes:x?} was loaded"),
            Err(error) => {
                let said = error.to_string();
                assert!(!sound && error.code() == 15, "{bytes:x?}: {said}");
                assert!(said.contains(name) && said.contains(&format!("expected {expected}")), "{said}");
            }
        }
    }
    assert_eq!(cases.len(), 27);
}
