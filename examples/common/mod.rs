//! What the examples share: the bundled model, and how an error ends a program.
#![allow(dead_code, clippy::print_stderr)] // every example uses its own part; examples talk to people

use model_factory::kernels::Isa;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

/// The model in this repository, for when no path is given.
pub(crate) fn bundled() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/demo")
}

/// The instruction sets of this name, for an option.
pub(crate) fn isa(name: &str) -> Result<Isa, String> {
    Isa::named(name).ok_or_else(|| {
        let here: Vec<_> = Isa::available().into_iter().map(Isa::name).collect();
        format!("this machine has {}", here.join(", "))
    })
}

/// Prints why a program ends and gives its exit code. A refusal prints its whole report.
pub(crate) fn fail(error: &model_factory::Error) -> ExitCode {
    match error {
        // Whoever reads our output has seen enough.
        model_factory::Error::Io { source, .. } if source.kind() == ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        model_factory::Error::Refused(report) => eprint!("{report}"),
        error => eprintln!("error: {error}"),
    }
    ExitCode::from(error.code())
}

/// A line of `/proc/self/status` in bytes: `VmHWM` is the peak resident size, `RssAnon` the anonymous part. `None`
/// where the system has no such file.
pub(crate) fn process_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
