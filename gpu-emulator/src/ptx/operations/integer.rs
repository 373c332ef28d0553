//! Integers, bits, predicates, and moves of all types (PTX ISA 9.7.1, 9.7.2, 9.7.6, 9.7.8).

use super::super::program::Op;
use super::super::registers::{Registers, Value};
use super::super::syntax::Width;
use super::{Operation, compare, one, three, two};

pub(super) fn find(name: &[&str]) -> Option<Operation> {
    let (kind, rest) = name.split_last()?;
    match (*kind, rest) {
        (_, ["dp4a" | "dp2a", ..]) => dot(name),
        ("pred", _) => predicates(name[0]),
        ("u16", _) => of_16(rest, false),
        ("s16", _) => of_16(rest, true),
        ("b16", _) => of_16(rest, false),
        ("u32" | "b32", _) => of_32(rest, false),
        ("s32", _) => of_32(rest, true),
        ("u64" | "b64", _) => of_64(rest, false),
        ("s64", _) => of_64(rest, true),
        ("f32", ["mov"]) => Some(one!(u32 => u32, |a| a)),
        ("f64", ["mov"]) => Some(one!(u64 => u64, |a| a)),
        ("f32", ["selp"]) => Some(select::<u32>()),
        ("f64", ["selp"]) => Some(select::<u64>()),
        _ => None,
    }
}

fn predicates(name: &str) -> Option<Operation> {
    fn of(compute: super::Compute, sources: usize) -> Option<Operation> {
        Some(Operation { compute, to: Width::Predicate, from: vec![Width::Predicate; sources] })
    }
    match name {
        "mov" => of(|r, op, mask| r.set_predicate(op.d, mask, predicate(r, op.a)), 1),
        "not" => of(|r, op, mask| r.set_predicate(op.d, mask, !predicate(r, op.a)), 1),
        "and" => of(|r, op, mask| r.set_predicate(op.d, mask, predicate(r, op.a) & predicate(r, op.b)), 2),
        "or" => of(|r, op, mask| r.set_predicate(op.d, mask, predicate(r, op.a) | predicate(r, op.b)), 2),
        "xor" => of(|r, op, mask| r.set_predicate(op.d, mask, predicate(r, op.a) ^ predicate(r, op.b)), 2),
        _ => None,
    }
}

fn predicate(registers: &Registers, row: u32) -> u32 {
    registers.predicates[row as usize]
}

/// `d = c ? a : b`
fn select<T: Value>() -> Operation {
    fn compute<T: Value>(registers: &mut Registers, op: &Op, mask: u32) {
        let chosen = predicate(registers, op.c);
        let (a, b) = (registers.row::<T>(op.a), registers.row::<T>(op.b));
        registers.set(op.d, mask, |lane| if chosen >> lane & 1 != 0 { a[lane] } else { b[lane] });
    }
    Operation { compute: compute::<T>, to: T::WIDTH, from: vec![T::WIDTH, T::WIDTH, Width::Predicate] }
}

