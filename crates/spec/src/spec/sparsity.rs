//! Gates of feed-forward layers of which only the largest count: those that are so many deviations above their mean.

use super::reader::{Reader, missing};
use crate::error::Result;
use crate::family::SparseGates;

/// The most deviations from the mean: no part of an f64 but 0 is further.
const MOST: f32 = 15.0;

impl Reader<'_> {
    /// How many deviations above their mean gates count from, in each of the first layers; negative infinity where all do.
    pub(super) fn sparsity(&self, layers: usize) -> Result<Vec<f32>> {
        let Some(SparseGates { list, default: (first, part, why) }) = self.family.block.sparse_gates else {
            return Ok(Vec::new());
        };
        let key = self.key(list);
        let deviations = match self.gguf() {
            None => {
                let part = |part: &serde_json::Value| part.as_f64().filter(|part| (0.0..1.0).contains(part));
                self.listed(&key, "a number from 0 up to 1", part)?
                    .map(|parts| parts.into_iter().map(deviations).collect())
            }
            Some(metadata) => {
                if metadata.array_len(&key).is_none() {
                    return Err(missing(metadata, &key, "which gates count is not known"));
                }
                metadata.floats(&key)?
            }
        };
        let Some(deviations) = deviations else {
            let sparse = if layers > first { first } else { 0 };
            let what = format_args!("{part} of the gates cut in the first {sparse} layers");
            return Ok(self.or_absent(None, vec![self::deviations(part); sparse], what, &key, why));
        };
        if deviations.len() != layers {
            return Err(self.entries(&key, deviations.len(), layers));
        }
        match deviations.iter().find(|at| !(**at == f32::NEG_INFINITY || at.abs() <= MOST)) {
            Some(at) => Err(self.value(&key, at, format!("numbers up to {MOST} either way, or negative infinity"))),
            None => Ok(deviations),
        }
    }
}

/// How many deviations above its mean the upper rest of a normal distribution begins, whose lower `part` is below 1.
fn deviations(part: f64) -> f32 {
    if part == 0.0 {
        return f32::NEG_INFINITY;
    }
    let (above, sign) = if part < 0.5 { (0.5 - part, -1.0) } else { (part - 0.5, 1.0) };
    // By Newton's steps, none of which goes too far; the part between 0 and `x` is a series of odd powers.
    let mut x = 0.0f64;
    for _ in 0..100 {
        let density = (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
        let (mut term, mut sum, mut power) = (x, x, 1.0);
        while term > sum * 1e-17 {
            power += 2.0;
            term *= x * x / power;
            sum += term;
        }
        let step = (above - density * sum) / density;
        x += step;
        if step.abs() < 1e-14 {
            break;
        }
    }
    (sign * x) as f32
}

#[cfg(test)]
mod tests {
    use super::deviations;

    #[test]
    fn the_quantiles_of_a_normal_distribution() {
        // scipy.stats.norm.ppf
        let known = [(0.95, 1.644_853_6), (0.5, 0.0), (0.975, 1.959_964), (0.05, -1.644_853_6), (0.999_999, 4.753_424)];
        for (part, expected) in known {
            let found = deviations(part);
            assert!((found - expected).abs() <= 2e-7 * expected.abs().max(1.0), "{part}: {found} {expected}");
        }
        assert_eq!(deviations(0.0), f32::NEG_INFINITY);
        for part in [1.0f64.next_down(), f64::MIN_POSITIVE] {
            assert!(deviations(part).abs() < super::MOST, "{part}: {}", deviations(part));
        }
    }
}
