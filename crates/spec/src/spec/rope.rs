//! Metadata -> Rope: base, scaling and pairing of the rotary embedding.

mod config;
mod gguf;
mod sections;

use super::reader::{Reader, missing};
use super::{QueryScale, Rope, RopeScaling, Sizes};
use crate::error::Result;
use crate::family::{Key, QueryScaling, RopeTable, WindowRope};
use crate::header::Fields;
use crate::header::config::Section;
use serde_json::Value;

struct Resolver<'a> {
    reader: &'a Reader<'a>,
    table: &'static RopeTable,
    sizes: &'a Sizes,
    /// Elements of a head in layers with a window; those of other layers are among the sizes.
    window_head_dim: usize,
}

/// A scaling, and its factor of cosines and sines.
type Scaled = (RopeScaling, f64);

/// Where numbers are read from: a section of `config.json`, or else the model's own keys, as always in GGUF.
type Place<'a> = Option<Section<'a>>;

const FACTOR: Key = Key { gguf: ".rope.scaling.factor", config: "factor" };
const ORIGINAL_CONTEXT: Key =
    Key { gguf: ".rope.scaling.original_context_length", config: "original_max_position_embeddings" };

/// The rotary embeddings of a model: the one of most layers, then the one of layers with a window if it differs.
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

/// The factor of queries that depends on their position, where the model has one.
pub(super) fn query_scale(reader: &Reader<'_>, sizes: &Sizes) -> Result<Option<QueryScale>> {
    let resolver = Resolver { reader, table: &reader.family.rope, sizes, window_head_dim: sizes.head_dim };
    let place = match &reader.config {
        Some(config) => config.section("rope_parameters")?.or(config.section("rope_scaling")?),
        None => None,
    };
    if place.is_none() && !reader.is_gguf() && matches!(resolver.table.query_scale, Some(QueryScaling::Rotated(_))) {
        return Ok(None);
    }
    resolver.query_scale(place)
}

