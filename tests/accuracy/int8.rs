//! int8 checkpoints that compressed-tensors made: whole models against float64, schemes and families.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; tables are for reading

use crate::common;

use common::relative_l2;
use model_factory::UnifiedModelFactory;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// `expected.json` of a folder in `fixtures/int8`, and the truth next to it; `fixtures/README.md` describes both.
#[derive(Deserialize)]
struct Expected {
    tokens: Vec<u32>,
    stride: usize,
    integer_error: f64,
    compressed_tensors_error: f64,
    #[serde(skip)]
    truth: Vec<f32>,
}

impl Expected {
    fn of(folder: &Path) -> Expected {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let mut expected: Expected = serde_json::from_slice(&read("expected.json")).expect("expected.json is valid");
        let file = read("expected.safetensors");
        let tensors = SafeTensors::deserialize(&file).expect("expected.safetensors is valid");
        let truth = tensors.tensor("truth").expect("the truth");
        assert_eq!(truth.dtype(), Dtype::F32);
        expected.truth = truth.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        expected
    }

    /// The distance of the model in `folder` from the truth, over the logits that are kept: every `stride`th of a position.
    fn error(&self, folder: &Path) -> f64 {
        let model = common::load(folder);
        assert_eq!(model.report().casts, 0);
        let logits = model.all_logits(&self.tokens).expect("logits");
        let kept: Vec<f32> = logits.rows().flat_map(|row| row.iter().step_by(self.stride).copied()).collect();
        relative_l2(&kept, &self.truth)
    }

    /// The farthest that correct integers may be from the truth: another order of the float sums around them moves an
    /// activation to the neighbouring integer now and then, and everything after it. Over 96 positions that was less
    /// than one part in a hundred on every instruction set; three are allowed.
    fn bound(&self) -> f64 {
        1.03 * self.integer_error
    }
}

fn name(folder: &Path) -> String {
    folder.file_name().expect("a name").to_string_lossy().into_owned()
}

fn folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(common::fixtures().join("int8")).expect("fixtures/int8 exists");
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    folders.retain(|path| path.join("expected.json").exists());
    folders.sort();
    assert!(folders.len() >= 13, "only {} int8 fixtures", folders.len());
    folders
}

