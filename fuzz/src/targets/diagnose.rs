//! Bytes as a folder: each section, begun by a separator and a number, is the content of one file. The whole of
//! `diagnose` runs on it.

use crate::common::sections;
use model_factory_diagnostics::family::REGISTRY;
use model_factory_diagnostics::hardware::profiles::PROFILES;
use model_factory_diagnostics::{Policy, diagnose_with};

/// Longest sparse file that a header may ask for.
const LONGEST: u64 = 1 << 40;

pub fn run(bytes: &[u8]) {
    let Ok(folder) = tempfile::tempdir() else { return };
    if sections::write(bytes, folder.path()).is_err() {
        return;
    }
    for _ in 0..=sections::NAMES.len() {
        let machine = PROFILES[0].hardware();
        let diagnosis = diagnose_with(REGISTRY, folder.path(), &machine, &Policy::default());
        crate::common::render(&diagnosis.report);
        assert_eq!(diagnosis.ready.is_some(), diagnosis.report.verdict.runs());
        if !sections::grow(diagnosis.error.as_ref(), LONGEST) {
            return;
        }
    }
}
