//! Bytes as a folder, as in `diagnose`: loaded on one thread, and two tokens generated, the likeliest and drawn ones.
//! Seeds are whole models, of which mutations change a file's values.

use crate::common::random::Random;
use crate::common::{Bytes, any_bytes, sections};
use model_factory::diagnostics::Hardware;
use model_factory::{Error, GenerateOptions, UnifiedModelFactory};
use model_factory_diagnostics::family::REGISTRY;
use model_factory_diagnostics::{Policy, diagnose_with};

/// Longest sparse file that a header may ask for: two tokens of such weights take a moment.
const LONGEST: u64 = 16 << 20;

pub fn run(bytes: &[u8]) {
    let Ok(folder) = tempfile::tempdir() else { return };
    if sections::write(bytes, folder.path()).is_err() {
        return;
    }
    let machine = Hardware::detect();
    let policy = Policy { context: Some(64), memory_limit: Some(256 << 20), ..Policy::default() };
    for _ in 0..sections::NAMES.len() {
        if !sections::grow(diagnose_with(REGISTRY, folder.path(), &machine, &policy).error.as_ref(), LONGEST) {
            break;
        }
    }
    let builder = UnifiedModelFactory::builder().threads(1).context_length(64).memory_limit(256 << 20);
    let model = match builder.load(folder.path()) {
        Ok(model) => model,
        Err(Error::Refused(report)) => return crate::common::render(&report),
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    crate::common::render(model.report());
    for temperature in [0.0, 0.8] {
        let options = GenerateOptions::default().max_tokens(2).temperature(temperature).seed(1);
        let text = model.generate("Once a", &options).and_then(|mut generation| {
            let text = generation.text();
            assert!(generation.ids().len() <= 2);
            text
        });
        if let Err(error) = text {
            assert!(!error.to_string().is_empty());
        }
    }
}

pub fn mutate(input: &[u8], longest: usize, random: &mut Random, bytes: &mut Bytes) -> Vec<u8> {
    let changed = sections::mutate(input, longest, random, bytes);
    changed.unwrap_or_else(|| any_bytes(input, longest, random, bytes))
}
