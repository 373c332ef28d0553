//! Weights that are read into memory: the same bits as mapped ones, whatever becomes of the files.
#![allow(clippy::expect_used)] // a test that cannot go on says why

use crate::common;

use common::fixtures;
use model_factory::load::Stage;
use model_factory::{CancellationToken, Error, Model, WeightStorage};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A GGUF file, one in blocks, and a checkpoint of several files.
fn sources() -> [PathBuf; 3] {
    let models = fixtures().join("models");
    [models.join("tinyllama/q8_0.gguf"), fixtures().join("demo-q4_k_m.gguf"), models.join("llama-3.1/f32-sharded")]
}

/// A copy of a file or folder, in a folder that goes with it.
fn copied(from: &Path) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join(from.file_name().expect("a name"));
    if from.is_file() {
        fs::copy(from, &to).expect("a copy");
    } else {
        fs::create_dir(&to).expect("a folder");
        for entry in fs::read_dir(from).expect("a folder") {
            let file = entry.expect("an entry").path();
            fs::copy(&file, to.join(file.file_name().expect("a name"))).expect("a copy");
        }
    }
    (folder, to)
}

fn bits(model: &Model) -> Vec<u32> {
    let tokens: Vec<u32> = (0..40).map(|i| (i * 37 + 11) % 250).collect();
    common::bits_of(&model.all_logits(&tokens).expect("logits"))
}

#[test]
fn resident_weights_have_the_bits_of_mapped_ones_and_outlive_their_files() {
    for source in sources() {
        let expected = bits(&common::load(&source));
        let (_folder, path) = copied(&source);
        let model = common::builder().weights(WeightStorage::Resident).load(&path).expect("the model loads");
        let plan = model.report().plan.as_ref().expect("a plan");
        assert_eq!(plan.weights_resident, plan.weights_file);
        assert!(plan.anonymous() > plan.weights_file, "the copies are memory of the process");
        // A mapped file that is cut short ends the process when it is read.
        let files = model.report().input.files.iter().map(|file| path.with_file_name(&file.name));
        let files: Vec<PathBuf> = files
            .map(|file| if file.exists() { file } else { path.join(file.file_name().unwrap_or_default()) })
            .collect();
        assert!(!files.is_empty());
        for file in files {
            fs::OpenOptions::new().write(true).open(&file).and_then(|file| file.set_len(0)).expect("the file is cut");
        }
        assert!(bits(&model) == expected, "{}: other bits", source.display());
    }
}

#[test]
fn reading_is_told_and_cancelled() {
    let source = &sources()[2];
    let told = Arc::new(Mutex::new(Vec::new()));
    let builder = || common::builder().weights(WeightStorage::Resident);
    let tell = Arc::clone(&told);
    let load = builder().on_progress(move |progress| tell.lock().expect("no panic").push(progress));
    let model = load.load(source).expect("the model loads");
    let told = told.lock().expect("no panic");
    let of = |stage| told.iter().filter(|progress| progress.stage == stage).collect::<Vec<_>>();
    let (reading, files) = (of(Stage::Reading), model.report().input.files.len());
    let total = model.report().plan.as_ref().expect("a plan").weights_file;
    assert!(of(Stage::Mapping).is_empty() && files > 1);
    assert!(reading.iter().all(|progress| progress.bytes_total == total));
    let done: Vec<u64> = reading.iter().map(|progress| progress.bytes_done).collect();
    assert!(done.is_sorted() && done[0] == 0 && done[done.len() - 1] == total && done.len() == files + 1, "{done:?}");

    let cancel = CancellationToken::new();
    let cancels = cancel.clone();
    let cancelled = builder().cancel(&cancel).on_progress(move |progress| {
        if progress.stage == Stage::Reading && progress.bytes_done > 0 {
            cancels.cancel();
        }
    });
    assert!(matches!(cancelled.load(source), Err(Error::Cancelled)));
}
