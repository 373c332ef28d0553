//! `compare`: its figures by the logits of `logits`, its windows, and what it refuses.

use super::{example, json, model, text};
use crate::common;
use serde_json::Value;
use std::path::Path;

/// Raw logits `[tokens][vocab]` of the model at `path`, by the example `logits`.
fn logits(path: &str, tokens: &str, folder: &Path) -> Vec<Vec<f64>> {
    let out = folder.join("logits.safetensors");
    let output = example("logits", &[path, "--tokens", tokens, "--out", &out.display().to_string()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let bytes = std::fs::read(&out).expect("the file");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("valid safetensors");
    let view = tensors.tensor("logits").expect("logits");
    let numbers: Vec<f64> =
        view.data().chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four")).into()).collect();
    numbers.chunks_exact(view.shape()[1]).map(<[f64]>::to_vec).collect()
}

#[test]
fn compare_rounds_activations_of_b() {
    let path = common::fixtures().join("packed/llama-w4-128").display().to_string();
    let output = example("compare", &[&path, &path, "--tokens", "1,2,3,4,5", "--activations", "int8"]);
    let said = text(&output.stdout);
    let row = said.lines().find(|line| line.starts_with("activations")).expect(&said);
    let cells: Vec<&str> = row.split_whitespace().collect();
    let at = |dtype: &str| cells.iter().position(|cell| *cell == dtype);
    assert!(at("int16") < at("int8") && at("int16").is_some(), "{row}");
    assert!(!said.contains("KL divergence, B from A   0.000000"), "{said}");
}

#[test]
fn compare_measures_what_the_logits_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = [model("llama-256/q8_0.gguf"), model("llama-256/q2_k.gguf")];
    let ids: Vec<usize> = (0..40).map(|index| (index * 37 + 11) % 300).collect();
    let list = ids.iter().map(usize::to_string).collect::<Vec<_>>();
    let report = json(&example("compare", &[&paths[0], &paths[1], "--tokens", &list.join(","), "--json"]));
    let [a, b] = paths.each_ref().map(|path| logits(path, &list.join(","), folder.path()));

    // Probabilities as they are defined, without the shift and the logarithms of the example.
    let probabilities = |row: &Vec<f64>| -> Vec<f64> {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        row.iter().map(|logit| logit.exp() / sum).collect()
    };
    let top = |row: &Vec<f64>| (0..row.len()).max_by(|&x, &y| row[x].total_cmp(&row[y]));
    let rows = || a.iter().zip(&b);
    let divergence = |(a, b): (&Vec<f64>, &Vec<f64>)| -> f64 {
        probabilities(a).iter().zip(probabilities(b)).map(|(p, q)| p * (p / q).ln()).sum()
    };
    let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let perplexity = |rows: &[Vec<f64>]| {
        let surprise: f64 = (1..ids.len()).map(|at| -probabilities(&rows[at - 1])[ids[at]].ln()).sum();
        (surprise / (ids.len() - 1) as f64).exp()
    };
    let expected = [
        ("/kl_mean", rows().map(divergence).sum::<f64>() / 40.0),
        ("/kl_max", largest(&mut rows().map(divergence))),
        ("/top1_agreement", rows().filter(|(a, b)| top(a) == top(b)).count() as f64 / 40.0),
        ("/max_logit_difference", largest(&mut rows().flat_map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a - b).abs())))),
        ("/a/perplexity", perplexity(&a)),
        ("/b/perplexity", perplexity(&b)),
    ];
    for (key, expected) in expected {
        let found = report.pointer(key).and_then(Value::as_f64).expect(key);
        // Both are sums of doubles; only their order and the shift differ.
        assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{key}: {found} and {expected}");
    }
    assert!(report["kl_mean"].as_f64() > Some(0.01), "the two files are far enough apart to tell");
    assert_eq!((&report["positions"], &report["windows"]), (&40.into(), &1.into()));
    for side in ["a", "b"] {
        for key in ["file_bytes", "planned_bytes", "available_bytes", "tok_s"] {
            assert!(report[side][key].as_f64() > Some(0.0), "{side} {key}");
        }
    }
    // B is planned into what A leaves: its files are no file of B's, and three times the logits are there at once.
    let bytes = |side: &str, key: &str| report[side][key].as_u64().expect("bytes");
    let held = bytes("a", "file_bytes") + 3 * 40 * a[0].len() as u64 * 4;
    assert!(bytes("a", "available_bytes") >= bytes("b", "available_bytes") + held, "{report}");
}

#[test]
fn compare_says_which_model_is_which_and_what_is_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let (a, b) = (model("llama-256/q8_0.gguf"), model("llama-256/q2_k.gguf"));
    let table = text(&example("compare", &[&a, &b, "--prompt", "the cat"]).stdout);
    assert!(table.starts_with(&format!("A  {a}\nB  {b}\n")), "{table}");
    let empty = folder.path().join("empty.txt");
    std::fs::write(&empty, "").expect("a file");
    let empty = empty.display().to_string();
    for (given, says) in [(["--prompt", ""], "the prompt is empty"), (["--file", &empty], "empty.txt is empty")] {
        // Said before a model is loaded, so it is all that is said.
        let output = example("compare", &[&a, &b, given[0], given[1]]);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{given:?}");
        let said = text(&output.stderr);
        assert!(said.starts_with("error: ") && said.contains(says) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn compare_cuts_a_file_into_windows_and_refuses_other_vocabularies() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("text.txt");
    std::fs::write(&file, "the cat sat on the mat. ".repeat(40)).expect("a text");
    let (path, file) = (model("llama-3.1/q8_0.gguf"), file.display().to_string());
    let same = json(&example("compare", &[&path, &path, "--file", &file, "--window", "64", "--json"]));
    assert_eq!((&same["kl_mean"], &same["max_logit_difference"]), (&0.0.into(), &0.0.into()));
    assert_eq!((&same["top1_agreement"], &same["a"]["perplexity"]), (&1.0.into(), &same["b"]["perplexity"]));
    // Every window has BOS in front, so 63 tokens of the text.
    let ids = text(&example("tokenize", &[&path, "--file", &file, "--no-special"]).stdout).split(' ').count();
    let windows = ids.div_ceil(63);
    assert!(windows > 2 && same["window_tokens"] == 64 && same["windows"] == windows, "{windows} {same}");
    assert_eq!(same["positions"], ids + windows);
    for (other, told) in [("tinyllama/bf16", "320 and 480 tokens"), ("smollm2/bf16", "vocabularies")] {
        let output = example("compare", &[&path, &model(other), "--prompt", "Hi"]);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{other}");
        assert!(text(&output.stderr).contains(told), "{}", text(&output.stderr));
    }
    assert_eq!(example("compare", &[&path, &path, "--tokens", "99999"]).status.code(), Some(2));
    assert_eq!(example("compare", &[&path, &path, "--file", "/no/such"]).status.code(), Some(1));
}
