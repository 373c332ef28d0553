//! Bytes as a folder, as in `diagnose`: loaded on one thread, and two tokens generated, the likeliest and drawn ones.
//! Seeds are whole models, of which mutations change a file's values.
#![no_main]

mod common;

use common::random::Random;
use common::sections;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use model_factory::diagnostics::Hardware;
use model_factory::{Error, GenerateOptions, UnifiedModelFactory};
use model_factory_diagnostics::family::REGISTRY;
use model_factory_diagnostics::{Policy, diagnose_with};

/// Longest sparse file that a header may ask for: two tokens of such weights take a moment.
const LONGEST: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
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
        Err(Error::Refused(report)) => return common::render(&report),
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    common::render(model.report());
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
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    match sections::mutate(&data[..size], max_size, &mut Random::new(seed)) {
        Some(changed) => {
            data[..changed.len()].copy_from_slice(&changed);
            changed.len()
        }
        None => fuzzer_mutate(data, size, max_size),
    }
});
