//! Metadata -> Rope: base, scaling and pairing of the rotary embedding.

mod config;
mod gguf;

use super::Sizes;
use super::reader::Reader;
use super::{Rope, RopeScaling};
use crate::error::Result;
use crate::family::{RopeTable, WindowRope};

struct Resolver<'a> {
    reader: &'a Reader<'a>,
    table: &'static RopeTable,
    sizes: &'a Sizes,
    /// Elements of a head in layers with a window; those of the others are among the sizes.
    window_head_dim: usize,
}

/// A scaling, and what it multiplies cosines and sines by.
type Scaled = (RopeScaling, f64);

/// The rotary embeddings of a model: that of most layers, then that of layers with a window where theirs is another.
pub(super) fn resolve(reader: &Reader<'_>, sizes: &Sizes, window_head_dim: usize) -> Result<Vec<Rope>> {
    let resolver = Resolver { reader, table: &reader.family.rope, sizes, window_head_dim };
    let ropes = match &reader.config {
        None => resolver.gguf_ropes()?,
        Some(config) => resolver.config_ropes([config.section("rope_scaling")?, config.section("rope_parameters")?])?,
    };
    match ropes.iter().find(|rope| !rope.dimensions.is_multiple_of(2)) {
        Some(Rope { dimensions, .. }) => {
            Err(reader
                .contradiction(format!("{dimensions} elements of a head are rotated"), "they turn in pairs".into()))
        }
        None => Ok(ropes),
    }
}

impl Resolver<'_> {
    fn positive(&self, key: &str, value: f64) -> Result<f64> {
        // Far outside of every base and factor in use, and far inside of what the angles can be computed with.
        if (1e-9..=1e15).contains(&value) {
            Ok(value)
        } else {
            Err(self.reader.value(key, value, "a number between 1e-9 and 1e15".into()))
        }
    }

    /// The rotary embedding of layers with a window: that of the others without its scaling, and with a base of its own where
    /// there is one. Where heads are of another size there, all of a head turns.
    fn of_windows(&self, others: &Rope, window: &WindowRope) -> Result<Rope> {
        let key = self.reader.key(window.key);
        let stored = if key.is_empty() { None } else { self.reader.fields().number(&key)? };
        let (theta, source) = match (stored, window.default_theta) {
            (Some(theta), _) => (self.positive(&key, theta)?, key),
            (None, Some((theta, why))) => {
                self.reader.assume(format!("rope theta {theta} in layers with a window: {key} is absent ({why})"));
                (theta, format!("default ({why})"))
            }
            (None, None) => (others.theta, others.source.clone()),
        };
        let (full, windowed) = (self.sizes.head_dim, self.window_head_dim);
        let dimensions = if windowed == full { others.dimensions } else { windowed };
        let layout = others.layout;
        Ok(Rope { layout, theta, scaling: RopeScaling::Default, dimensions, magnitude: 1.0, query_scale: None, source })
    }

    /// The base where `key` does not give it.
    fn absent_theta(&self, key: &str, (theta, why): (f64, &str)) -> (f64, String) {
        self.reader.assume(format!("rope theta {theta}: {key} is absent ({why})"));
        (theta, format!("default ({why})"))
    }
}

/// YaRN's factor of cosines and sines where nothing else gives it (transformers `get_mscale`, llama.cpp).
fn yarn_magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

/// longrope's, for a context `factor` times as long as the original one.
fn longrope_magnitude(factor: f64, original_context: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original_context.ln()).sqrt() }
}

/// Named in a report, because it says otherwise.
fn unread_attention_factor(key: &str, value: f64, magnitude: f64) -> String {
    format!(
        "{key} {value} is not read, as transformers and llama.cpp do not read it: YaRN multiplies cosines and sines by \
         {magnitude:.6}"
    )
}
