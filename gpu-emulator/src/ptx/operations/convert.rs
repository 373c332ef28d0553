//! Conversions (PTX ISA 9.7.9, `cvt`). Integers may come from registers that are wider than they are.

use super::super::memory::SHARED_WINDOW;
use super::super::registers::{Value, Word};
use super::super::syntax::Width;
use super::{Operation, one, two};
use half::{bf16, f16};

/// Finds a conversion; `widths` are those of the destination and the source.
pub(super) fn find(name: &[&str], widths: &[Option<Width>]) -> Option<Operation> {
    match name {
        ["cvt", modifiers @ .., to, from] => {
            floats(modifiers, to, from).or_else(|| if modifiers.is_empty() { integers(to, from, widths) } else { None })
        }
        // Generic addresses of the GPU's memory equal global ones. Those of shared memory are corrected by `decode`.
        ["cvta", "to", "global", "u64"] | ["cvta", "global", "u64"] => Some(one!(u64 => u64, |a| a)),
        ["cvta", "shared", "u64"] => Some(one!(u64 => u64, |a| a.wrapping_add(SHARED_WINDOW))),
        ["cvta", "to", "shared", "u64"] => Some(one!(u64 => u64, |a| a.wrapping_sub(SHARED_WINDOW))),
        _ => None,
    }
}

/// To a whole number. Too large numbers become the largest, and NaN 0, like by `as`.
macro_rules! rounded {
    ($to:expr, $round:expr) => {
        match $to {
            "f32" => Some(one!(f32 => f32, $round)),
            "s32" => Some(one!(f32 => i32, |a| ($round)(a) as i32)),
            "u32" => Some(one!(f32 => u32, |a| ($round)(a) as u32)),
            _ => None,
        }
    };
}

fn floats(modifiers: &[&str], to: &str, from: &str) -> Option<Operation> {
    Some(match (modifiers, to, from) {
        ([], "f32", "f16") => one!(u16 => f32, |a| f16::from_bits(a).to_f32()),
        (["rn"], "f16", "f32") => one!(f32 => u16, |a| f16::from_f32(a).to_bits()),
        ([], "f32", "bf16") => one!(u16 => f32, |a| bf16::from_bits(a).to_f32()),
        (["rn"], "bf16", "f32") => one!(f32 => u16, |a| bf16::from_f32(a).to_bits()),
        // The first source is the upper half.
        (["rn"], "f16x2", "f32") => {
            two!(f32, f32 => u32, |a, b| halves(f16::from_f32(a).to_bits(), f16::from_f32(b).to_bits()))
        }
        (["rn"], "bf16x2", "f32") => {
            two!(f32, f32 => u32, |a, b| halves(bf16::from_f32(a).to_bits(), bf16::from_f32(b).to_bits()))
        }
        ([], "f64", "f32") => one!(f32 => f64, f64::from),
        (["rn"], "f32", "f64") => one!(f64 => f32, |a| a as f32),
        // NaN becomes 0.
        (["sat"], "f32", "f32") => one!(f32 => f32, |a: f32| if a > 0.0 { a.min(1.0) } else { 0.0 }),
        (["rni"], to, "f32") => return rounded!(to, f32::round_ties_even),
        (["rzi"], to, "f32") => return rounded!(to, f32::trunc),
        (["rmi"], to, "f32") => return rounded!(to, f32::floor),
        (["rpi"], to, "f32") => return rounded!(to, f32::ceil),
        (["rzi"], "s32", "f64") => one!(f64 => i32, |a| a as i32),
        (["rn"], "f32", "s16") => one!(i16 => f32, f32::from),
        (["rn"], "f32", "u16") => one!(u16 => f32, f32::from),
        (["rn"], "f32", "s32") => one!(i32 => f32, |a| a as f32),
        (["rn"], "f32", "u32") => one!(u32 => f32, |a| a as f32),
        (["rn"], "f32", "s64") => one!(i64 => f32, |a| a as f32),
        (["rn"], "f32", "u64") => one!(u64 => f32, |a| a as f32),
        (["rn"], "f64", "s32") => one!(i32 => f64, f64::from),
        (["rn"], "f64", "u32") => one!(u32 => f64, f64::from),
        (["rn"], "f64", "s64") => one!(i64 => f64, |a| a as f64),
        (["rn"], "f64", "u64") => one!(u64 => f64, |a| a as f64),
        _ => return None,
    })
}

fn halves(upper: u16, lower: u16) -> u32 {
    u32::from(upper) << 16 | u32::from(lower)
}

/// Converts to an integer as wide as its register, from the low bits of another.
fn integers(to: &str, from: &str, widths: &[Option<Width>]) -> Option<Operation> {
    match to {
        "u16" | "s16" => integers_to::<u16>(from, widths),
        "u32" | "s32" => integers_to::<u32>(from, widths),
        "u64" | "s64" => integers_to::<u64>(from, widths),
        _ => None,
    }
    .filter(|operation| widths.first() == Some(&Some(operation.to)))
}

fn integers_to<D: Value<Word = D> + Word>(from: &str, widths: &[Option<Width>]) -> Option<Operation> {
    match widths.get(1)? {
        Some(Width::B16) => extended::<u16, D>(from),
        // A constant fits any width.
        Some(Width::B32) | None => extended::<u32, D>(from),
        Some(Width::B64) => extended::<u64, D>(from),
        Some(Width::Predicate) => None,
    }
}

fn extended<S: Value<Word = S> + Word, D: Value<Word = D> + Word>(from: &str) -> Option<Operation> {
    macro_rules! of {
        ($t:ty, $wide:ty) => {
            (size_of::<$t>() <= size_of::<S>())
                .then(|| one!(S => D, |a| D::from_bits(<$wide>::from(a.into() as $t) as u64)))
        };
    }
    match from {
        "u8" => of!(u8, u64),
        "s8" => of!(i8, i64),
        "u16" => of!(u16, u64),
        "s16" => of!(i16, i64),
        "u32" => of!(u32, u64),
        "s32" => of!(i32, i64),
        "u64" => of!(u64, u64),
        "s64" => of!(i64, i64),
        _ => None,
    }
}
