//! Integers, bits, predicates, and moves of all types (PTX ISA 9.7.1, 9.7.2, 9.7.6, 9.7.8).

use super::super::program::Op;
use super::super::registers::{Registers, Value, Word};
use super::super::syntax::Width;
use super::{Operation, compare, one, three, two};

pub(super) fn find(name: &[&str]) -> Option<Operation> {
    let (kind, rest) = name.split_last()?;
    match (*kind, rest) {
        (_, ["dp4a" | "dp2a", ..]) => dot(name),
        ("pred", [name]) => predicates(name),
        ("u16" | "b16", _) => wide!(rest, u16, u32).or_else(|| integer!(rest, u16, u32)),
        ("s16", _) => wide!(rest, i16, i32).or_else(|| signed!(rest, i16)).or_else(|| integer!(rest, i16, i32)),
        ("u32" | "b32", _) => bits_32(rest).or_else(|| wide!(rest, u32, u64)).or_else(|| integer!(rest, u32, u64)),
        ("s32", ["bfe"]) => Some(three!(i32, u32, u32 => i32, signed_field)),
        ("s32", _) => wide!(rest, i32, i64).or_else(|| signed!(rest, i32)).or_else(|| integer!(rest, i32, i64)),
        ("u64" | "b64", _) => bits_64(rest).or_else(|| integer!(rest, u64, u128)),
        ("s64", _) => signed!(rest, i64).or_else(|| integer!(rest, i64, i128)),
        ("f32", ["mov" | "selp"]) => integer!(rest, u32, u64),
        ("f64", ["mov" | "selp"]) => integer!(rest, u64, u128),
        _ => None,
    }
}

