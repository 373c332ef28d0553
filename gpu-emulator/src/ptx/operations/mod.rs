//! What each instruction computes (PTX ISA, chapter 9): a table for each kind, from its name to a function.

use super::program::Compute;
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
    /// Of the destination.
    pub(super) to: Width,
    /// Of the sources.
    pub(super) from: Vec<Width>,
}

/// The instruction with this name, split at its points, for registers of these widths.
pub(super) fn find(name: &[&str], widths: &[Option<Width>]) -> Option<Operation> {
    integer::find(name).or_else(|| float::find(name)).or_else(|| convert::find(name, widths))
}

/// `d = f(a)` for values of these types.
macro_rules! one {
    ($a:ty => $d:ty, $f:expr) => {
        Operation {
            compute: |registers, op, mask| registers.one::<$a, $d>(op, mask, $f),
            to: <$d as Value>::WIDTH,
            from: vec![<$a as Value>::WIDTH],
        }
    };
}

/// `d = f(a, b)`
macro_rules! two {
    ($a:ty, $b:ty => $d:ty, $f:expr) => {
        Operation {
            compute: |registers, op, mask| registers.two::<$a, $b, $d>(op, mask, $f),
            to: <$d as Value>::WIDTH,
            from: vec![<$a as Value>::WIDTH, <$b as Value>::WIDTH],
        }
    };
}

/// `d = f(a, b, c)`
macro_rules! three {
    ($a:ty, $b:ty, $c:ty => $d:ty, $f:expr) => {
        Operation {
            compute: |registers, op, mask| registers.three::<$a, $b, $c, $d>(op, mask, $f),
            to: <$d as Value>::WIDTH,
            from: vec![<$a as Value>::WIDTH, <$b as Value>::WIDTH, <$c as Value>::WIDTH],
        }
    };
}

/// A predicate, `d = f(a, b)`.
macro_rules! compare {
    ($a:ty, $f:expr) => {
        Operation {
            compute: |registers, op, mask| registers.compare::<$a>(op, mask, $f),
            to: Width::Predicate,
            from: vec![<$a as Value>::WIDTH; 2],
        }
    };
}

use {compare, one, three, two};
