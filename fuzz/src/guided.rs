//! libFuzzer's program.

use crate::common::Target;
use crate::common::random::Random;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    crate::named(&name).unwrap_or_else(|| panic!("FUZZ_TARGET names no target: {name:?}"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut by_libfuzzer = |bytes: &mut Vec<u8>, longest: usize| {
        let size = bytes.len().min(longest);
        bytes.resize(longest, 0);
        let size = fuzzer_mutate(bytes, size, longest);
        bytes.truncate(size);
    };
    let changed =
        (TARGET.mutate)(&data[..size], max_size.min(TARGET.longest), &mut Random::new(seed), &mut by_libfuzzer);
    data[..changed.len()].copy_from_slice(&changed);
    changed.len()
});
