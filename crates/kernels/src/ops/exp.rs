//! The exponential function in f32, as code that compilers turn into vector instructions.

/// 1.5 * 2^23: added to a magnitude below 2^22 it leaves the nearest integer in the low bits, ties to even, and no room for a
/// fraction.
pub(crate) const ROUND: f32 = 12_582_912.0;
/// `e` to the power of less than this is 0: from -87.34 on it would be subnormal, and products of those take an Intel processor
/// a hundred times as long.
pub(crate) const LOWEST: f32 = -87.0;
/// `ln 2` in two parts, the first of 9 significant bits.
pub(crate) const LN_2_HIGH: f32 = 355.0 / 512.0;
/// The rest of `ln 2`.
pub(crate) const LN_2_LOW: f32 = -2.121_944_4e-4;
/// `1 / 7!` to `1 / 2!`.
pub(crate) const SERIES: [f32; 6] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];

/// `2^n` for `n` from -126 to 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23) as u32)
}

/// `e^x`, within 1.5 units in the last place; 0 below [`LOWEST`], infinity above 88.73, NaN for NaN. Products and sums are rounded
/// once where `FUSED`: for processors that have such an instruction.
///
/// `2^n` is applied in two halves, because for the largest results `n` itself is no exponent of an f32.
#[inline(always)]
pub(crate) fn exp<const FUSED: bool>(x: f32) -> f32 {
    // This is written so that NaN passes.
    let (n, fraction) = divided::<FUSED>(if x > 89.0 { 89.0 } else { x });
    let half = n >> 1;
    let power = (1.0 + fraction) * power_of_two(half) * power_of_two(n.wrapping_sub(half));
    if x < LOWEST { 0.0 } else { power }
}

/// `n` and `e^r - 1`, where `x = n * ln 2 + r` with `n` the nearest integer, so `|r| <= 0.3466`, and `e^x = 2^n * e^r`.
///
/// `n` times the first part of `ln 2` is exact. `e^r` is its Taylor series to `r^7 / 7!`: the next term is below `5.2e-9`, a
/// tenth of the last place.
#[inline(always)]
fn divided<const FUSED: bool>(x: f32) -> (i32, f32) {
    let add = |a: f32, b: f32, c: f32| if FUSED { a.mul_add(b, c) } else { a * b + c };
    let shifted = add(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = add(n, -LN_2_LOW, add(n, -LN_2_HIGH, x));
    let mut series = SERIES[0];
    for factor in &SERIES[1..] {
        series = add(series, r, *factor);
    }
    ((shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32), add(r * r, series, r))
}

/// `e^x - 1` for `x` up to 87, within 2 units in the last place; NaN for NaN: `2^n * (e^r - 1) + (2^n - 1)`.
#[inline(always)]
pub(crate) fn exp_m1<const FUSED: bool>(x: f32) -> f32 {
    // From -20 down the result is -1. This is written so that NaN passes.
    let (n, fraction) = divided::<FUSED>(if x < -20.0 { -20.0 } else { x });
    let power = power_of_two(n);
    if FUSED { power.mul_add(fraction, power - 1.0) } else { power * fraction + (power - 1.0) }
}

/// The hyperbolic tangent, within 3 units in the last place; NaN for NaN.
///
/// `-t / (t + 2)` with `t = e^(-2|x|) - 1`, which loses nothing near 0.
#[inline(always)]
pub(crate) fn tanh<const FUSED: bool>(x: f32) -> f32 {
    // From 10 on the result is 1.
    let t = exp_m1::<FUSED>(-2.0 * x.abs());
    (-t / (t + 2.0)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::{LOWEST, exp, tanh};

    #[test]
    fn is_within_two_units_in_the_last_place() {
        let mut worst = 0.0f64;
        let step = 1.0 / 4096.0;
        for i in (-87 * 4096)..(89 * 4096) {
            let x = i as f32 * step;
            let truth = f64::from(x).exp();
            let unit = f64::from(((truth as f32).to_bits() >> 23).max(1)) - 150.0;
            for e in [exp::<false>(x), exp::<true>(x)] {
                if truth > f64::from(f32::MAX) {
                    assert_eq!(e, f32::INFINITY);
                } else {
                    worst = worst.max((f64::from(e) - truth).abs() / unit.exp2());
                }
            }
        }
        println!("exp: {worst:.3} units in the last place");
        assert!(worst < 1.5, "{worst}");
    }

    #[test]
    fn tanh_is_within_three_units_in_the_last_place() {
        let mut worst = 0.0f64;
        for i in -200_000..200_000 {
            // Samples are over all magnitudes from 1e-20 to 1, and evenly to 12.
            let tiny = (f64::from(i) / 10_000.0).exp().min(1.0) as f32 * if i % 2 == 0 { 1.0 } else { -1.0 };
            for x in [tiny, i as f32 * 12.0 / 200_000.0] {
                let truth = f64::from(x).tanh();
                let unit = (f64::from((truth.abs() as f32).to_bits() >> 23) - 150.0).exp2();
                for y in [tanh::<false>(x), tanh::<true>(x)] {
                    worst = worst.max((f64::from(y) - truth).abs() / unit);
                }
            }
        }
        println!("tanh: {worst:.3} units in the last place");
        assert!(worst < 3.0, "{worst}");
        for tanh in [tanh::<false>, tanh::<true>] {
            assert_eq!((tanh(0.0), tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)), (0.0, 1.0, -1.0));
            assert!(tanh(f32::NAN).is_nan() && tanh(-0.0).is_sign_negative());
        }
    }

    #[test]
    fn has_the_right_ends() {
        for exp in [exp::<false>, exp::<true>] {
            assert_eq!(exp(0.0), 1.0);
            assert!(exp(LOWEST).is_normal());
            assert_eq!(exp(LOWEST.next_down()), 0.0);
            assert_eq!(exp(f32::MIN), 0.0);
            assert_eq!(exp(f32::NEG_INFINITY), 0.0);
            assert_eq!(exp(89.0), f32::INFINITY);
            assert_eq!(exp(f32::INFINITY), f32::INFINITY);
            assert!(exp(f32::NAN).is_nan());
        }
    }
}