impl Resolver<'_> {
    fn positive(&self, key: &str, value: f64) -> Result<f64> {
        // Far beyond every base and factor in use, and well within what angles can be computed with.
        if (1e-9..=1e15).contains(&value) {
            Ok(value)
        } else {
            Err(self.reader.value(key, value, "a number between 1e-9 and 1e15".into()))
        }
    }

    /// The number under `key`, and the full name of the key there.
    fn number(&self, place: Place<'_>, key: Key) -> Result<Option<(f64, String)>> {
        let name = place.map_or_else(|| self.reader.key(key), |section| section.dotted(key.config));
        let number = match place {
            _ if name.is_empty() => None,
            Some(section) => section.number(key.config)?,
            None => self.reader.fields().number(&name)?,
        };
        Ok(number.map(|number| (number, name)))
    }

    /// The number under `key`, if present, checked to be usable as a factor or divisor.
    fn optional(&self, place: Place<'_>, key: Key) -> Result<Option<f64>> {
        self.number(place, key)?.map(|(number, name)| self.positive(&name, number)).transpose()
    }

    /// Like `optional`, but 0 counts as absent.
    fn unless_zero(&self, place: Place<'_>, key: Key) -> Result<Option<f64>> {
        match self.number(place, key)? {
            Some((0.0, _)) => Ok(None),
            _ => self.optional(place, key),
        }
    }

    /// The context before scaling. In `config.json` a value at the top level takes precedence, as in transformers.
    fn original_context(&self, place: Place<'_>) -> Result<u64> {
        let (fields, own) = (self.reader.fields(), self.reader.key(ORIGINAL_CONTEXT));
        let (context, key) = match (fields.unsigned(&own)?, &place) {
            (None, Some(section)) => {
                (section.unsigned(ORIGINAL_CONTEXT.config)?, section.dotted(ORIGINAL_CONTEXT.config))
            }
            (context, _) => (context, own),
        };
        let default = |context: u64, key: &str, why: &str| {
            Ok(self.reader.or_absent(None, context, format_args!("original context {context}"), key, why))
        };
        match (context, &place, self.table.original_context) {
            (Some(context @ (0 | 1)), ..) => Err(self.reader.value(&key, context, "more than 1".into())),
            (Some(context), ..) => Ok(context),
            (None, None, _) if self.table.gguf_original_is_context => {
                default(self.sizes.context as u64, &key, "the default of llama.cpp")
            }
            (None, None, _) => Err(missing(fields, &key, "the scaling needs it")),
            (None, Some(_), Some((context, why))) => default(context, ORIGINAL_CONTEXT.config, why),
            (None, Some(_), None) => {
                let why = "transformers' standardize_rope_params takes max_position_embeddings";
                default(self.sizes.context as u64, &key, why)
            }
        }
    }

    fn query_scale(&self, place: Place<'_>) -> Result<Option<QueryScale>> {
        match self.table.query_scale {
            None => Ok(None),
            Some(QueryScaling::Rotated(key)) => match self.unless_zero(place, key)? {
                Some(beta) => {
                    let (_, stored) = self.reader.gguf_number(".attention.temperature_length")?;
                    let period = stored.filter(|period| *period > 0);
                    let period = period.map_or_else(|| self.original_context(place), Ok)?;
                    Ok(Some(QueryScale { beta, period, first: 0 }))
                }
                None => Ok(None),
            },
            Some(QueryScaling::Unrotated { flag, beta, period, source }) => {
                self.unrotated_scale(flag, beta, period, source)
            }
        }
    }

    /// The factor of queries in layers that do not rotate, by keys of `config.json`, or as every GGUF file has it.
    fn unrotated_scale(
        &self,
        flag: &str,
        (beta_key, beta): (&'static str, f64),
        (period_key, period): (&'static str, u64),
        source: &str,
    ) -> Result<Option<QueryScale>> {
        let (reader, fields) = (self.reader, self.reader.fields());
        if reader.is_gguf() {
            reader.assume(format!(
                "queries without rotation grow by {beta} in each {period} positions (always in llama.cpp)"
            ));
            return Ok(Some(QueryScale { beta, period, first: 1 }));
        }
        // Published as a number too.
        let said = match self.reader.config.and_then(|config| config.object().get(flag)) {
            Some(Value::Number(number)) => Some(number.as_f64() != Some(0.0)),
            _ => fields.boolean(flag)?,
        };
        if !reader.or_absent(said, true, "queries without rotation grow with their position", flag, source) {
            return Ok(None);
        }
        let beta = reader.or_default(fields.number(beta_key)?, beta_key, (beta, source));
        if !(0.0..=1e9).contains(&beta) {
            return Err(reader.value(beta_key, beta, "a number from 0 to 1e9".into()));
        }
        let period = reader.or_default(fields.unsigned(period_key)?, period_key, (period, source));
        if period == 0 {
            return Err(reader.value(period_key, period, "a positive number".into()));
        }
        Ok(Some(QueryScale { beta, period, first: 1 }))
    }

    fn yarn(&self, place: Place<'_>, factor: f64) -> Result<Scaled> {
        const UNREAD: Key = Key { gguf: ".rope.scaling.yarn_attn_factor", config: "attn_factor" };
        const BETA_FAST: Key = Key { gguf: ".rope.scaling.yarn_beta_fast", config: "beta_fast" };
        const BETA_SLOW: Key = Key { gguf: ".rope.scaling.yarn_beta_slow", config: "beta_slow" };
        let original_context = self.original_context(place)?;
        let all = self.weight_of_all(place)?;
        // In GGUF `mscale` is 1, or the other where scores have a factor (llama.cpp).
        let of_gguf = if self.table.scores_by_magnitude { all } else { Some(1.0) };
        let mscale = self.unless_zero(place, Key::config("mscale"))?.or(of_gguf.filter(|_| place.is_none()));
        let weights = (mscale, all);
        let magnitude = match (self.optional(place, Key::config("attention_factor"))?, weights) {
            (Some(factor), _) => factor,
            (None, (Some(mscale), Some(all))) => yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all),
            (None, _) => yarn_magnitude(factor, 1.0),
        };
        let unread = self.number(place, UNREAD)?.filter(|(unread, _)| place.is_some() || *unread != 1.0);
        if let Some((unread, key)) = unread {
            self.reader.assume(format!(
                "{key} {unread} is not read, as transformers and llama.cpp do not read it: YaRN multiplies cosines and \
                 sines by {magnitude:.6}"
            ));
        }
        let scaling = RopeScaling::Yarn {
            factor,
            original_context,
            // The defaults 32 and 1 are those of the YaRN paper, transformers and llama.cpp.
            beta_fast: self.optional(place, BETA_FAST)?.unwrap_or(32.0),
            beta_slow: self.optional(place, BETA_SLOW)?.unwrap_or(1.0),
            truncate: match place {
                // transformers reads null as false.
                Some(section) => section.boolean("truncate")?.unwrap_or(section.object().get("truncate").is_none()),
                None => self.table.gguf_yarn_truncate,
            },
        };
        Ok((scaling, magnitude))
    }

    /// `mscale_all_dim`; llama.cpp's converter writes a tenth of it where scores have a factor.
    fn weight_of_all(&self, place: Place<'_>) -> Result<Option<f64>> {
        const ALL_DIM: Key = Key { gguf: ".rope.scaling.yarn_log_multiplier", config: "mscale_all_dim" };
        let tenths = if place.is_none() && self.table.scores_by_magnitude { 10.0 } else { 1.0 };
        Ok(self.unless_zero(place, ALL_DIM)?.map(|weight| weight * tenths))
    }

    /// The factor of scores that belongs to `scaling` (transformers `yarn_apply_mscale`).
    fn score_factor(&self, place: Place<'_>, scaling: &RopeScaling) -> Result<f64> {
        let (RopeScaling::Yarn { factor, .. } | RopeScaling::Linear { factor } | RopeScaling::Llama3 { factor, .. }) =
            *scaling
        else {
            return Ok(1.0);
        };
        let all = if self.table.scores_by_magnitude { self.weight_of_all(place)? } else { None };
        Ok(all.map_or(1.0, |weight| yarn_magnitude(factor, weight).powi(2)))
    }

    /// The rotary embedding of layers with a window: like the others' without scaling, and with its own base if there
    /// is one. If heads have another size there, the whole head is rotated.
    fn of_windows(&self, others: &Rope, window: &WindowRope) -> Result<Rope> {
        let (theta, source) = match (self.number(None, window.key)?, window.default_theta) {
            (Some((theta, key)), _) => (self.positive(&key, theta)?, key),
            (None, Some(default)) => {
                self.absent_theta(" in layers with a window", &self.reader.key(window.key), default)
            }
            (None, None) => (others.theta, others.source.clone()),
        };
        let (full, windowed) = (self.sizes.head_dim, self.window_head_dim);
        let dimensions = if windowed == full { others.dimensions } else { windowed };
        let key = self.reader.gguf_key(".rope.dimension_count_swa");
        let stored = if self.reader.is_gguf() { self.reader.fields().unsigned(&key)? } else { None };
        let dimensions = match (stored, self.table.rotary_part) {
            (Some(stored), Some(_)) if (1..=windowed as u64).contains(&stored) => stored as usize,
            (Some(stored), _) if stored != dimensions as u64 => {
                let of = format!("{dimensions} of {windowed} elements of a head turn");
                return Err(self.reader.contradiction(format!("{key} is {stored}"), of));
            }
            _ => dimensions,
        };
        let layout = others.layout;
        let (scaling, magnitude, score_factor, sections) = (RopeScaling::Default, 1.0, 1.0, None);
        Ok(Rope { layout, theta, scaling, dimensions, magnitude, score_factor, sections, source })
    }

    /// The base of some layers, called `of`, where `key` does not give it, and its source.
    fn absent_theta(&self, of: &str, key: &str, (theta, why): (f64, &str)) -> (f64, String) {
        let theta = self.reader.or_absent(None, theta, format_args!("rope theta {theta}{of}"), key, why);
        (theta, format!("default ({why})"))
    }
}

/// YaRN's factor of cosines and sines if no key gives it (transformers `get_mscale`, llama.cpp).
fn yarn_magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

/// longrope's factor of cosines and sines, for a context `factor` times as long as the original one.
fn longrope_magnitude(factor: f64, original_context: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original_context.ln()).sqrt() }
}
