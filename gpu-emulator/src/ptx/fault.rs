//! The faults that end a launch.

/// A defect of a kernel, or of its launch. The `write` of `at` is true for instructions that write memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // as the text says
#[error("kernel {kernel}, block {block:?}{}: {cause}", if *.at == Access::default() { String::new() } else { format!(", {}", .at) })]
pub struct Fault {
    pub kernel: String,
    pub block: [u32; 3],
    pub at: Access,
    pub cause: Cause,
}

/// An instruction as a thread of the block ran it. All zero and empty where no instruction is to blame.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // as the text says
#[error("thread {thread:?}, line {line} ({instruction})")]
pub struct Access {
    /// The line of the module's text, from 1.
    pub line: usize,
    pub instruction: String,
    pub thread: [u32; 3],
    pub write: bool,
}

/// A state space. Complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Space {
    /// That of an address that says it itself; no fault is there.
    #[default]
    Generic,
    /// The GPU's memory.
    Global,
    /// The block's shared memory; addresses count from its start.
    Shared,
    /// The kernel's parameters; addresses count from the first.
    Parameters,
}

/// The cause of a fault. Addresses are those of the first byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the texts say what the fields are
#[non_exhaustive]
pub enum Cause {
    #[error("{bytes} bytes at {address:#x} are not all within {space:?} memory")]
    OutOfBounds { space: Space, address: u64, bytes: u32 },
    #[error("{address:#x} in {space:?} memory is not aligned to {bytes} bytes")]
    Misaligned { space: Space, address: u64, bytes: u32 },
    /// Two threads use the same bytes of shared memory, at least one writes, and no barrier stands between.
    #[error("a race for shared byte {address:#x} with {other}")]
    Race { address: u64, other: Access },
    #[error("shared byte {address:#x} was never written")]
    Uninitialised { address: u64 },
    /// Bytes of shared memory are used while they are being copied there: the thread that began the copy has not waited for it.
    #[error("shared byte {address:#x} is still being copied by {copy}")]
    InFlight { address: u64, copy: Access },
    #[error("{address:#x} changed while it was copied")]
    SourceChanged { address: u64 },
    /// Not all lanes that an instruction needs run it: the others have ended or wait at another one.
    #[error("lanes {running:#010x} run what lanes {needed:#010x} have to run together")]
    Divergent { running: u32, needed: u32 },
    #[error("the value of lane {lane}, which takes no part")]
    AbsentLane { lane: u32 },
    #[error("others wait at another barrier: {other}")]
    DivergentBarrier { other: Access },
    #[error("thread {thread:?} has ended without this barrier")]
    BarrierNotReached { thread: [u32; 3] },
    #[error("{asked} bytes of shared memory, {limit} at most")]
    SharedMemory { asked: u64, limit: u64 },
    #[error("{asked:?} threads, {limit:?} at most")]
    Threads { asked: [u32; 3], limit: [u32; 3] },
    #[error("{given} bytes of parameters, {declared} are declared")]
    Parameters { given: usize, declared: usize },
}
