//! The schemes of compressed-tensors that run, int8 and packed integers: config block -> [`Scheme`] -> what it says of one module.
//!
//! Keys, values and the order of matches: compressed-tensors 0.20 `quantization/quant_args.py`, `quant_scheme.py`,
//! `quant_config.py`. What does not run is refused with the key that asks for it.

mod args;

use super::foreign;
use super::names::Names;
use super::scheme::{Activations, Fp4, Group, Kind, Notes, Scheme, WeightScales};
use crate::error::Result;
use crate::header::config::{ConfigFiles, Section};
use crate::header::{Fields, Header};
use serde_json::{Map, Value};

/// What people call the method.
const METHOD: &str = foreign::COMPRESSED_TENSORS;

/// The section of the config block, and of one within it.
const QUANTIZATION: &str = "quantization_config";

/// Formats that store I8 weights as they are.
const FORMATS: &[&str] = &["int-quantized", "naive-quantized"];

/// The format that packs integers into words.
const PACKED: &str = "pack-quantized";

/// Formats that store floats of 8 bits; the second has powers of 2 as scales.
const FLOATS: &[&str] = &["float-quantized", "mxfp8-quantized"];

/// Formats that store floats of 4 bits.
const FP4: [(&str, Fp4); 2] = [("nvfp4-pack-quantized", Fp4::Divided), ("mxfp4-pack-quantized", Fp4::Powers)];

/// Presets that stand for int8 weights by channel and activations dynamic by token.
const PRESETS: &[&str] = &["W8A8", "INT8"];

/// The scheme of a model's files; `None` when it has no block of compressed-tensors.
///
/// # Errors
/// `Quantization` for every scheme that does not run, `Format` for keys of the wrong type.
pub(super) fn read(_: &Header, files: &ConfigFiles) -> Result<Option<Scheme>> {
    let config = &files.config;
    let text = config.section("text_config")?;
    // The first block that is there counts.
    for (around, key) in [(None, QUANTIZATION), (text.as_ref(), QUANTIZATION), (None, "compression_config")] {
        let block = match around {
            Some(section) => section.section(key)?,
            None => config.section(key)?,
        };
        if let Some(block) = block {
            return scheme(&block);
        }
    }
    Ok(None)
}

fn scheme(outer: &Section<'_>) -> Result<Option<Scheme>> {
    let wrapped = outer.section(QUANTIZATION)?;
    let block = wrapped.as_ref().unwrap_or(outer);
    match block.text("quant_method")?.or(outer.text("quant_method")?) {
        Some("compressed-tensors") => {}
        None if block.has("config_groups") => {}
        _ => return Ok(None),
    }
    for part in [outer, block] {
        refuse_parts(part)?;
    }
    let Some(groups) = block.section("config_groups")? else {
        return Err(refusal(block, "config_groups", "absent", "groups of int8 weights and activations"));
    };
    let mut scheme = Scheme::new(METHOD, block, names(block, "ignore")?);
    for (name, value) in groups.object() {
        let group = match value {
            Value::Array(_) if PRESETS.contains(&name.to_ascii_uppercase().as_str()) => {
                if stored(block, block)? != Stored::Int8 {
                    return Err(refusal(&groups, name, "a preset", "a group with its arguments"));
                }
                let activations = Activations::PerToken { symmetric: true };
                let kind = Kind::Int8 { weights: WeightScales::Channel, activations };
                Group { place: groups.dotted(name), targets: names(&groups, name)?, kind }
            }
            Value::Array(_) => return Err(refusal(&groups, name, "a preset", "W8A8 or INT8")),
            _ => match groups.section(name)? {
                Some(section) => group(block, &section, &mut scheme.notes)?,
                None => continue,
            },
        };
        scheme.groups.push(group);
    }
    if scheme.groups.is_empty() {
        return Err(refusal(block, "config_groups", "empty", "groups of int8 weights and activations"));
    }
    for part in [outer, block] {
        if scheme.is_of_floats() {
            scheme.note_cache(part);
        } else if part.has("kv_cache_scheme") {
            return Err(refusal(part, "kv_cache_scheme", "given", "null: the KV cache is not quantised"));
        }
    }
    Ok(Some(scheme))
}

