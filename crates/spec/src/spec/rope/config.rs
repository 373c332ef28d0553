//! The rotary embedding of `config.json`.

use super::{FACTOR, Place, Resolver, Scaled, longrope_magnitude};
use crate::error::Result;
use crate::family::Key;
use crate::header::Fields;
use crate::header::config::{Section, wrong_type};
use crate::spec::layers::{WITH_WINDOW, WITHOUT};
use crate::spec::reader::missing;
use crate::spec::{FrequencyFactors, Rope, RopeScaling};
use serde_json::Value;

/// Scalings that exist elsewhere and are not supported here.
const FOREIGN: &[&str] = &["su", "mrope"];

/// The supported scalings.
const KNOWN: &str = "default, linear, dynamic, llama3, yarn, longrope or proportional";

/// The scaling of GTE's own code (arXiv 2407.19669): the base by its factor, and every frequency less by a root of it.
const NTK: &str = "ntk";

const PROPORTIONAL: &str = "proportional";

/// The section that transformers 4 wrote, and the section that transformers 5 writes.
type Sections<'a> = [Place<'a>; 2];

impl Resolver<'_> {
    /// transformers 5 writes `rope_parameters`, with one section for each kind of layer if they differ; transformers 4
    /// wrote `rope_scaling` and `rope_theta`, which are for layers without a window.
    pub(super) fn config_ropes(&self, [legacy, current]: Sections<'_>) -> Result<Vec<Rope>> {
        let Some(window) = &self.table.window else {
            return Ok(vec![self.config_rope([legacy, current], self.sizes.head_dim)?]);
        };
        let nested = |kind| current.as_ref().map_or(Ok(None), |section| section.section(kind));
        let (full, windowed) = (nested(WITHOUT)?, nested(WITH_WINDOW)?);
        let full = if windowed.is_some() { full } else { full.or(current) };
        let rope = self.config_rope([legacy, full], self.sizes.head_dim)?;
        let window = match windowed {
            Some(section) if section.has("rope_theta") => self.config_rope([None, windowed], self.window_head_dim)?,
            // A scaling without a base would be dropped with the missing base.
            Some(section) if section.text("rope_type")?.is_some_and(|kind| kind != "default") => {
                let why = "a scaling of layers with a window needs its base";
                return Err(missing(self.reader.fields(), &section.dotted("rope_theta"), why));
            }
            _ => self.of_windows(&rope, window)?,
        };
        // The length of the sequence switches all layers at once.
        if matches!(window.scaling, RopeScaling::LongRope { .. }) {
            let key = format!("rope_parameters.{WITH_WINDOW}.rope_type");
            return Err(self.reader.feature("longrope in layers with a window", &key, "default"));
        }
        Ok(vec![rope, window])
    }

    /// The rotary embedding of heads of `head_dim` elements. If a model has both sections, they must agree.
    fn config_rope(&self, sections: Sections<'_>, head_dim: usize) -> Result<Rope> {
        let (theta, theta_source) = self.theta(sections)?;
        let dimensions = self.dimensions(sections, head_dim)?;
        let section = sections[0].or(sections[1]);
        let theta = match section.map_or(Ok(None), |section| self.alpha(section))? {
            Some(alpha) if dimensions > 2 => theta * alpha.powf(dimensions as f64 / (dimensions as f64 - 2.0)),
            _ => theta * section.map_or(Ok(None), |section| self.ntk(section))?.unwrap_or(1.0),
        };
        if self.reader.fields().boolean("rope_interleaved")? == Some(true) {
            return Err(self.reader.feature("interleaved rotation", "rope_interleaved", "false"));
        }
        let [legacy, current] = sections;
        let scaling = |section| self.scaling(section, dimensions);
        let (old, new) = (legacy.map(scaling).transpose()?, current.map(scaling).transpose()?);
        let ((scaling, magnitude), source) = match (old, new, self.table.unsaid_scaling) {
            (Some(old), Some(new), _) if old != new => {
                // Compared by all numbers, as the words of a report leave some out.
                let (one, other) =
                    (format!("rope_scaling says {:?}", old.0), format!("rope_parameters says {:?}", new.0));
                return Err(self.reader.contradiction(one, other));
            }
            (Some(scaled), _, _) => (scaled, format!("{theta_source}, rope_scaling")),
            (None, Some(scaled), _) => (scaled, format!("{theta_source}, rope_parameters")),
            (None, None, None) => ((RopeScaling::Default, 1.0), theta_source),
            (None, None, Some(why)) => return Err(missing(self.reader.fields(), "rope_parameters", why)),
        };
        let score_factor = self.score_factor(current.or(legacy), &scaling)?;
        let layout = self.table.config_layout;
        let sections = self.sections([current, legacy], dimensions / 2)?;
        Ok(Rope { layout, theta, scaling, dimensions, magnitude, score_factor, sections, source })
    }

    fn theta(&self, sections: Sections<'_>) -> Result<(f64, String)> {
        if let Some((theta, key)) = self.agreed("rope_theta", sections)? {
            return Ok((self.positive(&key, theta)?, key));
        }
        let absent = || missing(self.reader.fields(), "rope_theta", "models of this family differ in it");
        Ok(self.absent_theta("", "rope_theta", self.table.theta.ok_or_else(absent)?))
    }

    /// The rotated elements of a head: all, or the leading part that the model or its family gives.
    fn dimensions(&self, sections: Sections<'_>, head_dim: usize) -> Result<usize> {
        for section in sections.iter().rev().flatten() {
            if section.text("rope_type")?.or(section.text("type")?) == Some(PROPORTIONAL) {
                return Ok(head_dim);
            }
        }
        let by_part = |key: &str| self.table.rotary_part.is_some() && !self.reader.fields().has(key);
        if let Some((key, default, source)) = self.table.rotary_dim.filter(|(key, ..)| !by_part(key)) {
            // Null means all of a head.
            let all = if self.reader.is_null(key) { head_dim } else { default };
            let dimensions = self.reader.or_default(self.reader.size(Key::config(key))?, key, (all, source));
            return match dimensions > head_dim {
                true => Err(self.reader.value(key, dimensions, format!("up to the {head_dim} elements of a head"))),
                false => Ok(dimensions),
            };
        }
        let stored = self.agreed("partial_rotary_factor", sections)?;
        let part = match (self.table.rotary_part, stored) {
            (None, None) => return Ok(head_dim),
            (None, Some((part, key))) if part != 1.0 => {
                return Err(self.reader.feature(&format!("a partial rotation of {part}"), &key, "1.0"));
            }
            (Some(_), Some((part, key))) if !(part > 0.0 && part <= 1.0) => {
                return Err(self.reader.value(&key, part, "a number above 0 and up to 1".into()));
            }
            (_, Some((part, _))) => part,
            (Some(default), None) => self.reader.or_default(None, "partial_rotary_factor", default),
        };
        // Rounded down, like `int()` in transformers.
        match (head_dim as f64 * part) as usize {
            0 => Err(self.reader.value("partial_rotary_factor", part, "a part with at least one pair".into())),
            dimensions => Ok(dimensions),
        }
    }

    /// A number that may be at the top level and in either section, with the first key that has it; all must agree.
    fn agreed(&self, key: &'static str, [legacy, current]: Sections<'_>) -> Result<Option<(f64, String)>> {
        let named = self.reader.config_key(key);
        let nested = |section: Section<'_>| Ok(section.number(key)?.map(|value| (value, section.dotted(key))));
        let nested = |section: Option<Section<'_>>| section.map_or(Ok(None), nested);
        // For layers of one kind their own section counts, then the top level.
        let of_layers = current.is_some_and(|section| section.path() != "rope_parameters" && section.has(key));
        let top = if of_layers { None } else { self.reader.fields().number(&named)? };
        let places = [nested(legacy)?, nested(current)?, top.map(|value| (value, named))];
        let mut found = places.into_iter().flatten();
        let Some((first, first_key)) = found.next() else { return Ok(None) };
        match found.find(|(value, _)| *value != first) {
            Some((value, key)) => {
                Err(self.reader.contradiction(format!("{first_key} is {first}"), format!("{key} is {value}")))
            }
            None => Ok(Some((first, first_key))),
        }
    }

    /// The kind of a scaling, with the family's aliases replaced.
    fn known_kind<'k>(&self, kind: Option<&'k str>) -> Option<&'k str> {
        let of = |kind| self.table.aliases.iter().find(|(alias, _)| *alias == kind);
        kind.map(|kind| of(kind).map_or(kind, |(_, known)| known))
    }

    fn scaling(&self, section: Section<'_>, dimensions: usize) -> Result<Scaled> {
        let key = section.dotted("rope_type");
        let kind = match (self.known_kind(section.text("rope_type")?), self.known_kind(section.text("type")?)) {
            (Some(new), Some(old)) if new != old => {
                let other = format!("{} is {old}", section.dotted("type"));
                return Err(self.reader.contradiction(format!("{key} is {new}"), other));
            }
            (new, old) => new.or(old),
        };
        let foreign = |kind, known| Err(self.reader.feature(&format!("rope scaling {kind}"), &key, known));
        match kind {
            None if section.has("factor") => {
                Err(missing(self.reader.fields(), &key, "the kind of scaling is never guessed"))
            }
            None => {
                let (none, why) = (RopeScaling::Default, "transformers' standardize_rope_params takes default");
                Ok((self.reader.or_absent(None, none, "no rope scaling", &key, why), 1.0))
            }
            Some("default") => Ok((RopeScaling::Default, 1.0)),
            Some(kind) if self.table.longrope_magnitudes.is_some() && kind != "longrope" => {
                foreign(kind, "default or longrope")
            }
            Some("linear") => Ok((RopeScaling::Linear { factor: self.require(section, "factor")? }, 1.0)),
            Some("dynamic") => self.dynamic(section),
            // The base is multiplied too.
            Some(NTK) if self.table.ntk => {
                let factor = self.ntk(section)?.unwrap_or(1.0).powf(2.0 / dimensions as f64);
                Ok((RopeScaling::Linear { factor }, 1.0))
            }
            Some("llama3") => self.llama3(section),
            Some("yarn") => self.yarn(Some(section), self.require(section, "factor")?),
            Some("longrope") => self.longrope(section, dimensions),
            Some(PROPORTIONAL) => self.proportional(section, dimensions),
            Some(kind) if FOREIGN.contains(&kind) => foreign(kind, KNOWN),
            Some(kind) => Err(self.reader.value(&key, format!("{kind:?}"), KNOWN.into())),
        }
    }

    fn require(&self, section: Section<'_>, key: &'static str) -> Result<f64> {
        let absent = || missing(self.reader.fields(), &section.dotted(key), "the scaling needs it");
        self.optional(Some(section), Key::config(key))?.ok_or_else(absent)
    }

    /// transformers' dynamic scaling, which changes nothing up to `max_position_embeddings`: longer contexts are not planned.
    fn dynamic(&self, section: Section<'_>) -> Result<Scaled> {
        if self.alpha(section)?.is_none() {
            let (factor, context) = (self.require(section, "factor")?, self.sizes.context);
            self.reader.assume(format!(
                "no rope scaling: dynamic by {factor} begins beyond max_position_embeddings, {context}, which is the context"
            ));
        }
        Ok((RopeScaling::Default, 1.0))
    }

    /// What the base is raised by at every length, in families that read it.
    fn alpha(&self, section: Section<'_>) -> Result<Option<f64>> {
        let kind = self.known_kind(section.text("rope_type")?.or(section.text("type")?));
        let read = self.table.alpha && kind == Some("dynamic");
        if read { self.unless_zero(Some(section), Key::config("alpha")) } else { Ok(None) }
    }

    /// What the base is multiplied by at every length, in families whose own code has `ntk`.
    fn ntk(&self, section: Section<'_>) -> Result<Option<f64>> {
        if !self.table.ntk || section.text("rope_type")?.or(section.text("type")?) != Some(NTK) {
            return Ok(None);
        }
        if section.has("mixed_b") {
            return Err(self.reader.feature("ntk scaling by mixed factors", &section.dotted("mixed_b"), "null"));
        }
        self.require(section, "factor").map(Some)
    }

    fn llama3(&self, section: Section<'_>) -> Result<Scaled> {
        let original_context = self.original_context(Some(section))?;
        let low_freq_factor = self.require(section, "low_freq_factor")?;
        let high_freq_factor = self.require(section, "high_freq_factor")?;
        // Where they are equal, as published for Llama 4 Scout, no wave is between them.
        if high_freq_factor < low_freq_factor {
            let key = section.dotted("high_freq_factor");
            let expected = format!("at least low_freq_factor, which is {low_freq_factor}");
            return Err(self.reader.value(&key, high_freq_factor, expected));
        }
        let factor = self.require(section, "factor")?;
        Ok((RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context }, 1.0))
    }

    fn longrope(&self, section: Section<'_>, dimensions: usize) -> Result<Scaled> {
        let original_context = self.original_context(Some(section))?;
        let (magnitude, long_magnitude) = match self.table.longrope_magnitudes {
            Some([short, long]) => (self.require(section, short)?, self.require(section, long)?),
            None => {
                let factor = self.optional(Some(section), FACTOR)?;
                let factor = factor.unwrap_or(self.sizes.context as f64 / original_context as f64);
                let magnitude = self.optional(Some(section), Key::config("attention_factor"))?;
                let magnitude = magnitude.unwrap_or_else(|| longrope_magnitude(factor, original_context as f64));
                (magnitude, magnitude)
            }
        };
        let list = |key: &str| self.factors(section, key, dimensions).map(FrequencyFactors::Values);
        let (short, long) = (list("short_factor")?, list("long_factor")?);
        let original_context = original_context as usize;
        Ok((RopeScaling::LongRope { short, long, long_magnitude, original_context }, magnitude))
    }

    /// The `proportional` scaling: frequencies are those of the whole head, and only a part of the pairs is rotated.
    fn proportional(&self, section: Section<'_>, dimensions: usize) -> Result<Scaled> {
        let factor = self.optional(Some(section), FACTOR)?.unwrap_or(1.0);
        let part = self.agreed("partial_rotary_factor", [None, Some(section)])?;
        let (part, key) = part.unwrap_or_else(|| (1.0, section.dotted("partial_rotary_factor")));
        // Rounded down, like `int()` in transformers.
        let pairs = (part * dimensions as f64 / 2.0) as usize;
        if pairs == 0 || pairs > dimensions / 2 {
            return Err(self.reader.value(&key, part, "a part of a head, with at least one pair".into()));
        }
        Ok((RopeScaling::Proportional { factor, pairs }, 1.0))
    }

    /// A list of `dimensions / 2` frequency factors, rounded to F32 as in transformers and GGUF writers.
    fn factors(&self, section: Section<'_>, key: &str, dimensions: usize) -> Result<Vec<f64>> {
        let (dotted, fields) = (section.dotted(key), self.reader.fields());
        let list = match section.object().get(key) {
            None | Some(Value::Null) => return Err(missing(fields, &dotted, "the scaling needs it")),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(wrong_type(fields.file(), &dotted, other, "a list of numbers")),
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
}
