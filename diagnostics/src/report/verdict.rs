//! The verdicts, their words and their exit codes.

use crate::error::{Error, IncompleteKind};
use serde::Serialize;
use std::fmt;

/// The result of a diagnosis. Complete; words and exit codes are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The model runs.
    Compatible,
    /// The model runs, with warnings.
    CompatibleWithWarnings,
    /// The path could not be read, so nothing is known about the model.
    Unreadable,
    /// The format is not recognized, or the file is malformed.
    UnsupportedFormat,
    /// The architecture is not supported.
    UnsupportedArchitecture,
    /// Running the model would need a cast, or it has tensors that are not known.
    UnsupportedDtype,
    /// The machine or this build lacks what the model needs.
    HardwareInsufficient,
    /// There is too little memory.
    DoesNotFit,
    /// Parts are missing or contradict each other.
    IncompleteOrCorrupt,
    /// There are several models at the path.
    AmbiguousInput,
}

impl Verdict {
    /// Whether the model runs.
    pub fn runs(self) -> bool {
        self.exit_code() == 0
    }

    /// The exit code of a program that ends with this verdict.
    pub fn exit_code(self) -> u8 {
        self.code_and_word().0
    }

    /// The word in the report.
    pub fn word(self) -> &'static str {
        self.code_and_word().1
    }

    fn code_and_word(self) -> (u8, &'static str) {
        match self {
            Verdict::Compatible => (0, "compatible"),
            Verdict::CompatibleWithWarnings => (0, "compatible_with_warnings"),
            Verdict::Unreadable => (1, "unreadable"),
            Verdict::UnsupportedFormat => (10, "unsupported_format"),
            Verdict::UnsupportedArchitecture => (11, "unsupported_architecture"),
            Verdict::UnsupportedDtype => (12, "unsupported_dtype"),
            Verdict::HardwareInsufficient => (13, "hardware_insufficient"),
            Verdict::DoesNotFit => (14, "does_not_fit"),
            Verdict::IncompleteOrCorrupt => (15, "incomplete_or_corrupt"),
            Verdict::AmbiguousInput => (16, "ambiguous_input"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The verdict for `error`, and the check that it fails.
pub(crate) fn of_error(error: &Error) -> (Verdict, &'static str) {
    match error {
        Error::Io { .. } => (Verdict::Unreadable, "input"),
        Error::Ambiguous { .. } | Error::AmbiguousProjector { .. } => (Verdict::AmbiguousInput, "input"),
        Error::Architecture { .. } => (Verdict::UnsupportedArchitecture, "architecture"),
        Error::Quantization { .. } => (Verdict::UnsupportedDtype, "dtype"),
        Error::UnknownTensors { .. } => (Verdict::UnsupportedDtype, "tensors"),
        Error::Incomplete { kind, .. } => match kind {
            IncompleteKind::TensorMissing { .. }
            | IncompleteKind::TensorShape { .. }
            | IncompleteKind::TensorDType { .. }
            | IncompleteKind::TensorValue { .. } => (Verdict::IncompleteOrCorrupt, "tensors"),
            _ => (Verdict::IncompleteOrCorrupt, "integrity"),
        },
        // Format errors, and any error that a later version of that crate may add.
        _ => (Verdict::UnsupportedFormat, "format"),
    }
}
