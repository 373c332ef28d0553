//! Readers of files, on inputs that nobody made. `fuzz TARGET RUNS FILE..` runs a target on each file and on RUNS mutations of
//! them, the same ones each time. Built with the feature `libfuzzer` it is libFuzzer's program, which searches by coverage and has
//! its options; `FUZZ_TARGET` names the target. `.ci/fuzz` does both.
#![cfg_attr(feature = "libfuzzer", no_main)]

mod common;
#[allow(dead_code)] // the lock of tests that count
#[path = "../../tests/common/counting.rs"]
mod counting;
#[cfg(feature = "libfuzzer")]
mod guided;
mod targets;
#[cfg(not(feature = "libfuzzer"))]
mod unguided;

use common::Target;
use targets::TARGETS;

fn named(name: &str) -> Option<&'static Target> {
    const { &TARGETS }.iter().find(|target| target.name == name)
}

#[cfg(not(feature = "libfuzzer"))]
fn main() -> std::process::ExitCode {
    unguided::main()
}
