//! The result of each instruction (PTX ISA, chapter 9): a table for each kind, from its name to a function.

use super::program::Compute;
use super::registers::Value;
use super::syntax::Width;

mod convert;
mod float;
mod integer;
mod lanes;
mod matrix;
mod pack;

pub(super) use lanes::{shuffle, vote};
pub(super) use matrix::multiply;
pub(super) use pack::pack_and_unpack;

/// An instruction that computes in registers.
pub(super) struct Operation {
    pub(super) compute: Compute,
    pub(super) to: Width,
    pub(super) from: Vec<Width>,
}

/// The instruction with this name, split at its points, for registers of these widths.
pub(super) fn find(name: &[&str], widths: &[Option<Width>]) -> Option<Operation> {
    integer::find(name).or_else(|| float::find(name)).or_else(|| convert::find(name, widths))
}

/// A function of [`Registers`](super::registers::Registers) for values of these types.
macro_rules! operation {
    ($function:ident: $($source:ty),* => $d:ty, $f:expr) => {
        Operation {
            compute: |registers, op, mask| registers.$function::<$($source,)* $d>(op, mask, $f),
            to: <$d as Value>::WIDTH,
            from: vec![$(<$source as Value>::WIDTH),*],
        }
    };
}

macro_rules! one {
    ($($rest:tt)*) => { $crate::ptx::operations::operation!(one: $($rest)*) };
}

macro_rules! two {
    ($($rest:tt)*) => { $crate::ptx::operations::operation!(two: $($rest)*) };
}

macro_rules! three {
    ($($rest:tt)*) => { $crate::ptx::operations::operation!(three: $($rest)*) };
}

/// The predicate `d = a ? b`. Comparisons that end with `u` also hold for NaN.
#[allow(clippy::neg_cmp_op_on_partial_ord, clippy::double_comparisons)] // no number is neither less nor greater
fn compare<T: Value + PartialOrd>(comparison: &str) -> Option<Operation> {
    macro_rules! of {
        ($f:expr) => {
            |registers, op, mask| registers.compare::<T>(op, mask, $f)
        };
    }
    let compute: Compute = match comparison {
        "eq" => of!(|a, b| a == b),
        "ne" => of!(|a, b| a < b || a > b),
        "lt" | "lo" => of!(|a, b| a < b),
        "le" | "ls" => of!(|a, b| a <= b),
        "gt" | "hi" => of!(|a, b| a > b),
        "ge" | "hs" => of!(|a, b| a >= b),
        "equ" => of!(|a, b| !(a < b || a > b)),
        "neu" => of!(|a, b| a != b),
        "ltu" => of!(|a, b| !(a >= b)),
        "leu" => of!(|a, b| !(a > b)),
        "gtu" => of!(|a, b| !(a <= b)),
        "geu" => of!(|a, b| !(a < b)),
        "num" => of!(|a, b| a.partial_cmp(&b).is_some()),
        "nan" => of!(|a, b| a.partial_cmp(&b).is_none()),
        _ => return None,
    };
    Some(Operation { compute, to: Width::Predicate, from: vec![T::WIDTH; 2] })
}

use {one, operation, three, two};