/// The parts of a block that change the arithmetic beyond its groups.
fn refuse_parts(block: &Section<'_>) -> Result<()> {
    for key in ["sparsity_config", "moe_sparsity_config"] {
        let Some(sparsity) = block.section(key)? else { continue };
        match sparsity.text("format")? {
            Some("dense") => {}
            None if sparsity.object().is_empty() => {}
            found => return Err(refusal(&sparsity, "format", &quoted(found), "dense weights")),
        }
    }
    let transforms = block.section("transform_config")?;
    let groups = transforms.as_ref().map(|transforms| transforms.object());
    let says_nothing = |transforms: &Map<String, Value>| {
        transforms.values().all(|value| value.is_null() || value.as_object().is_some_and(Map::is_empty))
    };
    if !groups.is_none_or(says_nothing) {
        return Err(refusal(block, "transform_config", "given", "none: transforms are not computed"));
    }
    Ok(())
}

fn group(block: &Section<'_>, group: &Section<'_>, notes: &mut Notes) -> Result<Group> {
    notes.unknown(group, "targets weights input_activations output_activations format");
    if group.has("output_activations") {
        return Err(refusal(group, "output_activations", "given", "null: outputs are not quantised"));
    }
    let Some(weights) = group.section("weights")? else {
        return Err(refusal(group, "weights", "null", "quantised weights"));
    };
    let kind = match (stored(block, group)?, group.section("input_activations")?) {
        (Stored::Floats, activations) => {
            if let Some(activations) = activations {
                args::bits(&activations, &[8], "float", notes)?;
                notes.floats.push(activations.path());
            }
            Kind::Fp8(args::weights(&weights, "float", notes)?)
        }
        (Stored::Fp4(fp4), activations) => {
            args::fp4(&weights, fp4.size(), notes)?;
            if let Some(activations) = activations {
                args::bits(&activations, &[4, 8], "float", notes)?;
                notes.floats.push(activations.path());
            }
            Kind::Fp4(fp4)
        }
        (Stored::Packed, None) => Kind::Packed(args::packed(&weights, notes)?),
        (Stored::Packed, Some(_)) => {
            let expected = "null: packed weights are multiplied with floats";
            return Err(refusal(group, "input_activations", "given", expected));
        }
        (Stored::Int8, None) => return Err(refusal(group, "input_activations", "null (w8a16)", "int8 activations")),
        (Stored::Int8, Some(activations)) => {
            if let Some(bits) = weights.object().get("num_bits").and_then(Value::as_u64).filter(|bits| *bits < 8) {
                let expected = "8, or activations of floats with pack-quantized";
                return Err(refusal(&weights, "num_bits", &bits.to_string(), expected));
            }
            let weights = args::weights(&weights, "int", notes)?;
            Kind::Int8 { weights, activations: args::activations(&activations, notes)? }
        }
    };
    Ok(Group { place: group.path(), targets: names(group, "targets")?, kind })
}

/// How the weights of a group are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    Int8,
    Packed,
    Floats,
    Fp4(Fp4),
}

/// How the weights of a group are stored, by its own format, where it has one, else by the block's.
fn stored(block: &Section<'_>, group: &Section<'_>) -> Result<Stored> {
    let place = if group.has("format") { group } else { block };
    match place.text("format")? {
        Some(PACKED) => Ok(Stored::Packed),
        Some(format) if FLOATS.contains(&format) => Ok(Stored::Floats),
        Some(format) if FORMATS.contains(&format) => Ok(Stored::Int8),
        found => match FP4.iter().find(|(format, _)| found == Some(format)) {
            Some((_, fp4)) => Ok(Stored::Fp4(*fp4)),
            None => {
                let known = [FORMATS, &FP4.map(|(format, _)| format), FLOATS].concat().join(", ");
                Err(refusal(place, "format", &quoted(found), &format!("{known} or {PACKED}")))
            }
        },
    }
}

/// The list under `key`, where entries that begin with `re:` are patterns.
fn names(section: &Section<'_>, key: &str) -> Result<Names> {
    Names::read(METHOD, section, &[key], |name| name.strip_prefix("re:").map(str::to_owned))
}

fn quoted(found: Option<&str>) -> String {
    found.map_or("absent".to_owned(), |found| format!("{found:?}"))
}

/// The refusal of what `section` says under `key`.
fn refusal(section: &Section<'_>, key: &str, found: &str, expected: &str) -> crate::Error {
    foreign::unsupported(METHOD, section, key, found, expected)
}
