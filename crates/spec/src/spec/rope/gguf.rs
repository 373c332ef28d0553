//! The rotary embedding of GGUF files.

use super::{Resolver, Scaled, longrope_magnitude, unread_attention_factor, yarn_magnitude};
use crate::error::{Error, IncompleteKind, Result};
use crate::header::{Fields, TensorInfo};
use crate::spec::reader::missing;
use crate::spec::{FrequencyFactors, QueryScale, Rope, RopeScaling};
use model_factory_dtypes::DType;

/// The tensor of frequency factors that writers store for `llama3` scaling.
const ROPE_FREQS: &str = "rope_freqs.weight";

/// The tensors of frequency factors that writers store for `longrope` scaling.
const FACTORS_SHORT: &str = "rope_factors_short.weight";
const FACTORS_LONG: &str = "rope_factors_long.weight";

/// What cosines and sines are multiplied by.
const ATTENTION_FACTOR: &str = ".rope.scaling.attn_factor";

impl Resolver<'_> {
    fn key(&self, suffix: &'static str) -> String {
        self.reader.gguf_key(suffix)
    }

    fn fields(&self) -> &dyn Fields {
        self.reader.fields()
    }

    /// The number under `key`, as far as it is one to divide or multiply by.
    fn positive_number(&self, suffix: &'static str) -> Result<Option<f64>> {
        let key = self.key(suffix);
        self.fields().number(&key)?.map(|number| self.positive(&key, number)).transpose()
    }

    pub(super) fn gguf_ropes(&self) -> Result<Vec<Rope>> {
        let rope = self.gguf_rope()?;
        let window = self.table.window.as_ref().map(|window| self.of_windows(&rope, window)).transpose()?;
        let key = self.key(".rope.dimension_count_swa");
        if let (Some(window), Some(dimensions)) = (&window, self.fields().unsigned(&key)?)
            && dimensions != window.dimensions as u64
        {
            let one = format!("{key} is {dimensions}");
            return Err(self.reader.contradiction(one, format!("{} elements of a head turn", window.dimensions)));
        }
        Ok(std::iter::once(rope).chain(window).collect())
    }

    fn gguf_rope(&self) -> Result<Rope> {
        const BASE: &str = ".rope.freq_base";
        let dimensions = self.gguf_dimensions()?;
        let (theta, theta_source) = match self.positive_number(BASE)? {
            Some(theta) => (theta, self.key(BASE)),
            None => self.absent_theta(&self.key(BASE), (10_000.0, "the default of llama.cpp")),
        };
        let ((scaling, magnitude), source) = self.gguf_scaling(theta, theta_source, dimensions)?;
        let query_scale = self.gguf_query_scale()?;
        Ok(Rope { layout: self.table.gguf_layout, theta, scaling, dimensions, magnitude, query_scale, source })
    }

    fn gguf_query_scale(&self) -> Result<Option<QueryScale>> {
        let Some(key) = self.table.query_scale.map(|key| self.reader.key(key)) else { return Ok(None) };
        let Some(beta) = self.fields().number(&key)?.filter(|beta| *beta != 0.0) else { return Ok(None) };
        let beta = self.positive(&key, beta)?;
        Ok(Some(QueryScale { beta, original_context: self.gguf_original_context()? }))
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
                self.reader.assume(format!(
                    "all {head_dim} elements of a head are rotated: {key} is absent (llama.cpp default)"
                ));
                Ok(head_dim)
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

    /// The scaling and where it comes from.
    fn gguf_scaling(&self, theta: f64, theta_source: String, dimensions: usize) -> Result<(Scaled, String)> {
        let (type_key, factor_key) = (self.key(".rope.scaling.type"), self.key(".rope.scaling.factor"));
        let kind = self.fields().text(&type_key)?;
        let (factor, factor_key) = match (self.fields().number(&factor_key)?, self.key(".rope.scale_linear")) {
            (None, old_key) => (self.fields().number(&old_key)?, old_key),
            (factor, _) => (factor, factor_key),
        };
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
            let absent = || missing(self.fields(), &self.key(".rope.scaling.factor"), "the scaling needs it");
            let factor = self.positive(&factor_key, factor.ok_or_else(absent)?)?;
            return Ok((self.gguf_yarn(factor)?, format!("{theta_source}, {type_key}, {factor_key}")));
        }
        self.refuse_attention_factor()?;
        let linear = match (kind, factor) {
            // llama.cpp reads a factor of 0 as none, and takes a factor without a type as linear.
            (Some("none"), _) | (None | Some("linear"), None | Some(0.0 | 1.0)) => None,
            (None | Some("linear"), Some(factor)) => Some(self.positive(&factor_key, factor)?),
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
            (Some(_), Some(factor)) => {
                let feature = format!("{ROPE_FREQS} together with a linear factor of {factor}");
                return Err(self.reader.feature(&feature, &factor_key, "one of them"));
            }
            (None, Some(factor)) => ((RopeScaling::Linear { factor }, 1.0), format!("{theta_source}, {factor_key}")),
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
        let original_context = self.gguf_original_context()?;
        let magnitude = self.positive_number(ATTENTION_FACTOR)?.unwrap_or_else(|| {
            let factor = self.sizes.context as f64 / original_context as f64;
            let magnitude = longrope_magnitude(factor, original_context as f64);
            self.reader.assume(format!(
                "cosines and sines times {magnitude:.6}: {} is absent (transformers' longrope, for {factor} times the \
                 original context)",
                self.key(ATTENTION_FACTOR)
            ));
            magnitude
        });
        let (short, long) = (FrequencyFactors::Stored(short.clone()), FrequencyFactors::Stored(long.clone()));
        let original_context = original_context as usize;
        let scaling = RopeScaling::LongRope { short, long, long_magnitude: magnitude, original_context };
        Ok((scaling, magnitude))
    }

    fn gguf_yarn(&self, factor: f64) -> Result<Scaled> {
        self.refuse_attention_factor()?;
        let original_context = self.gguf_original_context()?;
        let log_key = self.key(".rope.scaling.yarn_log_multiplier");
        // transformers' `mscale_all_dim`, with an `mscale` of 1 (llama.cpp).
        let magnitude = match self.fields().number(&log_key)? {
            None | Some(0.0) => yarn_magnitude(factor, 1.0),
            Some(all) => yarn_magnitude(factor, 1.0) / yarn_magnitude(factor, self.positive(&log_key, all)?),
        };
        let attention_key = self.key(".rope.scaling.yarn_attn_factor");
        if let Some(unread) = self.fields().number(&attention_key)?
            && unread != 1.0
        {
            self.reader.assume(unread_attention_factor(&attention_key, unread, magnitude));
        }
        // 32 and 1: the YaRN paper, transformers and llama.cpp.
        let beta_fast = self.positive_number(".rope.scaling.yarn_beta_fast")?.unwrap_or(32.0);
        let beta_slow = self.positive_number(".rope.scaling.yarn_beta_slow")?.unwrap_or(1.0);
        let truncate = self.table.gguf_yarn_truncate;
        let scaling = RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate };
        Ok((scaling, magnitude))
    }

    fn gguf_original_context(&self) -> Result<u64> {
        let key = self.key(".rope.scaling.original_context_length");
        match self.fields().unsigned(&key)? {
            None => Err(missing(self.fields(), &key, "the scaling needs it")),
            Some(context @ (0 | 1)) => Err(self.reader.value(&key, context, "more than 1".into())),
            Some(context) => Ok(context),
        }
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

    /// Why there are factors for `dimensions` elements, and where that comes from.
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
