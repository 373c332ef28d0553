//! The verdicts, their words and their exit codes.

use crate::error::{Error, IncompleteKind};
use serde::Serialize;
use std::fmt;

/// What a diagnosis comes to. Complete; words and exit codes are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It runs.
    Compatible,
    /// It runs; something is worth knowing.
    CompatibleWithWarnings,
    /// The path could not be read, so that nothing is known of the model.
    Unreadable,
    /// The format is not recognised, or the file is malformed.
    UnsupportedFormat,
    /// Nothing here runs this architecture.
    UnsupportedArchitecture,
    /// Running it would need a cast, or has tensors of which nothing here knows what they do.
    UnsupportedDtype,
    /// The machine or this build lacks what the model needs.
    HardwareInsufficient,
    /// Too little memory.
    DoesNotFit,
    /// Parts are missing or contradict each other.
    IncompleteOrCorrupt,
    /// Several models at the path.
    AmbiguousInput,
}

impl Verdict {
    /// Whether the model runs.
    pub fn runs(self) -> bool {
        self.exit_code() == 0
    }

    /// The exit code of a program that ends with this verdict.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Compatible | Verdict::CompatibleWithWarnings => 0,
            Verdict::Unreadable => 1,
            Verdict::UnsupportedFormat => 10,
            Verdict::UnsupportedArchitecture => 11,
            Verdict::UnsupportedDtype => 12,
            Verdict::HardwareInsufficient => 13,
            Verdict::DoesNotFit => 14,
            Verdict::IncompleteOrCorrupt => 15,
            Verdict::AmbiguousInput => 16,
        }
    }

    /// The word of the report.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Compatible => "compatible",
            Verdict::CompatibleWithWarnings => "compatible_with_warnings",
            Verdict::Unreadable => "unreadable",
            Verdict::UnsupportedFormat => "unsupported_format",
            Verdict::UnsupportedArchitecture => "unsupported_architecture",
            Verdict::UnsupportedDtype => "unsupported_dtype",
            Verdict::HardwareInsufficient => "hardware_insufficient",
            Verdict::DoesNotFit => "does_not_fit",
            Verdict::IncompleteOrCorrupt => "incomplete_or_corrupt",
            Verdict::AmbiguousInput => "ambiguous_input",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl From<&Error> for Verdict {
    /// The verdict that an error amounts to.
    fn from(error: &Error) -> Verdict {
        match error {
            Error::Io { .. } => Verdict::Unreadable,
            Error::Architecture { .. } => Verdict::UnsupportedArchitecture,
            Error::Quantization { .. } | Error::UnknownTensors { .. } => Verdict::UnsupportedDtype,
            Error::Incomplete { .. } => Verdict::IncompleteOrCorrupt,
            Error::Ambiguous { .. } => Verdict::AmbiguousInput,
            // Format errors, and what a later version of that crate may add.
            _ => Verdict::UnsupportedFormat,
        }
    }
}

/// The check that `error` is the failure of.
pub(crate) fn check_id(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } | Error::Ambiguous { .. } => "input",
        Error::Architecture { .. } => "architecture",
        Error::Quantization { .. } => "dtype",
        Error::UnknownTensors { .. } => "tensors",
        Error::Incomplete { kind, .. } => match kind {
            IncompleteKind::TensorMissing { .. }
            | IncompleteKind::TensorShape { .. }
            | IncompleteKind::TensorDType { .. }
            | IncompleteKind::TensorValue { .. } => "tensors",
            _ => "integrity",
        },
        _ => "format",
    }
}
