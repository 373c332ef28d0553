//! What ends a launch.

use std::fmt;

/// A defect of a kernel, or of what it was started with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The kernel.
    pub kernel: String,
    /// The block.
    pub block: [u32; 3],
    /// The access that failed; its `write` is true for instructions that write memory.
    pub at: Access,
    /// What is wrong.
    pub cause: Cause,
}

/// An instruction as one thread ran it. All zero and empty where no instruction is to blame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The line of the module's text, from 1.
    pub line: usize,
    /// The text of the instruction.
    pub instruction: String,
    /// The thread of the block.
    pub thread: [u32; 3],
    /// Whether it writes memory.
    pub write: bool,
}

/// A state space. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The GPU's memory.
    Global,
    /// The block's shared memory; addresses count from its start.
    Shared,
    /// The thread's own memory; addresses count from its start.
    Local,
    /// The kernel's parameters; addresses count from the first.
    Parameters,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// No allocation holds all bytes of an access.
    OutOfBounds {
        /// Where.
        space: Space,
        /// The first byte.
        address: u64,
        /// How many.
        bytes: u32,
    },
    /// An address is no multiple of the access's bytes.
    Misaligned {
        /// Where.
        space: Space,
        /// The first byte.
        address: u64,
        /// How many.
        bytes: u32,
    },
    /// Two threads use the same bytes of shared memory, at least one writes, and no barrier stands between.
    Race {
        /// The first byte.
        address: u64,
        /// The access that came first in this run.
        other: Access,
    },
    /// Bytes of shared memory are read that no thread of the block has written.
    Uninitialised {
        /// The first byte.
        address: u64,
    },
    /// Bytes of shared memory are used while they are being copied there: the thread that began the copy has not waited for it.
    InFlight {
        /// The first byte.
        address: u64,
        /// The copy.
        copy: Access,
    },
    /// What is copied to shared memory was not the same when the copy was waited for as when it began.
    SourceChanged {
        /// The first byte of the copy, in the GPU's memory.
        address: u64,
    },
    /// An instruction of a whole warp, or of the lanes that its mask names, which not all of them run: the others have ended
    /// or wait at another one.
    Divergent {
        /// The lanes that run it, a bit each.
        running: u32,
        /// The lanes that it needs.
        needed: u32,
    },
    /// A lane asks for the value of one that does not take part.
    AbsentLane {
        /// That lane.
        lane: u32,
    },
    /// Warps of the block wait at another barrier.
    DivergentBarrier {
        /// One of them.
        other: Access,
    },
    /// A thread has ended while others wait at this barrier.
    BarrierNotReached {
        /// That thread.
        thread: [u32; 3],
    },
    /// The block wants more shared memory than GPUs of the module's target have.
    SharedMemory {
        /// Bytes, with what the kernel declares.
        asked: u64,
        /// Bytes at most.
        limit: u64,
    },
    /// The block has no threads, or more than the kernel or any GPU runs.
    Threads {
        /// Threads.
        asked: [u32; 3],
        /// Threads at most.
        limit: [u32; 3],
    },
    /// The parameters are not as many bytes as the kernel declares.
    Parameters {
        /// Bytes given.
        given: usize,
        /// Bytes declared.
        declared: usize,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}, block {:?}", self.kernel, self.block)?;
        if self.at != Access::default() {
            write!(f, ", {}", self.at)?;
        }
        write!(f, ": {}", self.cause)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {:?}, line {} ({})", self.thread, self.line, self.instruction)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::OutOfBounds { space, address, bytes } => {
                write!(f, "{bytes} bytes at {address:#x} are not all within {space:?} memory")
            }
            Cause::Misaligned { space, address, bytes } => {
                write!(f, "{address:#x} in {space:?} memory is not aligned to {bytes} bytes")
            }
            Cause::Race { address, other } => write!(f, "a race for shared byte {address:#x} with {other}"),
            Cause::Uninitialised { address } => write!(f, "shared byte {address:#x} was never written"),
            Cause::InFlight { address, copy } => write!(f, "shared byte {address:#x} is still being copied by {copy}"),
            Cause::SourceChanged { address } => write!(f, "{address:#x} changed while it was copied"),
            Cause::Divergent { running, needed } => {
                write!(f, "lanes {running:#010x} run what lanes {needed:#010x} have to run together")
            }
            Cause::AbsentLane { lane } => write!(f, "the value of lane {lane}, which takes no part"),
            Cause::DivergentBarrier { other } => write!(f, "others wait at another barrier: {other}"),
            Cause::BarrierNotReached { thread } => write!(f, "thread {thread:?} has ended without this barrier"),
            Cause::SharedMemory { asked, limit } => write!(f, "{asked} bytes of shared memory, {limit} at most"),
            Cause::Threads { asked, limit } => write!(f, "{asked:?} threads, {limit:?} at most"),
            Cause::Parameters { given, declared } => write!(f, "{given} bytes of parameters, {declared} are declared"),
        }
    }
}
