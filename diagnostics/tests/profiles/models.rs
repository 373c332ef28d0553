//! The fixtures as diagnoses see them.

#[path = "../../../tests/common/archives.rs"]
#[allow(dead_code)] // the tests of whole models use more of it
mod archives;

use std::path::{Path, PathBuf};

/// `fixtures/` of this checkout.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// Every model of the fixtures.
pub(crate) fn all() -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        entries.collect()
    };
    let folders =
        entries(&fixtures().join("models")).into_iter().chain(archives::names().map(|name| archives::unpacked(&name)));
    let mut models: Vec<PathBuf> = folders.flat_map(|model| entries(&model)).collect();
    models.extend(entries(&fixtures().join("int8")).into_iter().filter(|path| path.is_dir()));
    models.retain(|path| path.is_dir() || path.extension().is_some_and(|extension| extension == "gguf"));
    models.sort();
    models
}
