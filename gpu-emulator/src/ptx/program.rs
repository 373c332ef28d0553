//! A kernel, ready to run: instructions as functions of a warp's registers.

use super::Parameter;
use super::fault::{Cause, Space};
use super::memory::Frame;
use super::registers::Registers;
use std::ops::Range;

#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) name: String,
    /// The architecture, `10 * major + minor`.
    pub(super) target: u32,
    pub(super) parameters: Vec<Parameter>,
    pub(super) parameter_bytes: usize,
    pub(super) max_threads: Option<[u32; 3]>,
    pub(super) shared: SharedLayout,
    pub(super) ops: Vec<Op>,
    /// All registers; rows of constants are set.
    pub(super) registers: Registers,
    /// Rows of 32 bits with the special registers of a thread.
    pub(super) specials: Vec<(u32, Special)>,
    /// Instructions that access memory, each with a number below this.
    pub(super) accesses: usize,
}

/// The layout of a block's shared memory. Between variables are gaps that no access may touch.
#[derive(Debug, Default)]
pub(super) struct SharedLayout {
    /// Bytes that the kernel declares, as a compiler lays them out without gaps.
    pub(super) declared: u32,
    pub(super) gaps: Vec<Range<u32>>,
    /// The start of the memory that a launch adds.
    pub(super) dynamic: u32,
    /// The fewest bytes that an instruction accesses, a power of two.
    pub(super) granule: u32,
}

/// A special register of a thread. The index is that of x, y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
    Lane,
}

/// An instruction. Each step gives the rows its own meaning.
#[derive(Debug, Default)]
pub(super) struct Op {
    pub(super) step: Step,
    /// The predicate under which it is run; row 0 is true.
    pub(super) guard: u32,
    pub(super) negated: bool,
    pub(super) label: bool,
    pub(super) d: u32,
    pub(super) a: u32,
    pub(super) b: u32,
    pub(super) c: u32,
    pub(super) rows: Box<[u32]>,
    pub(super) access: AccessKind,
    /// The source of a copy.
    pub(super) from: AccessKind,
    /// The line in the text of the module, from 1.
    pub(super) line: usize,
    pub(super) text: Box<str>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AccessKind {
    pub(super) write: bool,
    /// The number among the instructions that access memory.
    pub(super) number: usize,
    pub(super) offset: i64,
    /// Whether the address is a 64-bit register.
    pub(super) wide: bool,
    /// Bytes of all elements.
    pub(super) bytes: u32,
    pub(super) place: Space,
}

#[derive(Debug)]
pub(super) struct Trap {
    pub(super) lane: usize,
    pub(super) cause: Cause,
    /// The earlier access that the cause needs, and whether it wrote.
    pub(super) earlier: Option<(Accessor, bool)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Accessor {
    /// The thread's number in the block.
    pub(super) thread: u32,
    /// Barriers that its warp has passed.
    pub(super) warp_epoch: u32,
    pub(super) op: u32,
}

/// Sets registers of the lanes of a mask.
pub(super) type Compute = fn(&mut Registers, &Op, u32);
/// Reads or writes memory, or exchanges between lanes, in those of a mask.
pub(super) type Effect = fn(&mut Frame<'_>, &Op, u32) -> Done;
pub(super) type Done = Result<(), Trap>;

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Step {
    Compute(Compute),
    Effect(Effect),
    Collective(Effect, Members),
    Barrier,
    Branch(usize),
    #[default]
    Return,
}

/// The lanes that run an instruction together.
#[derive(Clone, Copy, Debug)]
pub(super) enum Members {
    All,
    /// The lanes named by the bits of a 32-bit row.
    Named(u32),
}

impl Trap {
    pub(super) fn new(lane: usize, cause: Cause) -> Trap {
        Trap { lane, cause, earlier: None }
    }
}
