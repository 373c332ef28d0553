//! A module as its text says it, names of registers resolved.

use std::ops::Range;

/// A module.
#[derive(Debug)]
pub(super) struct Source {
    /// The architecture, `10 * major + minor`.
    pub(super) target: u32,
    pub(super) kernels: Vec<KernelText>,
}

/// A kernel.
#[derive(Debug, Default)]
pub(super) struct KernelText {
    pub(super) name: String,
    pub(super) parameters: Vec<Variable>,
    pub(super) max_threads: Option<[u32; 3]>,
    pub(super) shared: Vec<Variable>,
    /// What stands for the shared memory that a launch adds.
    pub(super) dynamic_shared: Vec<String>,
    /// Registers by number.
    pub(super) registers: Vec<Width>,
    pub(super) body: Vec<Item>,
}

/// Memory that a kernel declares.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) align: u64,
    /// Zero for what a launch decides.
    pub(super) bytes: u64,
}

/// Bits of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Width {
    Predicate,
    B16,
    B32,
    B64,
}

#[derive(Debug)]
pub(super) enum Item {
    Label(String),
    Instruction(Instruction),
}

#[derive(Debug)]
pub(super) struct Instruction {
    /// From 1.
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) guard: Option<Guard>,
    /// With its modifiers.
    pub(super) name: String,
    pub(super) operands: Vec<Operand>,
}

/// The predicate under which an instruction is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    pub(super) register: usize,
    pub(super) negated: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Operand {
    /// A register by number.
    Register(usize),
    Special(String),
    Integer(i64),
    /// The bits of a float.
    Single(u32),
    /// The bits of a float.
    Double(u64),
    /// A variable or a label.
    Symbol(String),
    /// `[base+offset]`
    Address(Box<Operand>, i64),
    /// `{a, b}`
    Vector(Vec<Operand>),
    /// `a|b`
    Pair(Box<Operand>, Box<Operand>),
    /// `_`
    Nothing,
}

impl Width {
    pub(super) fn of_type(name: &str) -> Option<Width> {
        Some(match name {
            "pred" => Width::Predicate,
            "b16" | "u16" | "s16" | "f16" | "bf16" => Width::B16,
            "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => Width::B32,
            "b64" | "u64" | "s64" | "f64" => Width::B64,
            _ => return None,
        })
    }
}

/// A piece of the text.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) bytes: Range<usize>,
    pub(super) line: usize,
}
