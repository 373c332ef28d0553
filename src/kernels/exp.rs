//! The exponential function in f32, as code that compilers turn into vector instructions.

/// `e^x`, within 1.5 units in the last place; 0 below -104, infinity above 88.73, NaN for NaN.
///
/// `x = n * ln 2 + r` with `n` the nearest integer, so `|r| <= 0.3466`, and `e^x = 2^n * e^r`. `ln 2` is taken in two
/// parts, the first of 9 significant bits, so that `n` times it is exact. `e^r` is its Taylor series to `r^7 / 7!`: the
/// next term is below `5.2e-9`, a tenth of the last place. `2^n` is applied in two halves, because for results near the
/// ends of the range `n` itself is no exponent of an f32.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// Adding it leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Written so that a NaN passes.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut series = 1.0 / 5040.0;
    series = series * r + 1.0 / 720.0;
    series = series * r + 1.0 / 120.0;
    series = series * r + 1.0 / 24.0;
    series = series * r + 1.0 / 6.0;
    series = series * r + 0.5;
    let e_r = 1.0 + (r + (r * r) * series);
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23) as u32);
    e_r * power(half) * power(n.wrapping_sub(half))
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn is_within_two_units_in_the_last_place() {
        let mut worst = 0.0f64;
        let step = 1.0 / 4096.0;
        for i in (-104 * 4096)..(89 * 4096) {
            let x = i as f32 * step;
            let truth = f64::from(x).exp();
            if truth > f64::from(f32::MAX) {
                assert_eq!(exp(x), f32::INFINITY);
                continue;
            }
            let unit = f64::from(((truth as f32).to_bits() >> 23).max(1)) - 150.0;
            worst = worst.max((f64::from(exp(x)) - truth).abs() / unit.exp2());
        }
        println!("exp: {worst:.3} units in the last place");
        assert!(worst < 1.5, "{worst}");
    }

    #[test]
    fn has_the_right_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-105.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(89.0), f32::INFINITY);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }
}
