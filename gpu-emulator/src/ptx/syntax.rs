//! Parts of a module's text, with names of registers resolved.

use std::ops::Range;

#[derive(Debug)]
pub(super) struct Variable<'a> {
    pub(super) name: &'a str,
    pub(super) align: u64,
    /// The bytes of the variable; zero where a launch decides.
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Width {
    Predicate,
    B16,
    B32,
    B64,
}

/// A register by its number among those of its width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Register {
    pub(super) width: Width,
    pub(super) row: u32,
}

#[derive(Debug)]
pub(super) struct Instruction<'a> {
    /// The line of the text, from 1.
    pub(super) line: usize,
    pub(super) text: String,
    /// The predicate under which it is run, and whether it is negated.
    pub(super) guard: Option<(Register, bool)>,
    pub(super) name: &'a str,
    pub(super) operands: Vec<Operand<'a>>,
}

#[derive(Clone, Debug)]
pub(super) enum Operand<'a> {
    Register(Register),
    Special(&'a str),
    Integer(i64),
    Single(u32),
    Double(u64),
    /// A variable or a label.
    Symbol(&'a str),
    /// `[base+offset]`
    Address(Box<Operand<'a>>, i64),
    /// `{a, b}`
    Vector(Vec<Operand<'a>>),
    /// `a|b`
    Pair(Box<Operand<'a>>, Box<Operand<'a>>),
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

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) bytes: Range<usize>,
    pub(super) line: usize,
}
