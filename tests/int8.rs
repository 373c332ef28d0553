//! int8 checkpoints that compressed-tensors made: whole models against float64, schemes and families.
#![allow(clippy::expect_used, clippy::print_stdout)] // a test that cannot go on says why; tables are for reading

mod common;

use common::relative_l2;
use serde::Deserialize;
use std::path::PathBuf;

/// `expected.json` of a folder in `fixtures/int8`; `fixtures/README.md` describes it.
#[derive(Deserialize)]
struct Expected {
    tokens: Vec<u32>,
    integer_error: f64,
    compressed_tensors_error: f64,
}

fn folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(common::fixtures().join("int8")).expect("fixtures/int8 exists");
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    folders.retain(|path| path.join("expected.json").exists());
    folders.sort();
    assert!(folders.len() >= 12, "only {} int8 fixtures", folders.len());
    folders
}

/// An activation that rounds to the neighbouring integer moves everything behind it, so that correct programs differ by
/// percents: the distance to the unquantised truth is what is compared. It may be 1.05 times that of the same integer
/// arithmetic in float64, and is below that of compressed-tensors' own forward, which rounds activations to the stored
/// dtype, wherever those exact integers are: all fixtures but at most one.
#[test]
fn whole_models_are_as_near_to_the_truth_as_the_integers_allow() {
    let (mut failures, mut beaten, mut compared) = (Vec::new(), 0, 0);
    println!("{:<26} {:>10} {:>10} {:>20}", "fixture", "ours", "integers", "compressed-tensors");
    for folder in folders() {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(folder.join("expected.json")).expect("expected.json is readable");
        let expected: Expected = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let file = std::fs::read(folder.join("expected.safetensors")).expect("expected.safetensors is readable");
        let tensors = safetensors::SafeTensors::deserialize(&file).expect("valid");
        let truth = tensors.tensor("truth").expect("the truth");
        let truth: Vec<f32> = match truth.dtype() {
            safetensors::Dtype::F64 => {
                truth.data().as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32).collect()
            }
            _ => truth.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        };
        let model = common::load(&folder);
        let logits = model.logits(&expected.tokens).expect("logits");
        let error = relative_l2(&logits.flatten_all().expect("flat").to_vec1().expect("F32"), &truth);
        println!(
            "{name:<26} {error:>10.4} {:>10.4} {:>20.4}",
            expected.integer_error, expected.compressed_tensors_error
        );
        let exact_is_below = expected.integer_error < expected.compressed_tensors_error;
        if error > 1.05 * expected.integer_error || exact_is_below && error > expected.compressed_tensors_error {
            failures.push(format!("{name}: {error}"));
        }
        compared += 1;
        beaten += usize::from(error < expected.compressed_tensors_error);
        assert_eq!(model.report().casts, 0);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(beaten + 1 >= compared, "below compressed-tensors in {beaten} of {compared}");
}
