//! Diagnoses the model at the path given, as a program that wants the report only.

use model_factory_diagnostics::{Hardware, Policy, diagnose};
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: outside-diagnose PATH");
        return ExitCode::from(2);
    };
    let report = diagnose(&path, &Hardware::detect(), &Policy::default());
    println!("{}", report.first_line());
    ExitCode::from(report.exit_code)
}