/// The operations of all integers; `$wide` has twice as many bits.
macro_rules! integer {
    ($name:expr, $t:ty, $wide:ty) => {
        match $name {
            ["mov"] => Some(one!($t => $t, |a| a)),
            ["selp"] => Some(select::<$t>()),
            ["add"] => Some(two!($t, $t => $t, <$t>::wrapping_add)),
            ["sub"] => Some(two!($t, $t => $t, <$t>::wrapping_sub)),
            ["mul", "lo"] => Some(two!($t, $t => $t, <$t>::wrapping_mul)),
            ["mul", "hi"] => {
                Some(two!($t, $t => $t, |a, b| ((<$wide>::from(a) * <$wide>::from(b)) >> <$t>::BITS) as $t))
            }
            ["mad", "lo"] => Some(three!($t, $t, $t => $t, |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
            ["min"] => Some(two!($t, $t => $t, Ord::min)),
            ["max"] => Some(two!($t, $t => $t, Ord::max)),
            // The result of a division by zero is machine-specific; here all bits are set, so that it shows.
            ["div"] => Some(two!($t, $t => $t, |a, b| if b == 0 { !0 } else { a.wrapping_div(b) })),
            ["rem"] => Some(two!($t, $t => $t, |a, b| if b == 0 { !0 } else { a.wrapping_rem(b) })),
            ["and"] => Some(two!($t, $t => $t, |a, b| a & b)),
            ["or"] => Some(two!($t, $t => $t, |a, b| a | b)),
            ["xor"] => Some(two!($t, $t => $t, |a, b| a ^ b)),
            ["not"] => Some(one!($t => $t, |a: $t| !a)),
            // Shifts by the width or more leave zeros, or signs.
            ["shl"] => Some(two!($t, u32 => $t, |a, by| a.checked_shl(by).unwrap_or(0))),
            ["shr"] => Some(two!($t, u32 => $t, |a, by| a.checked_shr(by).unwrap_or(a >> (<$t>::BITS - 1) >> 1))),
            ["setp", comparison] => compare::<$t>(comparison),
            _ => None,
        }
    };
}

/// The operations of signed integers only.
macro_rules! signed {
    ($name:expr, $t:ty) => {
        match $name {
            ["neg"] => Some(one!($t => $t, <$t>::wrapping_neg)),
            ["abs"] => Some(one!($t => $t, <$t>::wrapping_abs)),
            _ => None,
        }
    };
}

/// Products with all their bits.
macro_rules! wide {
    ($name:expr, $t:ty, $wide:ty) => {
        match $name {
            ["mul", "wide"] => Some(two!($t, $t => $wide, |a, b| <$wide>::from(a) * <$wide>::from(b))),
            ["mad", "wide"] => {
                Some(three!($t, $t, $wide => $wide, |a, b, c| (<$wide>::from(a) * <$wide>::from(b)).wrapping_add(c)))
            }
            _ => None,
        }
    };
}

use {integer, signed, wide};

fn bits_32(name: &[&str]) -> Option<Operation> {
    Some(match name {
        ["popc"] => one!(u32 => u32, u32::count_ones),
        ["clz"] => one!(u32 => u32, u32::leading_zeros),
        ["brev"] => one!(u32 => u32, u32::reverse_bits),
        ["shf", "r", "wrap"] => three!(u32, u32, u32 => u32, |low, high, by| (pair(low, high) >> (by & 31)) as u32),
        ["shf", "r", "clamp"] => three!(u32, u32, u32 => u32, |low, high, by| (pair(low, high) >> by.min(32)) as u32),
        ["shf", "l", "wrap"] => {
            three!(u32, u32, u32 => u32, |low, high, by| (pair(low, high) << (by & 31) >> 32) as u32)
        }
        ["shf", "l", "clamp"] => {
            three!(u32, u32, u32 => u32, |low, high, by| (pair(low, high) << by.min(32) >> 32) as u32)
        }
        ["prmt"] => three!(u32, u32, u32 => u32, permute),
        ["bfe"] => three!(u32, u32, u32 => u32, field),
        ["bfi"] => insertion::<u32>(),
        _ => return None,
    })
}

fn bits_64(name: &[&str]) -> Option<Operation> {
    Some(match name {
        ["popc"] => one!(u64 => u32, u64::count_ones),
        ["clz"] => one!(u64 => u32, u64::leading_zeros),
        ["bfi"] => insertion::<u64>(),
        _ => return None,
    })
}

fn predicates(name: &str) -> Option<Operation> {
    macro_rules! of {
        ($sources:literal, $f:expr) => {
            Some(Operation {
                compute: |r, op, mask| r.set_predicate(op.d, mask, ($f)(r.predicate(op.a), r.predicate(op.b))),
                to: Width::Predicate,
                from: vec![Width::Predicate; $sources],
            })
        };
    }
    match name {
        "mov" => of!(1, |a: u32, _| a),
        "not" => of!(1, |a: u32, _| !a),
        "and" => of!(2, |a: u32, b: u32| a & b),
        "or" => of!(2, |a: u32, b: u32| a | b),
        "xor" => of!(2, |a: u32, b: u32| a ^ b),
        _ => None,
    }
}

/// `d = c ? a : b`
fn select<T: Value>() -> Operation {
    fn compute<T: Value>(registers: &mut Registers, op: &Op, mask: u32) {
        let chosen = registers.predicate(op.c);
        let (a, b) = (registers.row::<T>(op.a), registers.row::<T>(op.b));
        registers.set(op.d, mask, |lane| if chosen >> lane & 1 != 0 { a[lane] } else { b[lane] });
    }
    Operation { compute: compute::<T>, to: T::WIDTH, from: vec![T::WIDTH, T::WIDTH, Width::Predicate] }
}

/// `d` = `b` with the low bits of `a` inserted, see [`insert`].
fn insertion<T: Value<Word = T> + Word>() -> Operation {
    fn compute<T: Value<Word = T> + Word>(registers: &mut Registers, op: &Op, mask: u32) {
        let (a, b) = (registers.row::<T>(op.a), registers.row::<T>(op.b));
        let (at, bits) = (registers.row::<u32>(op.c), registers.row::<u32>(op.rows[0]));
        let inserted = |lane: usize| insert(a[lane].into(), b[lane].into(), at[lane], bits[lane]);
        registers.set(op.d, mask, |lane| T::from_bits(inserted(lane)));
    }
    Operation { compute: compute::<T>, to: T::WIDTH, from: vec![T::WIDTH, T::WIDTH, Width::B32, Width::B32] }
}

/// Sums of products of bytes, and of halves with bytes, modulo 2^32.
fn dot(name: &[&str]) -> Option<Operation> {
    /// The products of `$count` elements, `$bits` bits each in `a`, and bytes in `b` from `$from` on.
    macro_rules! dot {
        ($count:literal, $a:ty, $bits:literal, $b:ty, $from:literal) => {
            Some(three!(u32, u32, u32 => u32, |a, b, c: u32| {
                let product = |index| i32::from((a >> ($bits * index)) as $a) * i32::from((b >> (8 * index + $from)) as $b);
                (0..$count).fold(c, |sum, index| sum.wrapping_add(product(index) as u32))
            }))
        };
    }
    match name {
        ["dp4a", "s32", "s32"] => dot!(4, i8, 8, i8, 0),
        ["dp4a", "s32", "u32"] => dot!(4, i8, 8, u8, 0),
        ["dp4a", "u32", "s32"] => dot!(4, u8, 8, i8, 0),
        ["dp4a", "u32", "u32"] => dot!(4, u8, 8, u8, 0),
        ["dp2a", "lo", "s32", "s32"] => dot!(2, i16, 16, i8, 0),
        ["dp2a", "hi", "s32", "s32"] => dot!(2, i16, 16, i8, 16),
        ["dp2a", "lo", "s32", "u32"] => dot!(2, i16, 16, u8, 0),
        ["dp2a", "hi", "s32", "u32"] => dot!(2, i16, 16, u8, 16),
        _ => None,
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Bytes that the digits of `selector` choose from eight; a digit of 8 and more repeats the byte's sign.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = pair(a, b).to_le_bytes();
    u32::from_le_bytes(std::array::from_fn(|index| {
        let digit = selector >> (4 * index) & 15;
        let byte = bytes[(digit & 7) as usize];
        if digit & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 }
    }))
}

/// The `bits` bits from `at` on; both arguments are taken from their lowest byte.
fn field(a: u32, at: u32, bits: u32) -> u32 {
    let bits = bits & 0xff;
    let mask = 1u32.checked_shl(bits).map_or(!0, |bit| bit - 1);
    a.checked_shr(at & 0xff).unwrap_or(0) & mask
}

/// Like [`field`], with the sign of its highest bit; where it ends beyond `a`, with the sign of `a`.
fn signed_field(a: i32, at: u32, bits: u32) -> i32 {
    let (at, bits) = (at & 0xff, bits & 0xff);
    if bits == 0 {
        return 0;
    }
    let shifted = i64::from(a) >> at.min(63);
    let unused = 64 - bits.min(64);
    (shifted << unused >> unused) as i32
}

/// `b` with the low `bits` bits of `a` from `at` on.
fn insert(a: u64, b: u64, at: u32, bits: u32) -> u64 {
    let (at, bits) = (at & 0xff, bits & 0xff);
    let mask = 1u64.checked_shl(bits).map_or(!0, |bit| bit - 1).checked_shl(at).unwrap_or(0);
    b & !mask | a.checked_shl(at).unwrap_or(0) & mask
}
