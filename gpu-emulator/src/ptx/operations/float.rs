//! Floats (PTX ISA 9.7.3). `.rn` of `add`, `sub`, `mul` is what IEEE 754 says, and `fma` rounds once.
//!
//! Where a GPU may differ: results that are no number are the canonical one of PTX for `min` and `max` only; approximations
//! (`.approx`, `.full`) are rounded from double precision, where a GPU is off by up to two units in the last place.

use super::super::registers::Value;
use super::super::syntax::Width;
use super::{Operation, compare, one, three, two};

/// What `min` and `max` of no numbers are.
const NO_NUMBER: f32 = f32::from_bits(0x7fff_ffff);

pub(super) fn find(name: &[&str]) -> Option<Operation> {
    let (kind, rest) = name.split_last()?;
    match *kind {
        "f32" => single(rest),
        "f64" => double(rest),
        _ => None,
    }
}

/// Comparisons: those that end with `u` also hold where one is no number.
macro_rules! comparison {
    ($name:expr, $t:ty) => {
        match $name {
            "eq" => Some(compare!($t, |a, b| a == b)),
            "ne" => Some(compare!($t, |a, b| a != b && !a.is_nan() && !b.is_nan())),
            "lt" => Some(compare!($t, |a, b| a < b)),
            "le" => Some(compare!($t, |a, b| a <= b)),
            "gt" => Some(compare!($t, |a, b| a > b)),
            "ge" => Some(compare!($t, |a, b| a >= b)),
            "equ" => Some(compare!($t, |a, b| a == b || a.is_nan() || b.is_nan())),
            "neu" => Some(compare!($t, |a, b| a != b)),
            "ltu" => Some(compare!($t, |a, b| !(a >= b))),
            "leu" => Some(compare!($t, |a, b| !(a > b))),
            "gtu" => Some(compare!($t, |a, b| !(a <= b))),
            "geu" => Some(compare!($t, |a, b| !(a < b))),
            "num" => Some(compare!($t, |a, b| !a.is_nan() && !b.is_nan())),
            "nan" => Some(compare!($t, |a, b| a.is_nan() || b.is_nan())),
            _ => None,
        }
    };
}

#[allow(clippy::neg_cmp_op_on_partial_ord)] // "or no number" is what is meant
fn single(name: &[&str]) -> Option<Operation> {
    Some(match name {
        ["add"] | ["add", "rn"] => two!(f32, f32 => f32, |a, b| a + b),
        ["sub"] | ["sub", "rn"] => two!(f32, f32 => f32, |a, b| a - b),
        ["mul"] | ["mul", "rn"] => two!(f32, f32 => f32, |a, b| a * b),
        ["div", "rn"] => two!(f32, f32 => f32, |a, b| a / b),
        ["div", "full" | "approx"] => two!(f32, f32 => f32, |a, b| (f64::from(a) / f64::from(b)) as f32),
        ["rcp", "rn"] | ["rcp", "approx"] => one!(f32 => f32, |a| 1.0 / a),
        ["sqrt", "rn"] | ["sqrt", "approx"] => one!(f32 => f32, f32::sqrt),
        ["rcp", "approx", "ftz"] => one!(f32 => f32, |a| flushed(1.0 / flushed(a))),
        ["sqrt", "approx", "ftz"] => one!(f32 => f32, |a| flushed(a).sqrt()),
        ["rsqrt", "approx"] => one!(f32 => f32, |a| (1.0 / f64::from(a).sqrt()) as f32),
        ["rsqrt", "approx", "ftz"] => one!(f32 => f32, |a| (1.0 / f64::from(flushed(a)).sqrt()) as f32),
        ["ex2", "approx"] => one!(f32 => f32, |a| f64::from(a).exp2() as f32),
        ["ex2", "approx", "ftz"] => one!(f32 => f32, |a| flushed(f64::from(flushed(a)).exp2() as f32)),
        ["lg2", "approx"] => one!(f32 => f32, |a| f64::from(a).log2() as f32),
        ["lg2", "approx", "ftz"] => one!(f32 => f32, |a| f64::from(flushed(a)).log2() as f32),
        ["fma", "rn"] => Operation {
            compute: |registers, op, mask| {
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    let rows = (registers.row(op.a), registers.row(op.b), registers.row(op.c));
                    #[allow(unsafe_code)]
                    // SAFETY: both were detected.
                    let all = unsafe { fused(&rows.0, &rows.1, &rows.2) };
                    return registers.set(op.d, mask, |lane| all[lane]);
                }
                registers.three::<f32, f32, f32, f32>(op, mask, f32::mul_add);
            },
            to: Width::B32,
            from: vec![Width::B32; 3],
        },
        ["fma", "rm"] => three!(f32, f32, f32 => f32, fma_down),
        ["min"] => two!(f32, f32 => f32, min),
        ["max"] => two!(f32, f32 => f32, max),
        ["neg"] => one!(f32 => f32, |a: f32| -a),
        ["abs"] => one!(f32 => f32, f32::abs),
        ["setp", comparison] => return comparison!(*comparison, f32),
        _ => return None,
    })
}

