/// Why a module cannot be run. Lines count from 1, in the text of the module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts say what the fields are
#[non_exhaustive]
pub enum Error {
    /// The text is not PTX.
    #[error("line {line}: expected {expected}, found {found:?}")]
    Syntax { line: usize, expected: &'static str, found: String },
    /// An instruction, a form of one, or a directive that is not emulated.
    #[error("line {line}: {text:?} is not emulated: add it to gpu-emulator/src/ptx/operations")]
    Unsupported { line: usize, text: String },
    #[error("line {line}: nothing declares {name:?}")]
    Undeclared { line: usize, name: String },
}
