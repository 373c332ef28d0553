//! From a path to a report: what goes on to the loader, and what a path without a model gives.

#![allow(clippy::expect_used)] // helper functions of tests

use model_factory_diagnostics::hardware::profiles::Profile;
use model_factory_diagnostics::report::NextStep;
use model_factory_diagnostics::{Hardware, Policy, Ready, Verdict, diagnose, diagnose_with, family};
use std::fs::{create_dir, create_dir_all, write};
use std::path::{Path, PathBuf};

fn machine(profile: &str) -> Hardware {
    Profile::find(profile).unwrap_or_else(|| panic!("no profile {profile}")).hardware()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

#[test]
fn a_model_that_runs_keeps_its_header_and_spec_for_the_loader() {
    let diagnose = |profile, policy: &Policy| {
        diagnose_with(family::REGISTRY, &fixture("demo-q4_k_m.gguf"), &machine(profile), policy)
    };
    let diagnosis = diagnose("cpu-8gb", &Policy::default());
    assert_eq!(diagnosis.report.exit_code, 0, "{}", diagnosis.report);
    let Ready { header, spec, .. } = diagnosis.ready.expect("a spec");
    assert_eq!(diagnosis.report.input.header_bytes_read, Some(header.bytes_read));
    assert_eq!(diagnosis.report.plan.map(|plan| plan.context), Some(spec.context_trained));
    let refused = diagnose("cpu-8gb", &Policy { memory_limit: Some(1 << 20), ..Policy::default() });
    assert_eq!(refused.report.verdict, Verdict::DoesNotFit);
    assert!(refused.ready.is_none() && refused.error.is_none());
}

/// transformers ties them only where they are equal, and then the stored head gives the same.
#[test]
fn a_head_that_is_stored_beside_the_flag_of_tied_embeddings_is_the_head() {
    let folder = tempfile::tempdir().expect("a folder");
    for file in std::fs::read_dir(fixture("models/llama-3.1/bf16")).expect("a fixture") {
        let path = file.expect("a file").path();
        std::fs::copy(&path, folder.path().join(path.file_name().expect("a name"))).expect("copied");
    }
    let config = folder.path().join("config.json");
    let text = std::fs::read_to_string(&config).expect("a config");
    let tied = text.replace("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    assert_ne!(text, tied);
    write(&config, tied).expect("written");
    let diagnosis = diagnose_with(family::REGISTRY, folder.path(), &machine("cpu-8gb"), &Policy::default());
    let spec = diagnosis.ready.expect("it runs").spec;
    assert_eq!(spec.weights.head.as_ref().unwrap().weight.name, "lm_head.weight");
    assert!(!spec.tied_embeddings && spec.unused_tensors.is_empty());
    let said = spec.assumptions.iter().any(|line| line.starts_with("the head is lm_head.weight although"));
    assert!(said, "{:?}", spec.assumptions);
}

#[test]
fn headers_are_read_and_weights_are_not() {
    let report = diagnose(&fixture("demo-q4_k_m.gguf"), &machine("cpu-8gb"), &Policy::default());
    let read = report.input.header_bytes_read.expect("a count");
    assert!(read > 0 && read < report.input.bytes() / 2, "{read} of {}", report.input.bytes());
}

#[test]
fn paths_without_one_model_give_a_report_with_their_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let (text, empty, two) = (folder.path().join("a.txt"), folder.path().join("empty"), folder.path().join("two"));
    write(&text, "not a model").expect("written");
    create_dir(&empty).and_then(|()| create_dir(&two)).expect("made");
    for name in ["a.gguf", "b.gguf"] {
        std::fs::copy(fixture("demo-q4_k_m.gguf"), two.join(name)).expect("copied");
    }
    let cases = [(folder.path().join("nothing.gguf"), 1), (text, 10), (empty, 10), (two.clone(), 16)];
    for (path, code) in &cases {
        let report = diagnose(path, &machine("cpu-8gb"), &Policy::default());
        assert_eq!(report.exit_code, *code, "{}: {report}", path.display());
        assert!(report.model.is_none() && report.plan.is_none() && !report.reason.is_empty());
    }
    let report = diagnose(&two, &machine("cpu-8gb"), &Policy::default());
    assert_eq!(report.input.candidates.len(), 2);
    let models: Vec<_> = report.input.models.iter().map(|model| (model.verdict, model.context)).collect();
    assert_eq!(models, [(Verdict::CompatibleWithWarnings, Some(512)); 2], "{report}");
    assert!(
        matches!(report.next[..], [NextStep::OneOf(index)] if report.input.models[index].path.ends_with("two/b.gguf")),
        "{:?}",
        report.next
    );
}

#[test]
fn the_models_of_folders_are_counted_as_they_are_listed_and_each_is_named() {
    let root = tempfile::tempdir().expect("a folder");
    let deeper = root.path().join("several/deeper");
    create_dir_all(&deeper).expect("made");
    for folder in [root.path(), &root.path().join("several"), &deeper] {
        for name in ["a.gguf", "b.gguf"] {
            std::fs::copy(fixture("demo-q4_k_m.gguf"), folder.join(name)).expect("copied");
        }
    }
    let report = diagnose(root.path(), &machine("cpu-8gb"), &Policy::default());
    assert!(report.reason.ends_with("holds 4 models and 1 folder of several; name one of them"), "{}", report.reason);
    assert_eq!(report.check("input").map(|check| &check.summary), Some(&report.reason));
    let (folders, ones): (Vec<_>, Vec<_>) =
        report.input.models.iter().partition(|model| model.verdict == Verdict::AmbiguousInput);
    assert_eq!((ones.len(), folders.len()), (4, 1), "{report}");
    assert!(folders[0].path.ends_with("several/deeper"), "{report}");
    let paths: Vec<_> = ones.iter().map(|model| model.path.clone()).collect();
    assert_eq!(report.input.candidates, paths);
    for path in paths {
        assert_eq!(diagnose(Path::new(&path), &machine("cpu-8gb"), &Policy::default()).exit_code, 0, "{path}");
    }
    let remedy = report.remedies[0].to_string();
    let named = remedy.strip_prefix("give the path of one model, such as ").expect("a path");
    assert!(report.input.candidates.iter().any(|path| path == named), "{:?}", report.remedies);
    assert!(
        matches!(report.next[..], [NextStep::OneOf(index)] if report.input.models[index].path == named),
        "{:?}",
        report.next
    );
}
