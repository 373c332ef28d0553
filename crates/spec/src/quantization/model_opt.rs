//! What NVIDIA's ModelOpt says of a model that it quantized, FP8, MXFP8 and NVFP4: config block -> [`Scheme`].
//!
//! Keys: ModelOpt 0.47 `torch/export/convert_hf_config.py`. The block is in `config.json`, or in a file of ModelOpt's own.

use super::foreign::unsupported;
use super::fp8::BLOCK;
use super::names::Names;
use super::scheme::{Fp4, Group, Kind, Scheme, WeightScales};
use super::{expect_stored, of_block};
use crate::error::{Error, Result};
use crate::header::config::{ConfigFiles, JsonFile, Section};
use crate::header::{Fields, Header};
use model_factory_dtypes::DType;
use regex::escape;

/// What people call the method.
const METHOD: &str = "ModelOpt";

/// The key of an algorithm.
const ALGORITHM: &str = "quant_algo";

/// The algorithm that leaves activations as they are.
const WEIGHTS_ONLY: &str = "W4A16_NVFP4";

/// The file next to `config.json` where ModelOpt says what it did.
pub(super) const FILE: &str = "hf_quant_config.json";

/// The scheme of a model's files; `None` when they announce none of ModelOpt's.
///
/// # Errors
/// `Quantization` for an algorithm that does not run and for a pattern that cannot be evaluated, `Incomplete` where no tensor is stored as
/// these are, `Format` for keys of the wrong type.
pub(super) fn read(header: &Header, files: &ConfigFiles) -> Result<Option<Scheme>> {
    let scheme = |block: &Section<'_>| {
        let scheme = scheme(block)?;
        // Of FP8 these are weights, of NVFP4 scales.
        expect_stored(header, DType::F8_E4M3, METHOD, block)?;
        Ok(Some(scheme))
    };
    let in_config = of_block(files, |block| {
        let method = block.text("quant_method")?.map(str::to_ascii_lowercase);
        match method.as_deref() {
            Some("modelopt" | "modelopt_fp4") => scheme(block),
            None if block.has(ALGORITHM) => scheme(block),
            _ => Ok(None),
        }
    })?;
    if let Some(scheme) = in_config {
        return Ok(scheme);
    }
    let side = files.quantization.as_ref().filter(|file| file.file().ends_with(FILE));
    side.and_then(|file| file.section("quantization").transpose()).map_or(Ok(None), |block| scheme(&block?))
}

/// The algorithm of a model whose layers have algorithms of their own.
const MIXED: &str = "MIXED_PRECISION";

fn scheme(block: &Section<'_>) -> Result<Scheme> {
    const KNOWN: &str = "quant_method quant_algo kv_cache_quant_algo kv_cache_scheme group_size ignore exclude_modules config_groups \
                         producer quantized_layers";
    let algorithm = block.text(ALGORITHM)?;
    let of_all = algorithm.and_then(kind);
    if of_all.is_none() && algorithm != Some(MIXED) {
        return Err(refusal(block, algorithm, "an algorithm of FP8, MXFP8 or NVFP4, or MIXED_PRECISION"));
    }
    // The patterns of Python's fnmatch, of which no set of characters is known in a name.
    let names = Names::read(METHOD, block, &["ignore", "exclude_modules"], |name| {
        Some(format!(r"(?:{})\z", escape(name).replace(r"\*", ".*").replace(r"\?", ".")))
    });
    let method = if matches!(of_all, Some(Kind::Fp8(_))) { "ModelOpt FP8" } else { METHOD };
    let mut scheme = Scheme::new(method, block, names?);
    scheme.notes.unknown(block, KNOWN);
    if algorithm != Some(WEIGHTS_ONLY) {
        scheme.notes.floats.push(block.dotted(ALGORITHM));
    }
    scheme.note_cache(block);
    if let Some(kind) = of_all {
        check_size(block, kind)?;
        return Ok(scheme.with_group(kind));
    }
    let Some(layers) = block.section("quantized_layers")? else {
        return Err(unsupported(METHOD, block, "quantized_layers", "absent", "the algorithm of each layer"));
    };
    let mut of_kinds: Vec<(Kind, Vec<&str>)> = Vec::new();
    for name in layers.object().keys() {
        let Some(layer) = layers.section(name)? else { continue };
        let algorithm = layer.text(ALGORITHM)?;
        let Some(kind) = algorithm.and_then(kind) else {
            return Err(refusal(&layer, algorithm, "an algorithm of FP8, MXFP8 or NVFP4"));
        };
        check_size(&layer, kind)?;
        match of_kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, names)) => names.push(name),
            None => of_kinds.push((kind, vec![name])),
        }
    }
    let place = layers.path();
    let group = |(kind, names): (Kind, Vec<&str>)| Group { place: place.clone(), targets: Names::of(names), kind };
    scheme.groups = of_kinds.into_iter().map(group).collect();
    Ok(scheme)
}

fn refusal(section: &Section<'_>, found: Option<&str>, expected: &str) -> Error {
    let found = found.map_or("absent".to_owned(), |found| format!("{found:?}"));
    unsupported(METHOD, section, ALGORITHM, &found, expected)
}

/// What an algorithm stores, where it runs.
fn kind(algorithm: &str) -> Option<Kind> {
    match algorithm {
        "FP8" => Some(Kind::Fp8(WeightScales::Tensor)),
        "FP8_PER_CHANNEL_PER_TOKEN" => Some(Kind::Fp8(WeightScales::Channel)),
        "FP8_PB_WO" => Some(Kind::Fp8(WeightScales::Block(BLOCK))),
        "MXFP8" => Some(Kind::Fp8(WeightScales::Group(32))),
        "NVFP4" | WEIGHTS_ONLY => Some(Kind::Fp4(Fp4::Multiplied)),
        _ => None,
    }
}

/// Refuses groups of another size than the algorithm's.
fn check_size(section: &Section<'_>, kind: Kind) -> Result<()> {
    const KEY: &str = "group_size";
    let size = match kind {
        Kind::Fp4(fp4) => fp4.size(),
        Kind::Fp8(WeightScales::Group(size)) => size,
        _ => return Ok(()),
    };
    match section.unsigned(KEY)? {
        Some(found) if found != size => Err(unsupported(METHOD, section, KEY, &found.to_string(), &size.to_string())),
        _ => Ok(()),
    }
}

/// Whether ModelOpt's own file says how weights are quantized, which must be an algorithm that runs.
pub(super) fn describes(file: &JsonFile) -> Result<bool> {
    Ok(file.section("quantization")?.map(|block| scheme(&block)).transpose()?.is_some())
}
