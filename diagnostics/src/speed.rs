//! Plan x bandwidth -> tokens a second: decoding a token reads every weight that it is multiplied with and the cache
//! once, and hardly computes. For GPUs with a known data sheet, instructions and launches count too.

mod gpu;

use crate::capability::DeviceEngine;
use crate::plan::{PREFILL_CHUNK, Plan, gpu_launches, kv_bytes_read};
use crate::spec::ModelSpec;
use gpu::{Assumed, Rates};
use serde::Serialize;

/// The assumed shares of a GPU's data-sheet bandwidth. Copies reach about nine tenths of it, which nothing that reads
/// memory exceeds; kernels below a half of it would be considered broken.
const GPU_SHARES: (f64, f64) = (0.5, 0.9);

/// The assumed shares of a processor's data-sheet bandwidth. Reads of all its threads reach about eight tenths of the
/// data rate of its memory, and the kernels here 0.7 to 1 of what such reads reach (docs/performance.md); the lower end
/// allows for memory slower than the data sheet's.
const CPU_SHARES: (f64, f64) = (0.4, 0.8);

/// Tokens a second above which no estimate is given: starting kernels and waiting for threads then take as long as
/// reading, so that bandwidth says little.
const FASTEST: f64 = 1000.0;

/// The decoding speed of one sequence, as far as memory decides it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Speed {
    /// Bandwidth in bytes a second by the data sheet.
    pub bandwidth: u64,
    /// The shares of the bandwidth that the ends of the ranges assume.
    pub shares: (f64, f64),
    /// Bytes of weights that a token reads.
    pub weight_bytes_per_token: u64,
    /// Bytes of the cache that a token reads when the planned context is full.
    pub cache_bytes_per_token: u64,
    /// Tokens a second on an empty cache.
    pub empty: (f64, f64),
    /// Tokens a second on a full cache.
    pub full: (f64, f64),
    /// Launches for a token on a GPU, if they and the instructions of kernels are part of the estimate.
    pub launches: Option<usize>,
    /// Tokens a second over the first [`PREFILL_CHUNK`] tokens of a prompt, on such a GPU.
    pub prompt: Option<(f64, f64)>,
}

impl Speed {
    /// The estimate for a device of this product name; `None` without a bandwidth, and for models so small that
    /// bandwidth is not what limits them.
    pub fn new(spec: &ModelSpec, plan: &Plan, engine: &DeviceEngine<'_>, name: &str, bandwidth: u64) -> Option<Speed> {
        let shares = match engine {
            DeviceEngine::Cpu { .. } => CPU_SHARES,
            DeviceEngine::Cuda { .. } => GPU_SHARES,
        };
        let active = spec.active_bytes();
        // One row of the embedding is read, unless it is the head too.
        let embedding = if spec.tied_embeddings { 0 } else { spec.weights.embedding.weight.bytes };
        let weights = active.saturating_sub(embedding);
        let cache = kv_bytes_read(spec, plan.context, plan.kv_dtype);
        if bandwidth == 0 || shares.0 * bandwidth as f64 > FASTEST * weights as f64 {
            return None;
        }
        let range = |bytes: u64| {
            let all = bandwidth as f64 / bytes as f64;
            (round(shares.0 * all), round(shares.1 * all))
        };
        let mut speed = Speed {
            bandwidth,
            shares,
            weight_bytes_per_token: weights,
            cache_bytes_per_token: cache,
            empty: range(weights),
            full: range(weights.saturating_add(cache)),
            launches: None,
            prompt: None,
        };
        if let Some(rates) = Rates::find(name) {
            speed.count_instructions(spec, plan, rates);
        }
        Some(speed)
    }

    /// Replaces the ranges by bandwidth only with those of a GPU of these rates.
    fn count_instructions(&mut self, spec: &ModelSpec, plan: &Plan, rates: &Rates) {
        let (kv, bandwidth) = (plan.kv_dtype, self.bandwidth as f64);
        let ends = gpu::assumed(self.shares);
        let range = |tokens: usize, seconds: &dyn Fn(Assumed) -> Option<f64>| {
            let [slow, fast] = ends.map(seconds);
            Some((round(tokens as f64 / slow?), round(tokens as f64 / fast?)))
        };
        let token = |cache: u64| range(1, &|by| rates.token(spec, kv, cache, bandwidth, by));
        if let (Some(empty), Some(full)) = (token(0), token(self.cache_bytes_per_token)) {
            (self.empty, self.full, self.launches) = (empty, full, Some(gpu_launches(spec)));
            self.prompt = range(PREFILL_CHUNK, &|by| rates.prompt(spec, kv, bandwidth, by));
        }
    }
}

/// Rounds to two digits: more would claim an accuracy that an estimate does not have.
fn round(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor() - 1.0);
    // A unit below 1 is applied by dividing by its whole inverse, which keeps decimal fractions short.
    if unit < 1.0 { (value / unit).round() / (1.0 / unit).round() } else { (value / unit).round() * unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_two_digits() {
        let cases = [(0.01234, 0.012), (0.987, 0.99), (9.96, 10.0), (12.34, 12.0), (99.6, 100.0), (1234.5, 1200.0)];
        for (value, expected) in cases {
            assert_eq!(round(value), expected);
        }
    }
}
