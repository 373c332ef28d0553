//! An error on the way to the ModelSpec -> the same report, with what is known by then.

use super::{Policy, conclude};
use crate::error::{Error, IncompleteKind};
use crate::hardware::Hardware;
use crate::report::{Check, FileStatus, Input, InputFile, Report, Status};

/// The checks in the order of the pipeline.
const CHECKS: [&str; 12] = [
    "input",
    "format",
    "integrity",
    "architecture",
    "tensors",
    "hardware",
    "environment",
    "dtype",
    "rope",
    "tokenizer",
    "template",
    "memory",
];

/// Reports the error that ended the diagnosis of `input`.
pub(crate) fn assess_error(error: &Error, mut input: Input, hardware: &Hardware, policy: &Policy) -> Report {
    match error {
        Error::Ambiguous { candidates, .. } => {
            input.candidates = candidates.iter().map(|path| path.display().to_string()).collect();
        }
        Error::Incomplete { kind: IncompleteKind::FileMissing { name, .. }, .. } => {
            let part = input.files.len() + 1;
            input.files.push(InputFile { name: name.clone(), bytes: 0, part, status: FileStatus::Missing });
        }
        _ => {}
    }
    let failed = error.check_id();
    let failure = Check::fail(failed, error.verdict(), error.to_string()).remedies(error.remedy());
    let mut failure = Some(failure);
    let checks = CHECKS.iter().map(|&id| match (id == failed, failure.is_some()) {
        (true, _) => failure.take().unwrap_or_else(|| skipped(id)),
        // The stages run in this order, except that a quantization is recognised before tensors are looked at.
        (false, true) if id == "input" || (id == "format" && input.kind.is_some()) => Check::pass(id, ""),
        (false, _) => skipped(id),
    });
    let checks: Vec<Check> = checks.collect();
    conclude(input, None, hardware, policy, checks, None, String::new())
}

fn skipped(id: &'static str) -> Check {
    Check::new(id, Status::Skipped, "not reached")
}
