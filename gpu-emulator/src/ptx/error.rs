//! Why a module cannot be run.

/// Why a module cannot be run. Lines count from 1, in the text of the module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no PTX.
    #[error("line {line}: expected {expected}, found {found:?}")]
    Syntax {
        /// Where.
        line: usize,
        /// What would have been right.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// An instruction, a form of one, or a directive that is not emulated.
    #[error("line {line}: {text:?} is not emulated: add it to gpu-emulator/src/ptx/operations")]
    Unsupported {
        /// Where.
        line: usize,
        /// Its text.
        text: String,
    },
    /// A name that nothing declares.
    #[error("line {line}: nothing declares {name:?}")]
    Undeclared {
        /// Where.
        line: usize,
        /// The name.
        name: String,
    },
}
