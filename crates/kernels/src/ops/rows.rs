//! Rows that are changed by their own mean, or by the magnitude of another.

use super::vector::sum_in_lanes;
use crate::isa::{Isa, compiled_for};

compiled_for! {
    /// `x = x * sqrt(mean(like^2) / max(mean(x^2), least))`; the means in f64. Panics unless each has an element.
    pub fn match_magnitude(isa: Isa, x: &mut [f32], like: &[f32], least: f32) {
        assert!(!x.is_empty() && !like.is_empty(), "lengths of a magnitude");
        let of = |x: &[f32]| sum_in_lanes(x, |x| f64::from(x) * f64::from(x)) / x.len() as f64;
        let (wanted, found) = (of(like), of(x));
        // This is written so that NaN passes.
        let found = if found < f64::from(least) { f64::from(least) } else { found };
        let factor = (wanted / found).sqrt() as f32;
        x.iter_mut().for_each(|x| *x *= factor);
    }

    /// `x = max(x - (mean(x) + deviations * sqrt(variance(x))), 0)`; mean and variance in f64. Panics unless there is an element.
    pub fn keep_above(isa: Isa, x: &mut [f32], deviations: f32) {
        assert!(!x.is_empty(), "lengths of a norm");
        let n = x.len() as f64;
        let mean = sum_in_lanes(x, f64::from) / n;
        let variance = sum_in_lanes(x, |x| (f64::from(x) - mean) * (f64::from(x) - mean)) / n;
        let least = (mean + f64::from(deviations) * variance.sqrt()) as f32;
        for x in x {
            // This is written so that NaN passes.
            *x = if *x < least { 0.0 } else { *x - least };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, each_isa};

    #[test]
    fn what_is_above_a_mean_and_magnitudes_of_others() {
        let mut random = Random::new(29);
        for len in [1, 2, 15, 16, 17, 64, 100, 576, 2048] {
            let (x, like) = (random.floats(len), random.floats(len));
            let mean =
                |x: &[f32], of: &dyn Fn(f64) -> f64| x.iter().map(|&x| of(x.into())).sum::<f64>() / x.len() as f64;
            let middle = mean(&x, &|x| x);
            let deviation = mean(&x, &|x| (x - middle).powi(2)).sqrt();
            let squares = [&like, &x].map(|x| mean(x, &|x| x * x));
            for isa in each_isa() {
                for deviations in [-0.75f32, 0.0, 1.25] {
                    let (mut kept, least) = (x.clone(), middle + f64::from(deviations) * deviation);
                    keep_above(isa, &mut kept, deviations);
                    for (&x, &kept) in x.iter().zip(&kept) {
                        // The limit is rounded once, and the difference.
                        let truth = (f64::from(x) - least).max(0.0);
                        assert!(
                            (f64::from(kept) - truth).abs() <= 6e-8 * (least.abs() + truth),
                            "{isa} {len} {x}: {kept}"
                        );
                    }
                }
                for least in [0.0, 1e9] {
                    let (mut scaled, factor) = (x.clone(), (squares[0] / squares[1].max(least)).sqrt());
                    match_magnitude(isa, &mut scaled, &like, least as f32);
                    for (&x, &scaled) in x.iter().zip(&scaled) {
                        // The factor is rounded once, and the product.
                        let truth = f64::from(x) * factor;
                        assert!(
                            (f64::from(scaled) - truth).abs() <= 1.3e-7 * truth.abs(),
                            "{isa} {len}: {scaled} {truth}"
                        );
                    }
                }
                let mut ends = [1.0, f32::NAN];
                keep_above(isa, &mut ends, 0.0);
                assert!(ends[1].is_nan());
                match_magnitude(isa, &mut ends, &[1.0], 1.0);
                assert!(ends[1].is_nan());
            }
        }
    }
}