/// The distance to the unquantised truth is what is compared, over 96 positions: it may be that of the same integer
/// arithmetic in float64, give or take, and is below that of compressed-tensors' own forward, which rounds activations
/// to the stored dtype.
#[test]
fn whole_models_are_as_near_to_the_truth_as_the_integers_allow() {
    let mut failures = Vec::new();
    println!("{:<26} {:>10} {:>10} {:>20}", "fixture", "ours", "integers", "compressed-tensors");
    for folder in folders() {
        let (name, expected) = (name(&folder), Expected::of(&folder));
        let error = expected.error(&folder);
        let (integers, theirs) = (expected.integer_error, expected.compressed_tensors_error);
        println!("{name:<26} {error:>10.4} {integers:>10.4} {theirs:>20.4}");
        assert!(integers < theirs, "{name}: the exact integers are not nearer than compressed-tensors");
        if error.is_nan() || error > expected.bound() || error > theirs {
            failures.push(format!("{name}: {error}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Both ends of int8 are in every fixture's weights, -128 included, for which `-q` has no int8 and which an
/// instruction that takes one side as unsigned gets wrong first.
#[test]
fn weights_reach_both_ends_of_int8() {
    for folder in folders() {
        let (mut least, mut most, mut matrices) = (0, 0, 0);
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if !name(&path).starts_with("model") || path.extension().is_none_or(|end| end != "safetensors") {
                continue;
            }
            let file = std::fs::read(&path).expect("a model file");
            let tensors = SafeTensors::deserialize(&file).expect("valid");
            let weights = |(name, view): &(String, TensorView)| name.ends_with(".weight") && view.dtype() == Dtype::I8;
            for (_, view) in tensors.tensors().into_iter().filter(weights) {
                let values = view.data().iter().map(|byte| byte.cast_signed());
                least = values.clone().min().expect("values").min(least);
                most = values.max().expect("values").max(most);
                matrices += 1;
            }
        }
        assert_eq!((least, most), (i8::MIN, i8::MAX), "{}: {matrices} matrices", name(&folder));
    }
}

/// Phi-3's fused layers with the rows of their parts.
const FUSED: [(&str, &[Range<usize>]); 2] =
    [("self_attn.qkv_proj", &[0..64, 64..96, 96..128]), ("mlp.gate_up_proj", &[0..96, 96..192])];

/// The bytes of a fused layer's scales, BF16 and one a row, inside the model's file.
fn scales(file: &[u8], layer: &str) -> Range<usize> {
    let tensors = SafeTensors::deserialize(file).expect("valid");
    let view = tensors.tensor(&format!("model.layers.0.{layer}.weight_scale")).expect("the scales");
    assert_eq!(view.dtype(), Dtype::BF16);
    let start = view.data().as_ptr().addr() - file.as_ptr().addr();
    start..start + view.data().len()
}

fn mean(scales: &[u8]) -> f64 {
    let values = scales.as_chunks::<2>().0.iter().map(|bytes| f64::from(half::bf16::from_le_bytes(*bytes)));
    values.clone().sum::<f64>() / values.count() as f64
}

/// The scales of neighbouring parts are ten times apart, so a part that took another's rows of the scales would be far
/// outside of the bound: in the last lines it is made to.
#[test]
fn a_part_of_a_fused_layer_takes_its_own_scales() {
    let folder = common::fixtures().join("int8/phi3");
    let expected = Expected::of(&folder);
    assert!(expected.error(&folder) <= expected.bound());
    let file = std::fs::read(folder.join("model.safetensors")).expect("the model");
    let mut wrong = 0;
    for (layer, parts) in FUSED {
        let all = scales(&file, layer);
        assert_eq!(all.len(), parts.last().map_or(0, |part| 2 * part.end), "{layer}: one scale a row");
        let bytes = |rows: &Range<usize>| all.start + 2 * rows.start..all.start + 2 * rows.end;
        for pair in parts.windows(2) {
            let (a, b) = (mean(&file[bytes(&pair[0])]), mean(&file[bytes(&pair[1])]));
            // Ten times by construction; the means of 32 random rows differ by some percents.
            assert!((a / b).max(b / a) > 9.0, "{layer}: scales of {a} and {b} could stand for each other");
        }
        for part in parts {
            for other in parts.iter().filter(|other| *other != part) {
                let mut damaged = file.clone();
                let rows = part.len().min(other.len());
                let theirs = file[bytes(&(other.start..other.start + rows))].to_vec();
                damaged[bytes(&(part.start..part.start + rows))].copy_from_slice(&theirs);
                let error = expected.error(copy_with(&folder, &damaged).path());
                println!("{layer} {part:?} with the scales of {other:?}: {error:.3}, bound {:.3}", expected.bound());
                assert!(error > 3.0 * expected.bound(), "{layer} {part:?} with the scales of {other:?}: {error}");
                wrong += 1;
            }
        }
    }
    assert_eq!(wrong, 8, "six pairs of q, k and v, two of gate and up");
}

/// A scale that no sound model has is refused when the model is loaded, by its tensor: a product with it would be no
/// number, or one that means nothing.
#[test]
fn scales_that_are_no_sound_numbers_are_refused() {
    let folder = common::fixtures().join("int8/llama-static");
    let file = std::fs::read(folder.join("model.safetensors")).expect("the model");
    let layer = "model.layers.1.mlp.up_proj";
    let last_byte = |name: &str| {
        let tensors = SafeTensors::deserialize(&file).expect("valid");
        let view = tensors.tensor(name).expect("the scale");
        assert_eq!(view.dtype(), Dtype::BF16, "{name}");
        view.data().as_ptr().addr() - file.as_ptr().addr() + view.data().len() - 1
    };
    let [input, weight] = ["input_scale", "weight_scale"].map(|part| format!("{layer}.{part}"));
    let load = |at: usize, bytes: [u8; 2]| {
        let mut damaged = file.clone();
        damaged[at - 1..=at].copy_from_slice(&bytes);
        UnifiedModelFactory::load(copy_with(&folder, &damaged).path())
    };
    let (input_at, weight_at) = (last_byte(&input), last_byte(&weight));
    let stored = |at: usize| [file[at - 1], file[at]];
    let flipped = |[low, high]: [u8; 2]| [low, high ^ 0x80];
    let (nan, infinite) = ([0xc0, 0x7f], [0x80, 0x7f]);
    for (name, at, bytes, expected) in [
        (&input, input_at, flipped(stored(input_at)), "a finite number above 0"),
        (&input, input_at, [0, 0], "a finite number above 0"),
        (&input, input_at, infinite, "a finite number above 0"),
        (&input, input_at, nan, "a finite number above 0"),
        (&weight, weight_at, infinite, "a finite number"),
        (&weight, weight_at, nan, "a finite number"),
    ] {
        let Err(error) = load(at, bytes) else { panic!("{name} as {bytes:x?} was loaded") };
        let said = error.to_string();
        assert_eq!(error.code(), 15, "{said}");
        assert!(
            said.contains(&format!("tensor {name} has ")) && said.contains(&format!("expected {expected};")),
            "{said}"
        );
        assert!(said.contains("model.safetensors: "), "{said}");
    }
    for (at, bytes) in [(input_at, stored(input_at)), (weight_at, flipped(stored(weight_at)))] {
        assert!(load(at, bytes).is_ok(), "{bytes:x?} is sound");
    }
}

/// `folder` with another `model.safetensors`.
pub(super) fn copy_with(folder: &Path, model: &[u8]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for name in ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(folder.join(name), copy.path().join(name)).expect("a copy");
    }
    std::fs::write(copy.path().join("model.safetensors"), model).expect("the model is written");
    copy
}
