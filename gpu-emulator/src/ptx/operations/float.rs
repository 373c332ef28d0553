//! Floats (PTX ISA 9.7.3). `.rn` of `add`, `sub`, `mul` follows IEEE 754, and `fma` rounds once.
//!
//! A GPU may differ: NaN results are the canonical NaN of PTX for `min` and `max` only; approximations
//! (`.approx`, `.full`) are rounded from double precision, where a GPU is off by up to two units in the last place.

use super::super::registers::Value;
use super::super::syntax::Width;
use super::{Operation, compare, one, three, two};

/// The result of `min` and `max` of two NaNs.
const NO_NUMBER: f32 = f32::from_bits(0x7fff_ffff);

pub(super) fn find(name: &[&str]) -> Option<Operation> {
    let (kind, rest) = name.split_last()?;
    match *kind {
        "f32" => single(rest).or_else(|| float!(rest, f32)),
        "f64" => float!(rest, f64),
        _ => None,
    }
}

/// The operations of floats of both sizes.
macro_rules! float {
    ($name:expr, $t:ty) => {
        match $name {
            ["add"] | ["add", "rn"] => Some(two!($t, $t => $t, |a, b| a + b)),
            ["sub"] | ["sub", "rn"] => Some(two!($t, $t => $t, |a, b| a - b)),
            ["mul"] | ["mul", "rn"] => Some(two!($t, $t => $t, |a, b| a * b)),
            ["div", "rn"] => Some(two!($t, $t => $t, |a, b| a / b)),
            ["rcp", "rn"] => Some(one!($t => $t, |a| 1.0 / a)),
            ["sqrt", "rn"] => Some(one!($t => $t, <$t>::sqrt)),
            ["fma", "rn"] => Some(three!($t, $t, $t => $t, <$t>::mul_add)),
            ["neg"] => Some(one!($t => $t, |a: $t| -a)),
            ["abs"] => Some(one!($t => $t, <$t>::abs)),
            ["setp", comparison] => compare::<$t>(comparison),
            _ => None,
        }
    };
}

use float;

fn single(name: &[&str]) -> Option<Operation> {
    Some(match name {
        ["div", "full" | "approx"] => two!(f32, f32 => f32, |a, b| (f64::from(a) / f64::from(b)) as f32),
        [function, "approx"] => return approximation(function, false),
        [function, "approx", "ftz"] => return approximation(function, true),
        #[cfg(target_arch = "x86_64")]
        ["fma", "rn"] if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") => Operation {
            compute: |registers, op, mask| {
                let rows = (registers.row(op.a), registers.row(op.b), registers.row(op.c));
                #[allow(unsafe_code)]
                // SAFETY: both were detected.
                let all = unsafe { fused(&rows.0, &rows.1, &rows.2) };
                registers.set(op.d, mask, |lane| all[lane]);
            },
            to: Width::B32,
            from: vec![Width::B32; 3],
        },
        ["fma", "rm"] => three!(f32, f32, f32 => f32, fma_down),
        ["min"] => two!(f32, f32 => f32, min),
        ["max"] => two!(f32, f32 => f32, max),
        _ => return None,
    })
}

/// Functions in double precision, rounded once; with `flush` their arguments and results are [`flushed`].
fn approximation(function: &str, flush: bool) -> Option<Operation> {
    macro_rules! of {
        ($f:expr) => {
            if flush {
                one!(f32 => f32, |a| flushed(($f)(f64::from(flushed(a))) as f32))
            } else {
                one!(f32 => f32, |a| ($f)(f64::from(a)) as f32)
            }
        };
    }
    Some(match function {
        "rcp" => of!(|a: f64| 1.0 / a),
        "sqrt" => of!(f64::sqrt),
        "rsqrt" => of!(|a: f64| 1.0 / a.sqrt()),
        "ex2" => of!(f64::exp2),
        "lg2" => of!(f64::log2),
        _ => return None,
    })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fused(a: &[f32; 32], b: &[f32; 32], c: &[f32; 32]) -> [f32; 32] {
    std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
}

/// Numbers below the smallest normal one become zeros of their sign.
pub(super) fn flushed(a: f32) -> f32 {
    if a.is_subnormal() { 0f32.copysign(a) } else { a }
}

/// The lesser of two numbers; of a number and NaN the number; -0 is less than 0.
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
    // A sum that cancels is -0 when rounded down, but 0 + 0 is 0.
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
