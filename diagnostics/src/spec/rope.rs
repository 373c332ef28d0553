//! Metadata -> Rope: base, scaling and pairing of the rotary embedding.

mod config;
mod gguf;

use super::Sizes;
use super::reader::Reader;
use super::{Rope, RopeScaling};
use crate::error::Result;
use crate::family::Family;
use crate::header::{Header, Metadata};

/// What the rotary embedding is resolved from, and where defaults that were taken are noted.
struct Resolver<'a> {
    reader: &'a Reader<'a>,
    family: &'static Family,
    header: &'a Header,
    sizes: &'a Sizes,
    assumptions: &'a mut Vec<String>,
}

/// A scaling, and what it multiplies cosines and sines by.
#[derive(Debug, PartialEq)]
struct Scaled {
    scaling: RopeScaling,
    magnitude: f64,
}

pub(super) fn resolve(
    reader: &Reader<'_>,
    family: &'static Family,
    header: &Header,
    sizes: &Sizes,
    assumptions: &mut Vec<String>,
) -> Result<Rope> {
    let mut resolver = Resolver { reader, family, header, sizes, assumptions };
    let rope = match &header.metadata {
        Metadata::Gguf(_) => resolver.gguf_rope()?,
        Metadata::Config(files) => {
            let legacy = files.config.section("rope_scaling")?;
            let current = files.config.section("rope_parameters")?;
            resolver.config_rope(legacy, current)?
        }
    };
    if !rope.dimensions.is_multiple_of(2) {
        return Err(reader.contradiction(
            format!("{} elements of a head are rotated", rope.dimensions),
            "they turn in pairs".into(),
        ));
    }
    Ok(rope)
}

impl Scaled {
    fn plain(scaling: RopeScaling) -> Scaled {
        Scaled { scaling, magnitude: 1.0 }
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

    fn default_theta(&mut self, key: &str) -> (f64, String) {
        let (theta, why) = self.family.default_theta;
        self.assumptions.push(format!("rope theta {theta}: {key} is absent ({why})"));
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