/// What all widths have. `$u` and `$s` are unsigned and signed, `$w` and `$ws` twice as wide.
macro_rules! of_width {
    ($name:expr, $signed:expr, $u:ty, $s:ty) => {
        match ($name, $signed) {
            (["mov"], _) => Some(one!($u => $u, |a| a)),
            (["selp"], _) => Some(select::<$u>()),
            (["add"], _) => Some(two!($u, $u => $u, <$u>::wrapping_add)),
            (["sub"], _) => Some(two!($u, $u => $u, <$u>::wrapping_sub)),
            (["mul", "lo"], _) => Some(two!($u, $u => $u, <$u>::wrapping_mul)),
            (["mad", "lo"], _) => Some(three!($u, $u, $u => $u, |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
            (["neg"], true) => Some(one!($u => $u, <$u>::wrapping_neg)),
            (["abs"], true) => Some(one!($s => $s, <$s>::wrapping_abs)),
            (["min"], true) => Some(two!($s, $s => $s, Ord::min)),
            (["min"], false) => Some(two!($u, $u => $u, Ord::min)),
            (["max"], true) => Some(two!($s, $s => $s, Ord::max)),
            (["max"], false) => Some(two!($u, $u => $u, Ord::max)),
            // What dividing by zero gives is the machine's own; all bits set shows.
            (["div"], true) => Some(two!($s, $s => $s, |a, b| if b == 0 { -1 } else { a.wrapping_div(b) })),
            (["div"], false) => Some(two!($u, $u => $u, |a, b| a.checked_div(b).unwrap_or(<$u>::MAX))),
            (["rem"], true) => Some(two!($s, $s => $s, |a, b| if b == 0 { -1 } else { a.wrapping_rem(b) })),
            (["rem"], false) => Some(two!($u, $u => $u, |a, b| a.checked_rem(b).unwrap_or(<$u>::MAX))),
            (["and"], _) => Some(two!($u, $u => $u, |a, b| a & b)),
            (["or"], _) => Some(two!($u, $u => $u, |a, b| a | b)),
            (["xor"], _) => Some(two!($u, $u => $u, |a, b| a ^ b)),
            (["not"], _) => Some(one!($u => $u, |a: $u| !a)),
            // Shifts by the width or more leave zeros, or signs.
            (["shl"], _) => Some(two!($u, u32 => $u, |a, by| a.checked_shl(by).unwrap_or(0))),
            (["shr"], false) => Some(two!($u, u32 => $u, |a, by| a.checked_shr(by).unwrap_or(0))),
            (["shr"], true) => Some(two!($s, u32 => $s, |a, by| a >> by.min(<$s>::BITS - 1))),
            (["setp", "eq"], _) => Some(compare!($u, |a, b| a == b)),
            (["setp", "ne"], _) => Some(compare!($u, |a, b| a != b)),
            (["setp", "lt"], true) => Some(compare!($s, |a, b| a < b)),
            (["setp", "le"], true) => Some(compare!($s, |a, b| a <= b)),
            (["setp", "gt"], true) => Some(compare!($s, |a, b| a > b)),
            (["setp", "ge"], true) => Some(compare!($s, |a, b| a >= b)),
            (["setp", "lt" | "lo"], false) => Some(compare!($u, |a, b| a < b)),
            (["setp", "le" | "ls"], false) => Some(compare!($u, |a, b| a <= b)),
            (["setp", "gt" | "hi"], false) => Some(compare!($u, |a, b| a > b)),
            (["setp", "ge" | "hs"], false) => Some(compare!($u, |a, b| a >= b)),
            _ => None,
        }
    };
}

fn of_16(name: &[&str], signed: bool) -> Option<Operation> {
    match (name, signed) {
        (["mul", "hi"], false) => Some(two!(u16, u16 => u16, |a, b| ((u32::from(a) * u32::from(b)) >> 16) as u16)),
        (["mul", "hi"], true) => Some(two!(i16, i16 => i16, |a, b| ((i32::from(a) * i32::from(b)) >> 16) as i16)),
        (["mul", "wide"], false) => Some(two!(u16, u16 => u32, |a, b| u32::from(a) * u32::from(b))),
        (["mul", "wide"], true) => Some(two!(i16, i16 => i32, |a, b| i32::from(a) * i32::from(b))),
        _ => of_width!(name, signed, u16, i16),
    }
}

fn of_32(name: &[&str], signed: bool) -> Option<Operation> {
    Some(match (name, signed) {
        (["mul", "wide"], false) => two!(u32, u32 => u64, |a, b| u64::from(a) * u64::from(b)),
        (["mul", "wide"], true) => two!(i32, i32 => i64, |a, b| i64::from(a) * i64::from(b)),
        (["mul", "hi"], false) => two!(u32, u32 => u32, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        (["mul", "hi"], true) => two!(i32, i32 => i32, |a, b| ((i64::from(a) * i64::from(b)) >> 32) as i32),
        (["mad", "wide"], false) => {
            three!(u32, u32, u64 => u64, |a, b, c| (u64::from(a) * u64::from(b)).wrapping_add(c))
        }
        (["mad", "wide"], true) => {
            three!(i32, i32, i64 => i64, |a, b, c| (i64::from(a) * i64::from(b)).wrapping_add(c))
        }
        (["popc"], _) => one!(u32 => u32, u32::count_ones),
        (["clz"], _) => one!(u32 => u32, u32::leading_zeros),
        (["brev"], _) => one!(u32 => u32, u32::reverse_bits),
        (["shf", "r", "wrap"], _) => {
            three!(u32, u32, u32 => u32, |low, high, by| (pair(low, high) >> (by & 31)) as u32)
        }
        (["shf", "r", "clamp"], _) => {
            three!(u32, u32, u32 => u32, |low, high, by| (pair(low, high) >> by.min(32)) as u32)
        }
        (["shf", "l", "wrap"], _) => {
            three!(u32, u32, u32 => u32, |low, high, by| (pair(low, high) << (by & 31) >> 32) as u32)
        }
        (["shf", "l", "clamp"], _) => {
            three!(u32, u32, u32 => u32, |low, high, by| (pair(low, high) << by.min(32) >> 32) as u32)
        }
        (["prmt"], _) => three!(u32, u32, u32 => u32, permute),
        (["bfe"], _) if signed => three!(i32, u32, u32 => i32, signed_field),
        (["bfe"], _) => three!(u32, u32, u32 => u32, field),
        (["bfi"], _) => Operation {
            compute: |r, op, mask| {
                let (a, b, at) = (r.row::<u32>(op.a), r.row::<u32>(op.b), r.row::<u32>(op.c));
                let bits = r.row::<u32>(op.rows[0]);
                r.set(op.d, mask, |lane| insert(a[lane].into(), b[lane].into(), at[lane], bits[lane]) as u32);
            },
            to: Width::B32,
            from: vec![Width::B32; 4],
        },
        _ => return of_width!(name, signed, u32, i32),
    })
}

fn of_64(name: &[&str], signed: bool) -> Option<Operation> {
    Some(match (name, signed) {
        (["mul", "hi"], false) => two!(u64, u64 => u64, |a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        (["mul", "hi"], true) => two!(i64, i64 => i64, |a, b| ((i128::from(a) * i128::from(b)) >> 64) as i64),
        (["popc"], _) => one!(u64 => u32, u64::count_ones),
        (["clz"], _) => one!(u64 => u32, u64::leading_zeros),
        (["bfi"], _) => Operation {
            compute: |r, op, mask| {
                let (a, b, at) = (r.row::<u64>(op.a), r.row::<u64>(op.b), r.row::<u32>(op.c));
                let bits = r.row::<u32>(op.rows[0]);
                r.set(op.d, mask, |lane| insert(a[lane], b[lane], at[lane], bits[lane]));
            },
            to: Width::B64,
            from: vec![Width::B64, Width::B64, Width::B32, Width::B32],
        },
        _ => return of_width!(name, signed, u64, i64),
    })
}

/// Sums of products of bytes, and of halves with bytes.
fn dot(name: &[&str]) -> Option<Operation> {
    macro_rules! dot {
        ($f:expr) => {
            Some(three!(u32, u32, u32 => u32, |a, b, c| ($f)(a, b).wrapping_add(c)))
        };
    }
    match name {
        ["dp4a", "s32", "s32"] => dot!(|a, b| sum4(signed_byte, signed_byte, a, b)),
        ["dp4a", "s32", "u32"] => dot!(|a, b| sum4(signed_byte, byte, a, b)),
        ["dp4a", "u32", "s32"] => dot!(|a, b| sum4(byte, signed_byte, a, b)),
        ["dp4a", "u32", "u32"] => dot!(|a, b| sum4(byte, byte, a, b)),
        ["dp2a", "lo", "s32", "s32"] => dot!(|a, b| sum2(signed_byte, a, b)),
        ["dp2a", "hi", "s32", "s32"] => dot!(|a, b| sum2(signed_byte, a, b >> 16)),
        ["dp2a", "lo", "s32", "u32"] => dot!(|a, b| sum2(byte, a, b)),
        ["dp2a", "hi", "s32", "u32"] => dot!(|a, b| sum2(byte, a, b >> 16)),
        _ => None,
    }
}

#[inline(always)]
fn byte(word: u32, index: u32) -> i32 {
    i32::from((word >> (8 * index)) as u8)
}

#[inline(always)]
fn signed_byte(word: u32, index: u32) -> i32 {
    i32::from((word >> (8 * index)) as i8)
}

#[inline(always)]
fn sum4(of_a: impl Fn(u32, u32) -> i32, of_b: impl Fn(u32, u32) -> i32, a: u32, b: u32) -> u32 {
    let product = |index| of_a(a, index) * of_b(b, index);
    (product(0) + product(1) + product(2) + product(3)) as u32
}

/// The halves of `a` with the two low bytes of `b`.
#[inline(always)]
fn sum2(of_b: impl Fn(u32, u32) -> i32, a: u32, b: u32) -> u32 {
    (i32::from(a as i16) * of_b(b, 0)).wrapping_add(i32::from((a >> 16) as i16) * of_b(b, 1)) as u32
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

/// `bits` bits from `at` on; both are taken from their lowest byte.
fn field(a: u32, at: u32, bits: u32) -> u32 {
    let bits = bits & 0xff;
    let mask = 1u32.checked_shl(bits).map_or(!0, |bit| bit - 1);
    a.checked_shr(at & 0xff).unwrap_or(0) & mask
}

/// As [`field`], with the sign of its highest bit, which is that of `a` beyond its end.
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