#[allow(clippy::neg_cmp_op_on_partial_ord)] // "or no number" is what is meant
fn double(name: &[&str]) -> Option<Operation> {
    Some(match name {
        ["add"] | ["add", "rn"] => two!(f64, f64 => f64, |a, b| a + b),
        ["sub"] | ["sub", "rn"] => two!(f64, f64 => f64, |a, b| a - b),
        ["mul"] | ["mul", "rn"] => two!(f64, f64 => f64, |a, b| a * b),
        ["div", "rn"] => two!(f64, f64 => f64, |a, b| a / b),
        ["rcp", "rn"] => one!(f64 => f64, |a| 1.0 / a),
        ["sqrt", "rn"] => one!(f64 => f64, f64::sqrt),
        ["fma", "rn"] => three!(f64, f64, f64 => f64, f64::mul_add),
        ["neg"] => one!(f64 => f64, |a: f64| -a),
        ["abs"] => one!(f64 => f64, f64::abs),
        ["setp", comparison] => return comparison!(*comparison, f64),
        _ => return None,
    })
}

/// `a * b + c` in each lane, rounded once.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fused(a: &[f32; 32], b: &[f32; 32], c: &[f32; 32]) -> [f32; 32] {
    std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
}

/// Numbers below the smallest normal one are zeros of their sign.
pub(super) fn flushed(a: f32) -> f32 {
    if a.is_subnormal() { 0f32.copysign(a) } else { a }
}

/// The lesser; the one that is a number; -0 is less than 0.
fn min(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => NO_NUMBER,
        (true, false) => b,
        (false, true) => a,
        _ if a == b => f32::from_bits(a.to_bits() | b.to_bits()),
        _ => a.min(b),
    }
}

fn max(a: f32, b: f32) -> f32 {
    if a.is_nan() && b.is_nan() { NO_NUMBER } else { -min(-a, -b) }
}

/// `a * b + c` rounded down.
fn fma_down(a: f32, b: f32, c: f32) -> f32 {
    let nearest = a.mul_add(b, c);
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    if !product.is_finite() || !c.is_finite() {
        return nearest;
    }
    // The product is exact, and `sum + rest` is the exact sum.
    let sum = product + c;
    let part = sum - product;
    let rest = (product - (sum - part)) + (c - part);
    let above = f64::from(nearest) - sum;
    if above > 0.0 || above == 0.0 && rest < 0.0 {
        return nearest.next_down();
    }
    // What cancels is -0 when rounded down, but 0 + 0.
    if sum == 0.0 && (product.is_sign_negative() || c.is_sign_negative()) { -0.0 } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::{fma_down, max, min};

    #[test]
    fn rounds_down() {
        let cases = [
            (1.0, 1.0, 1e-10, 1.0),
            (1.0, 1.0, -1e-10, 1.0f32.next_down()),
            (-1.0, 1.0, -1e-10, (-1.0f32).next_down()),
            (1.0, 3.0, -3.0, -0.0),
            (0.0, 1.0, 0.0, 0.0),
            (f32::MAX, 2.0, 0.0, f32::MAX),
            (-f32::MAX, 2.0, 0.0, f32::NEG_INFINITY),
            (1.5, 3.0, 12_582_912.0, 12_582_916.0),
        ];
        for (a, b, c, expected) in cases {
            assert_eq!(fma_down(a, b, c).to_bits(), f32::to_bits(expected), "{a} * {b} + {c}: {}", fma_down(a, b, c));
        }
    }

    #[test]
    fn the_lesser_is_a_number() {
        assert_eq!(min(f32::NAN, 1.0), 1.0);
        assert_eq!(min(1.0, f32::NAN), 1.0);
        assert_eq!(min(f32::NAN, f32::NAN).to_bits(), 0x7fff_ffff);
        assert_eq!(min(0.0, -0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(min(-2.0, 1.0), -2.0);
        assert_eq!(max(f32::NAN, 1.0), 1.0);
        assert_eq!(max(f32::NAN, f32::NAN).to_bits(), 0x7fff_ffff);
        assert_eq!(max(0.0, -0.0).to_bits(), 0);
        assert_eq!(max(-2.0, 1.0), 1.0);
    }
}
