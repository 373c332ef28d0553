//! Metadata -> Rope: base, scaling and pairing of the rotary embedding.

use super::inspect::{Reader, missing};
use super::{Rope, RopeScaling, Sizes};
use crate::dtype::DType;
use crate::error::{Error, IncompleteKind, Result};
use crate::family::{Family, Key};
use crate::header::config::Section;
use crate::header::{Fields, Header, Metadata};

/// The tensor of divisors that GGUF writers store for `llama3` scaling.
const DIVISORS: &str = "rope_freqs.weight";

/// Scalings that exist elsewhere and are not computed here.
const FOREIGN: &[&str] = &["yarn", "longrope", "su", "dynamic", "mrope", "proportional"];

pub(super) fn resolve(
    reader: &Reader<'_>,
    family: &Family,
    header: &Header,
    sizes: &Sizes,
    assumptions: &mut Vec<String>,
) -> Result<Rope> {
    let rope = match &header.metadata {
        Metadata::Gguf(_) => from_gguf(reader, family, header, sizes, assumptions)?,
        Metadata::Config(files) => {
            let legacy = files.config.section("rope_scaling")?;
            let current = files.config.section("rope_parameters")?;
            from_config(reader, family, legacy, current, sizes, assumptions)?
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

fn from_gguf(
    reader: &Reader<'_>,
    family: &Family,
    header: &Header,
    sizes: &Sizes,
    assumptions: &mut Vec<String>,
) -> Result<Rope> {
    let key = |suffix: &'static str| reader.key(Key { gguf: suffix, config: "" });
    let fields = reader.fields;
    let dimensions_key = key(".rope.dimension_count");
    let dimensions = match fields.unsigned(&dimensions_key)? {
        None => sizes.head_dim,
        // llama.cpp refuses a `llama` file in which the two differ.
        Some(dimensions) if dimensions == sizes.head_dim as u64 => sizes.head_dim,
        Some(dimensions) => {
            return Err(reader.contradiction(
                format!("{dimensions_key} is {dimensions}"),
                format!("a head has {} elements and this family rotates all of them", sizes.head_dim),
            ));
        }
    };
    let theta_key = key(".rope.freq_base");
    let (theta, theta_source) = match fields.number(&theta_key)? {
        Some(theta) => (positive(reader, &theta_key, theta)?, theta_key),
        None => default_theta(family, &theta_key, assumptions),
    };
    let type_key = key(".rope.scaling.type");
    let factor_key = key(".rope.scaling.factor");
    let old_factor_key = key(".rope.scale_linear");
    let kind = fields.text(&type_key)?;
    let factor = match fields.number(&factor_key)? {
        Some(factor) => Some(factor),
        None => fields.number(&old_factor_key)?,
    };
    let linear = match (kind, factor) {
        (Some("none"), _) | (None | Some("linear"), None) => None,
        // llama.cpp reads a factor of 0 as none, and takes a factor without a type as linear.
        (None | Some("linear"), Some(factor)) if factor == 0.0 || factor == 1.0 => None,
        (None | Some("linear"), Some(factor)) => Some(positive(reader, &factor_key, factor)?),
        (Some(kind), _) if FOREIGN.contains(&kind) => {
            return Err(reader.feature(&format!("rope scaling {kind}"), &type_key, "none, linear or stored divisors"));
        }
        (Some(kind), _) => {
            return Err(reader.value(&type_key, format!("{kind:?}"), "none, linear, yarn or longrope".into()));
        }
    };
    let (scaling, source) = match (header.tensors.get(DIVISORS), linear) {
        (Some(tensor), None) => {
            check_divisors(reader, tensor, dimensions)?;
            (RopeScaling::Divisors { tensor: tensor.clone() }, format!("{theta_source}, {DIVISORS}"))
        }
        (Some(_), Some(factor)) => {
            let feature = format!("{DIVISORS} together with a linear factor of {factor}");
            return Err(reader.feature(&feature, &factor_key, "one of them"));
        }
        (None, Some(factor)) => (RopeScaling::Linear { factor }, format!("{theta_source}, {factor_key}")),
        (None, None) => (RopeScaling::Default, theta_source),
    };
    Ok(Rope { layout: family.gguf_rope, theta, scaling, dimensions, source })
}

fn check_divisors(reader: &Reader<'_>, tensor: &crate::header::TensorInfo, dimensions: usize) -> Result<()> {
    let expected = vec![dimensions as u64 / 2];
    let kind = if tensor.dtype != DType::F32 {
        IncompleteKind::TensorDType { name: tensor.name.clone(), found: tensor.dtype, expected: "F32" }
    } else if tensor.shape != expected {
        IncompleteKind::TensorShape {
            name: tensor.name.clone(),
            found: tensor.shape.clone(),
            expected,
            because: format!("half of the {dimensions} rotated elements"),
        }
    } else {
        return Ok(());
    };
    Err(Error::incomplete(reader.fields.file(), kind))
}

/// transformers 5 writes `rope_parameters`, transformers 4 `rope_scaling` and `rope_theta`; where both lie in one file
/// transformers 5 lets `rope_scaling` win.
fn from_config(
    reader: &Reader<'_>,
    family: &Family,
    legacy: Option<Section<'_>>,
    current: Option<Section<'_>>,
    sizes: &Sizes,
    assumptions: &mut Vec<String>,
) -> Result<Rope> {
    let (theta, theta_source) = theta(reader, family, legacy, current, assumptions)?;
    for section in [&legacy, &current].into_iter().flatten() {
        refuse_partial(reader, section.number("partial_rotary_factor")?, "rope_parameters.partial_rotary_factor")?;
    }
    refuse_partial(reader, reader.fields.number("partial_rotary_factor")?, "partial_rotary_factor")?;
    if reader.fields.boolean("rope_interleaved")? == Some(true) {
        return Err(reader.feature("interleaved rotation", "rope_interleaved", "false"));
    }
    let section = legacy.map(|section| ("rope_scaling", section)).or(current.map(|s| ("rope_parameters", s)));
    let (scaling, source) = match section {
        Some((name, section)) => (scaling(reader, name, section)?, format!("{theta_source}, {name}")),
        None => (RopeScaling::Default, theta_source),
    };
    let dimensions = sizes.head_dim;
    Ok(Rope { layout: family.config_rope, theta, scaling, dimensions, source })
}

fn refuse_partial(reader: &Reader<'_>, factor: Option<f64>, key: &str) -> Result<()> {
    match factor {
        Some(factor) if factor != 1.0 => Err(reader.feature(&format!("a partial rotation of {factor}"), key, "1.0")),
        _ => Ok(()),
    }
}

fn theta(
    reader: &Reader<'_>,
    family: &Family,
    legacy: Option<Section<'_>>,
    current: Option<Section<'_>>,
    assumptions: &mut Vec<String>,
) -> Result<(f64, String)> {
    let mut found: Option<(f64, &str)> = None;
    let nested = |section: Option<Section<'_>>| section.map_or(Ok(None), |section| section.number("rope_theta"));
    let places = [
        ("rope_scaling.rope_theta", nested(legacy)?),
        ("rope_parameters.rope_theta", nested(current)?),
        ("rope_theta", reader.fields.number("rope_theta")?),
    ];
    for (key, theta) in places {
        let Some(theta) = theta else { continue };
        let theta = positive(reader, key, theta)?;
        match found {
            Some((first, first_key)) if first != theta => {
                return Err(reader.contradiction(format!("{first_key} is {first}"), format!("{key} is {theta}")));
            }
            _ => found = found.or(Some((theta, key))),
        }
    }
    Ok(match found {
        Some((theta, key)) => (theta, key.to_owned()),
        None => default_theta(family, "rope_theta", assumptions),
    })
}

fn scaling(reader: &Reader<'_>, name: &str, section: Section<'_>) -> Result<RopeScaling> {
    // transformers 5 standardises on `rope_type`; both are read, so that neither can be of another type.
    let (current, old) = (section.text("rope_type")?, section.text("type")?);
    let kind = current.or(old);
    let require = |key: &str| {
        let dotted = format!("{name}.{key}");
        let value = section.number(key)?;
        positive(reader, &dotted, value.ok_or_else(|| missing(reader.fields, &dotted, "the scaling needs it"))?)
    };
    match kind {
        None => Err(missing(reader.fields, &format!("{name}.rope_type"), "the kind of scaling is never guessed")),
        Some("default") => Ok(RopeScaling::Default),
        Some("linear") => Ok(RopeScaling::Linear { factor: require("factor")? }),
        Some("llama3") => {
            // A value at the top level wins, as in transformers.
            let outer = reader.fields.unsigned("original_max_position_embeddings")?;
            let original_context = match outer {
                Some(context) => context,
                None => {
                    let key = "original_max_position_embeddings";
                    let dotted = format!("{name}.{key}");
                    let inner = section.unsigned(key)?;
                    inner.ok_or_else(|| missing(reader.fields, &dotted, "the scaling needs it"))?
                }
            };
            if original_context == 0 {
                let key = "original_max_position_embeddings";
                return Err(reader.value(key, original_context, "a positive number".into()));
            }
            let (low, high) = (require("low_freq_factor")?, require("high_freq_factor")?);
            if high <= low {
                let key = format!("{name}.high_freq_factor");
                return Err(reader.value(&key, high, format!("more than low_freq_factor, which is {low}")));
            }
            Ok(RopeScaling::Llama3 {
                factor: require("factor")?,
                low_freq_factor: low,
                high_freq_factor: high,
                original_context,
            })
        }
        Some(kind) if FOREIGN.contains(&kind) => {
            let key = format!("{name}.rope_type");
            Err(reader.feature(&format!("rope scaling {kind}"), &key, "default, linear or llama3"))
        }
        Some(kind) => {
            let key = format!("{name}.rope_type");
            Err(reader.value(&key, format!("{kind:?}"), "default, linear or llama3".into()))
        }
    }
}

fn positive(reader: &Reader<'_>, key: &str, value: f64) -> Result<f64> {
    if value > 0.0 { Ok(value) } else { Err(reader.value(key, value, "a positive number".into())) }
}

fn default_theta(family: &Family, key: &str, assumptions: &mut Vec<String>) -> (f64, String) {
    let (theta, why) = family.default_theta;
    assumptions.push(format!("rope theta {theta}: {key} is absent ({why})"));
    (theta, format!("default ({why})"))
}
