//! Instruction-set tokens: proof that the processor has what a kernel needs.

/// The instruction sets kernels may use here. Made only by detection, or by lowering a detected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(());

impl Isa {
    /// What this processor and its operating system support.
    pub fn detect() -> Isa {
        Isa(())
    }
}
