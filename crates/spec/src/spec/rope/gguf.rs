//! The rotary embedding of GGUF files.

use super::{FACTOR, Resolver, Scaled, longrope_magnitude};
use crate::error::{Error, IncompleteKind, Result};
use crate::family::Key;
use crate::header::{Fields, TensorInfo};
use crate::spec::reader::missing;
use crate::spec::{FrequencyFactors, Rope, RopeScaling};
use model_factory_dtypes::DType;

/// The tensor of frequency factors that writers store for `llama3` scaling.
const ROPE_FREQS: &str = "rope_freqs.weight";

/// The tensors of frequency factors that writers store for `longrope` scaling.
const FACTORS_SHORT: &str = "rope_factors_short.weight";
const FACTORS_LONG: &str = "rope_factors_long.weight";

/// The key of the factor of cosines and sines.
const ATTENTION_FACTOR: &str = ".rope.scaling.attn_factor";

impl Resolver<'_> {
    fn key(&self, suffix: &'static str) -> String {
        self.reader.gguf_key(suffix)
    }

    fn fields(&self) -> &dyn Fields {
        self.reader.fields()
    }

    pub(super) fn gguf_ropes(&self) -> Result<Vec<Rope>> {
        let rope = self.gguf_rope()?;
        let window = self.table.window.as_ref().map(|window| self.of_windows(&rope, window)).transpose()?;
        Ok(std::iter::once(rope).chain(window).collect())
    }

    fn gguf_rope(&self) -> Result<Rope> {
        const BASE: Key = Key::gguf(".rope.freq_base");
        let dimensions = self.gguf_dimensions()?;
        let (theta, theta_source) = match self.optional(None, BASE)? {
            Some(theta) => (theta, self.reader.key(BASE)),
            None => self.absent_theta("", &self.reader.key(BASE), (10_000.0, "the default of llama.cpp")),
        };
        let ((scaling, magnitude), source) = self.gguf_scaling(theta, theta_source, dimensions)?;
        let score_factor = self.score_factor(None, &scaling)?;
        let layout = self.table.gguf_layout;
        let sections = self.sections([None, None], dimensions / 2)?;
        Ok(Rope { layout, theta, scaling, dimensions, magnitude, score_factor, sections, source })
    }

    fn gguf_dimensions(&self) -> Result<usize> {
        let head_dim = self.sizes.head_dim;
        let key = self.key(".rope.dimension_count");
        let part = self.table.rotary_part.map(|(part, _)| part);
        match self.fields().unsigned(&key)? {
            None if part.is_some_and(|part| part != 1.0) => {
                Err(missing(self.fields(), &key, "models of this family rotate a part of a head"))
            }
            None => {
                let what = format_args!("all {head_dim} elements of a head are rotated");
                Ok(self.reader.or_absent(None, head_dim, what, &key, "llama.cpp default"))
            }
            Some(dimensions) => {
                let least = if part.is_some() { 1 } else { head_dim };
                if (least as u64..=head_dim as u64).contains(&dimensions) {
                    return Ok(dimensions as usize);
                }
                // llama.cpp refuses a `llama` file in which the two differ.
                let all = if part.is_some() { "" } else { " and this family rotates all of them" };
                let head = format!("a head has {head_dim} elements{all}");
                Err(self.reader.contradiction(format!("{key} is {dimensions}"), head))
            }
        }
    }

    /// The scaling and its source.
    fn gguf_scaling(&self, theta: f64, theta_source: String, dimensions: usize) -> Result<(Scaled, String)> {
        const OLD_FACTOR: Key = Key::gguf(".rope.scale_linear");
        let type_key = self.key(".rope.scaling.type");
        let kind = self.fields().text(&type_key)?;
        let factor =
            self.number(None, FACTOR)?.map_or_else(|| self.number(None, OLD_FACTOR), |factor| Ok(Some(factor)))?;
        let tensors = &self.reader.header.tensors;
        if let (Some(kind @ ("yarn" | "longrope")), true) = (kind, tensors.contains_key(ROPE_FREQS)) {
            return Err(self.reader.feature(&format!("{kind} together with {ROPE_FREQS}"), &type_key, "one of them"));
        }
        match (kind, (tensors.get(FACTORS_SHORT), tensors.get(FACTORS_LONG))) {
            (None | Some("longrope"), (Some(short), Some(long))) => {
                let scaled = self.gguf_longrope(short, long, dimensions)?;
                return Ok((scaled, format!("{theta_source}, {FACTORS_SHORT}, {FACTORS_LONG}")));
            }
            (Some("longrope"), (None, _)) => return Err(self.reader.absent_tensor(FACTORS_SHORT, Vec::new())),
            (Some("longrope"), _) => return Err(self.reader.absent_tensor(FACTORS_LONG, Vec::new())),
            _ => {}
        }
        if kind == Some("yarn") {
            let absent = || missing(self.fields(), &self.reader.key(FACTOR), "the scaling needs it");
            let (factor, factor_key) = factor.ok_or_else(absent)?;
            let factor = self.positive(&factor_key, factor)?;
            self.refuse_attention_factor()?;
            return Ok((self.yarn(None, factor)?, format!("{theta_source}, {type_key}, {factor_key}")));
        }
        self.refuse_attention_factor()?;
        let linear = match (kind, factor) {
            // llama.cpp reads a factor of 0 as no scaling, and a factor without a type as linear.
            (Some("none"), _) | (None | Some("linear"), None | Some((0.0 | 1.0, _))) => None,
            (None | Some("linear"), Some((factor, key))) => Some((self.positive(&key, factor)?, key)),
            (Some(kind), _) => {
                return Err(self.reader.value(&type_key, format!("{kind:?}"), "none, linear, yarn or longrope".into()));
            }
        };
        Ok(match (tensors.get(ROPE_FREQS), linear) {
            (Some(tensor), None) => {
                self.check_factors(tensor, dimensions)?;
                let scaling = RopeScaling::Factors { tensor: tensor.clone() };
                ((scaling, 1.0), format!("{theta_source}, {ROPE_FREQS}"))
            }
            (Some(_), Some((factor, factor_key))) => {
                let feature = format!("{ROPE_FREQS} together with a linear factor of {factor}");
                return Err(self.reader.feature(&feature, &factor_key, "one of them"));
            }
            (None, Some((factor, key))) => ((RopeScaling::Linear { factor }, 1.0), format!("{theta_source}, {key}")),
            (None, None) if self.table.gguf_freqs_needed => {
                return Err(self.reader.absent_tensor(ROPE_FREQS, Vec::new()));
            }
            (None, None) => {
                self.note_absent_rope_freqs(theta);
                ((RopeScaling::Default, 1.0), theta_source)
            }
        })
    }

    fn note_absent_rope_freqs(&self, theta: f64) {
        if let Some((base, context)) = self.table.gguf_freqs_expected
            && theta == base
            && self.sizes.context > context
        {
            self.reader.assume(format!(
                "no rope scaling: {ROPE_FREQS} is absent although the context is {} (files converted before mid-2024 lack \
                 it: beyond {context} tokens their text degrades; convert the model again)",
                self.sizes.context
            ));
        }
    }

    fn gguf_longrope(&self, short: &TensorInfo, long: &TensorInfo, dimensions: usize) -> Result<Scaled> {
        self.check_factors(short, dimensions)?;
        self.check_factors(long, dimensions)?;
        let original_context = self.original_context(None)?;
        let magnitude = self.optional(None, Key::gguf(ATTENTION_FACTOR))?.unwrap_or_else(|| {
            let factor = self.sizes.context as f64 / original_context as f64;
            let magnitude = longrope_magnitude(factor, original_context as f64);
            let what = format_args!("cosines and sines times {magnitude:.6}");
            let why = format!("transformers' longrope, for {factor} times the original context");
            self.reader.or_absent(None, magnitude, what, &self.key(ATTENTION_FACTOR), &why)
        });
        let (short, long) = (FrequencyFactors::Stored(short.clone()), FrequencyFactors::Stored(long.clone()));
        let original_context = original_context as usize;
        let scaling = RopeScaling::LongRope { short, long, long_magnitude: magnitude, original_context };
        Ok((scaling, magnitude))
    }

    fn refuse_attention_factor(&self) -> Result<()> {
        let key = self.key(ATTENTION_FACTOR);
        match self.fields().number(&key)? {
            Some(factor) if factor != 1.0 => {
                Err(self.reader.feature(&format!("cosines and sines times {factor}"), &key, "1"))
            }
            _ => Ok(()),
        }
    }

    /// Why there are factors for `dimensions` elements, and the source of that number.
    fn rotated(&self, dimensions: usize) -> String {
        let (because, key) = (format!("half of the {dimensions} rotated elements"), self.key(".rope.dimension_count"));
        match self.fields().has(&key) {
            true => because,
            false => format!("{because}; {key} is absent and was taken as those of a head, {dimensions}"),
        }
    }

    fn check_factors(&self, tensor: &TensorInfo, dimensions: usize) -> Result<()> {
        let expected = vec![dimensions as u64 / 2];
        let kind = if tensor.dtype != DType::F32 {
            IncompleteKind::TensorDType { name: tensor.name.clone(), found: tensor.dtype, expected: "F32" }
        } else if tensor.shape != expected {
            let (name, found, because) = (tensor.name.clone(), tensor.shape.clone(), self.rotated(dimensions));
            IncompleteKind::TensorShape { name, found, expected, because }
        } else {
            return Ok(());
        };
        Err(Error::incomplete(self.fields().file(), kind))
    }
}
