//! The rotary embedding of `config.json`.

use super::{Resolver, Scaled, longrope_magnitude, unread_attention_factor, yarn_magnitude};
use crate::error::Result;
use crate::header::Fields;
use crate::header::config::{Section, wrong_type};
use crate::spec::layers::{WITH_WINDOW, WITHOUT};
use crate::spec::reader::missing;
use crate::spec::{FrequencyFactors, QueryScale, Rope, RopeScaling};
use serde_json::Value;

/// Scalings that exist elsewhere and are not computed here.
const FOREIGN: &[&str] = &["su", "dynamic", "mrope"];

/// The scalings that are.
const KNOWN: &str = "default, linear, llama3, yarn, longrope or proportional";

const PROPORTIONAL: &str = "proportional";

const ORIGINAL_CONTEXT: &str = "original_max_position_embeddings";

impl Resolver<'_> {
    /// transformers 5 writes `rope_parameters`, in models whose layers differ one for each kind of layer; transformers 4
    /// `rope_scaling` and `rope_theta`, which are those of layers without a window.
    pub(super) fn config_ropes(
        &mut self,
        legacy: Option<Section<'_>>,
        current: Option<Section<'_>>,
    ) -> Result<Vec<Rope>> {
        let nested = |kind| current.as_ref().map_or(Ok(None), |section| section.section(kind));
        let head_dim = self.sizes.head_dim;
        let Some(window) = &self.family.window_rope else {
            return Ok(vec![self.config_rope(legacy, current, head_dim)?]);
        };
        match (nested(WITHOUT)?, nested(WITH_WINDOW)?) {
            (None, None) => {
                let rope = self.config_rope(legacy, current, head_dim)?;
                let window = self.of_windows(&rope, window)?;
                Ok(vec![rope, window])
            }
            (full, windowed) => {
                let rope = self.config_rope(legacy, full, head_dim)?;
                // What is said without a base would be dropped with it.
                if let Some(section) = windowed
                    && !section.has("rope_theta")
                    && section.text("rope_type")?.is_some_and(|kind| kind != "default")
                {
                    let key = format!("{}.rope_theta", section.path());
                    return Err(missing(
                        self.reader.fields(),
                        &key,
                        "a scaling of layers with a window needs its base",
                    ));
                }
                let window = match windowed.filter(|section| section.has("rope_theta")) {
                    None => self.of_windows(&rope, window)?,
                    windowed => self.config_rope(None, windowed, self.window_head_dim)?,
                };
                // One length of a sequence decides for all layers.
                if matches!(window.scaling, RopeScaling::LongRope { .. }) {
                    let key = format!("rope_parameters.{WITH_WINDOW}.rope_type");
                    return Err(self.reader.feature("longrope in layers with a window", &key, "default"));
                }
                Ok(vec![rope, window])
            }
        }
    }

    /// Of heads of `head_dim` elements. Where a model has both sections they must agree.
    fn config_rope(
        &mut self,
        legacy: Option<Section<'_>>,
        current: Option<Section<'_>>,
        head_dim: usize,
    ) -> Result<Rope> {
        let (theta, theta_source) = self.theta(legacy, current)?;
        let dimensions = self.dimensions(legacy, current, head_dim)?;
        if self.reader.fields().boolean("rope_interleaved")? == Some(true) {
            return Err(self.reader.feature("interleaved rotation", "rope_interleaved", "false"));
        }
        let mut scaling = |section: Section<'_>| self.scaling(&section.path(), section, dimensions);
        let (old, new) = (legacy.map(&mut scaling).transpose()?, current.map(scaling).transpose()?);
        if let (Some(old), Some(new)) = (&old, &new)
            && old != new
        {
            return Err(self.reader.contradiction(
                format!("rope_scaling says {}", old.scaling.in_words()),
                format!("rope_parameters says {}", new.scaling.in_words()),
            ));
        }
        let (scaled, source) = match (old, new) {
            (Some(scaled), _) => (scaled, format!("{theta_source}, rope_scaling")),
            (None, Some(scaled)) => (scaled, format!("{theta_source}, rope_parameters")),
            (None, None) => match self.family.unsaid_scaling {
                Some(why) => return Err(missing(self.reader.fields(), "rope_parameters", why)),
                None => (Scaled::plain(RopeScaling::Default), theta_source),
            },
        };
        let Scaled { scaling, magnitude } = scaled;
        let query_scale = current.or(legacy).map_or(Ok(None), |section| self.query_scale(section))?;
        Ok(Rope { layout: self.family.config_rope, theta, scaling, dimensions, magnitude, query_scale, source })
    }

    fn query_scale(&mut self, section: Section<'_>) -> Result<Option<QueryScale>> {
        let Some(key) = self.family.query_scale else { return Ok(None) };
        let name = section.path();
        let Some(beta) = self.unless_zero(&name, section, key.config)? else { return Ok(None) };
        Ok(Some(QueryScale { beta, original_context: self.original_context(&name, section)? }))
    }

    fn theta(&mut self, legacy: Option<Section<'_>>, current: Option<Section<'_>>) -> Result<(f64, String)> {
        match self.agreed("rope_theta", legacy, current)? {
            Some((theta, key)) => Ok((self.positive(&key, theta)?, key)),
            None => {
                let default = self.family.default_theta;
                let absent = || missing(self.reader.fields(), "rope_theta", "models of this family differ in it");
                Ok(self.absent_theta("rope_theta", default.ok_or_else(absent)?))
            }
        }
    }

    /// The rotated elements of a head: all, or the leading part that the model or its family names.
    fn dimensions(
        &mut self,
        legacy: Option<Section<'_>>,
        current: Option<Section<'_>>,
        head_dim: usize,
    ) -> Result<usize> {
        let is_proportional = |section: Option<Section<'_>>| -> Result<bool> {
            let Some(section) = section else { return Ok(false) };
            Ok(section.text("rope_type")?.or(section.text("type")?) == Some(PROPORTIONAL))
        };
        if is_proportional(current)? || is_proportional(legacy)? {
            return Ok(head_dim);
        }
        let stored = self.agreed("partial_rotary_factor", legacy, current)?;
        let part = match (self.family.rotary_part, stored) {
            (None, None) => return Ok(head_dim),
            (None, Some((part, key))) if part != 1.0 => {
                return Err(self.reader.feature(&format!("a partial rotation of {part}"), &key, "1.0"));
            }
            (Some(_), Some((part, key))) if !(part > 0.0 && part <= 1.0) => {
                return Err(self.reader.value(&key, part, "a number above 0 and up to 1".into()));
            }
            (_, Some((part, _))) => part,
            (Some((part, why)), None) => {
                self.assumptions.push(format!("partial_rotary_factor {part}: it is absent ({why})"));
                part
            }
        };
        // Rounded down, as by `int()` in transformers.
        match (head_dim as f64 * part) as usize {
            0 => Err(self.reader.value("partial_rotary_factor", part, "a part with at least one pair".into())),
            dimensions => Ok(dimensions),
        }
    }

    /// A number that may stand at the top level and in either section, with the first key that has it; all must agree.
    fn agreed(
        &self,
        key: &'static str,
        legacy: Option<Section<'_>>,
        current: Option<Section<'_>>,
    ) -> Result<Option<(f64, String)>> {
        let nested = |section: Option<Section<'_>>| section.map_or(Ok(None), |section| section.number(key));
        // Of layers of one kind their own section counts, and the top level where it does not say.
        let of_layers = current.is_some_and(|section| section.path() != "rope_parameters" && section.has(key));
        let named = self.reader.config_key(key);
        let top = if of_layers { None } else { self.reader.fields().number(&named)? };
        let path = |section: Option<Section<'_>>| section.map_or(String::new(), |section| section.dotted(key));
        let places = [(path(legacy), nested(legacy)?), (path(current), nested(current)?), (named, top)];
        let mut found: Option<(f64, String)> = None;
        for (key, value) in places {
            let Some(value) = value else { continue };
            match &found {
                Some((first, first_key)) if *first != value => {
                    let (one, other) = (format!("{first_key} is {first}"), format!("{key} is {value}"));
                    return Err(self.reader.contradiction(one, other));
                }
                Some(_) => {}
                None => found = Some((value, key)),
            }
        }
        Ok(found)
    }

    /// The kind of a scaling by the name that it has in every family.
    fn known_kind<'k>(&self, kind: Option<&'k str>) -> Option<&'k str> {
        let of = |kind| self.family.rope_aliases.iter().find(|(alias, _)| *alias == kind);
        kind.map(|kind| of(kind).map_or(kind, |(_, known)| known))
    }

    fn scaling(&mut self, name: &str, section: Section<'_>, dimensions: usize) -> Result<Scaled> {
        let kind = match (self.known_kind(section.text("rope_type")?), self.known_kind(section.text("type")?)) {
            (Some(new), Some(old)) if new != old => {
                let (one, other) = (format!("{name}.rope_type is {new}"), format!("{name}.type is {old}"));
                return Err(self.reader.contradiction(one, other));
            }
            (new, old) => new.or(old),
        };
        match kind {
            None if section.has("factor") => {
                let key = format!("{name}.rope_type");
                Err(missing(self.reader.fields(), &key, "the kind of scaling is never guessed"))
            }
            None => {
                self.assumptions.push(format!(
                    "no rope scaling: {name}.rope_type is absent (transformers' standardize_rope_params takes default)"
                ));
                Ok(Scaled::plain(RopeScaling::Default))
            }
            Some("default") => Ok(Scaled::plain(RopeScaling::Default)),
            Some(kind) if self.family.longrope_magnitudes.is_some() && kind != "longrope" => {
                let key = format!("{name}.rope_type");
                Err(self.reader.feature(&format!("rope scaling {kind}"), &key, "default or longrope"))
            }
            Some("linear") => {
                let factor = self.require(name, section, "factor")?;
                Ok(Scaled::plain(RopeScaling::Linear { factor }))
            }
            Some("llama3") => self.llama3(name, section),
            Some("yarn") => self.yarn(name, section),
            Some("longrope") => self.longrope(name, section, dimensions),
            Some(PROPORTIONAL) => self.proportional(name, section, dimensions),
            Some(kind) if FOREIGN.contains(&kind) => {
                let key = format!("{name}.rope_type");
                Err(self.reader.feature(&format!("rope scaling {kind}"), &key, KNOWN))
            }
            Some(kind) => {
                let key = format!("{name}.rope_type");
                Err(self.reader.value(&key, format!("{kind:?}"), KNOWN.into()))
            }
        }
    }

    fn require(&self, name: &str, section: Section<'_>, key: &str) -> Result<f64> {
        let dotted = format!("{name}.{key}");
        let value = section.number(key)?;
        self.positive(&dotted, value.ok_or_else(|| missing(self.reader.fields(), &dotted, "the scaling needs it"))?)
    }

    fn optional(&self, name: &str, section: Section<'_>, key: &str) -> Result<Option<f64>> {
        section.number(key)?.map(|value| self.positive(&format!("{name}.{key}"), value)).transpose()
    }

    /// The same where 0 says as much as an absent key.
    fn unless_zero(&self, name: &str, section: Section<'_>, key: &str) -> Result<Option<f64>> {
        if section.number(key)? == Some(0.0) { Ok(None) } else { self.optional(name, section, key) }
    }

    fn llama3(&mut self, name: &str, section: Section<'_>) -> Result<Scaled> {
        let original_context = self.original_context(name, section)?;
        let low_freq_factor = self.require(name, section, "low_freq_factor")?;
        let high_freq_factor = self.require(name, section, "high_freq_factor")?;
        if high_freq_factor <= low_freq_factor {
            let key = format!("{name}.high_freq_factor");
            let expected = format!("more than low_freq_factor, which is {low_freq_factor}");
            return Err(self.reader.value(&key, high_freq_factor, expected));
        }
        let factor = self.require(name, section, "factor")?;
        Ok(Scaled::plain(RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context }))
    }

    fn yarn(&mut self, name: &str, section: Section<'_>) -> Result<Scaled> {
        let factor = self.require(name, section, "factor")?;
        let original_context = self.original_context(name, section)?;
        let weights = (self.unless_zero(name, section, "mscale")?, self.unless_zero(name, section, "mscale_all_dim")?);
        let magnitude = match (self.optional(name, section, "attention_factor")?, weights) {
            (Some(factor), _) => factor,
            (None, (Some(mscale), Some(all))) => yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all),
            (None, _) => yarn_magnitude(factor, 1.0),
        };
        if let Some(unread) = section.number("attn_factor")? {
            self.assumptions.push(unread_attention_factor(&format!("{name}.attn_factor"), unread, magnitude));
        }
        let scaling = RopeScaling::Yarn {
            factor,
            original_context,
            // 32 and 1: the YaRN paper and transformers.
            beta_fast: self.optional(name, section, "beta_fast")?.unwrap_or(32.0),
            beta_slow: self.optional(name, section, "beta_slow")?.unwrap_or(1.0),
            // transformers takes null for false.
            truncate: section.boolean("truncate")?.unwrap_or(section.object().get("truncate").is_none()),
        };
        Ok(Scaled { scaling, magnitude })
    }

    fn longrope(&mut self, name: &str, section: Section<'_>, dimensions: usize) -> Result<Scaled> {
        let original_context = self.original_context(name, section)?;
        let (magnitude, long_magnitude) = match self.family.longrope_magnitudes {
            Some([short, long]) => (self.require(name, section, short)?, self.require(name, section, long)?),
            None => {
                let factor = match self.optional(name, section, "factor")? {
                    Some(factor) => factor,
                    None => self.sizes.context as f64 / original_context as f64,
                };
                let magnitude = match self.optional(name, section, "attention_factor")? {
                    Some(magnitude) => magnitude,
                    None => longrope_magnitude(factor, original_context as f64),
                };
                (magnitude, magnitude)
            }
        };
        let mut list = |key: &str| self.factors(name, section, key, dimensions).map(FrequencyFactors::Values);
        let (short, long) = (list("short_factor")?, list("long_factor")?);
        let original_context = original_context as usize;
        Ok(Scaled { scaling: RopeScaling::LongRope { short, long, long_magnitude, original_context }, magnitude })
    }

    /// Its frequencies are those of the whole head, of which a part of the pairs turns.
    fn proportional(&mut self, name: &str, section: Section<'_>, dimensions: usize) -> Result<Scaled> {
        let factor = self.optional(name, section, "factor")?.unwrap_or(1.0);
        let part = self.agreed("partial_rotary_factor", None, Some(section))?;
        let (part, key) = part.unwrap_or((1.0, format!("{name}.partial_rotary_factor")));
        // Rounded down, as by `int()` in transformers.
        let pairs = (part * dimensions as f64 / 2.0) as usize;
        if pairs == 0 || pairs > dimensions / 2 {
            return Err(self.reader.value(&key, part, "a part of a head, with at least one pair".into()));
        }
        Ok(Scaled::plain(RopeScaling::Proportional { factor, pairs }))
    }

    /// A list of `dimensions / 2` frequency factors, rounded to F32 as transformers and GGUF writers do.
    fn factors(&mut self, name: &str, section: Section<'_>, key: &str, dimensions: usize) -> Result<Vec<f64>> {
        let dotted = format!("{name}.{key}");
        let list = match section.object().get(key) {
            None | Some(Value::Null) => {
                return Err(missing(self.reader.fields(), &dotted, "the scaling needs it"));
            }
            Some(Value::Array(list)) => list,
            Some(other) => {
                return Err(wrong_type(self.reader.fields().file(), &dotted, other, "a list of numbers"));
            }
        };
        if list.len() != dimensions / 2 {
            return Err(self.reader.contradiction(
                format!("{dotted} has {} entries", list.len()),
                format!("{dimensions} elements of a head are rotated, in pairs"),
            ));
        }
        let number = |(index, value): (usize, &Value)| {
            let key = format!("{dotted}[{index}]");
            match value.as_f64() {
                Some(number) => self.positive(&key, number).map(|number| f64::from(number as f32)),
                None => Err(self.reader.value(&key, value, "a number".into())),
            }
        };
        list.iter().enumerate().map(number).collect()
    }

    /// The context before scaling. A value at the top level wins, as in transformers.
    fn original_context(&mut self, name: &str, section: Section<'_>) -> Result<u64> {
        let dotted = format!("{name}.{ORIGINAL_CONTEXT}");
        let (context, key) = match self.reader.fields().unsigned(ORIGINAL_CONTEXT)? {
            Some(context) => (Some(context), ORIGINAL_CONTEXT),
            None => (section.unsigned(ORIGINAL_CONTEXT)?, dotted.as_str()),
        };
        match (context, self.family.default_original_context) {
            (Some(context @ (0 | 1)), _) => Err(self.reader.value(key, context, "more than 1".into())),
            (Some(context), _) => Ok(context),
            (None, Some((context, why))) => {
                self.assumptions.push(format!("original context {context}: {ORIGINAL_CONTEXT} is absent ({why})"));
                Ok(context)
            }
            (None, None) => {
                let context = self.sizes.context as u64;
                self.assumptions.push(format!(
                    "original context {context}: {dotted} is absent (transformers' standardize_rope_params takes \
                     max_position_embeddings)"
                ));
                Ok(context)
            }
        }
    }
}
