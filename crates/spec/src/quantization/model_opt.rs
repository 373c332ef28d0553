//! What NVIDIA's ModelOpt says of a model that it quantized, FP8 and NVFP4: config block -> [`Scheme`].
//!
//! Keys: ModelOpt 0.47 `torch/export/convert_hf_config.py`. The block is in `config.json`, or in a file of ModelOpt's own.

use super::fp8::BLOCK;
use super::names::Names;
use super::of_block;
use super::scheme::{Fp4, Kind, Scheme, WeightScales};
use crate::error::Result;
use crate::header::config::{ConfigFiles, JsonFile, Section};
use crate::header::{Fields, Header};
use model_factory_dtypes::DType;
use regex::escape;

/// The file next to `config.json` where ModelOpt says what it did.
pub(super) const FILE: &str = "hf_quant_config.json";

/// The scheme of a model's files; `None` when they announce none of ModelOpt's that runs.
///
/// # Errors
/// `Quantization` for a pattern that cannot be evaluated, `Format` for keys of the wrong type.
pub(super) fn read(header: &Header, files: &ConfigFiles) -> Result<Option<Scheme>> {
    if header.tensors.values().all(|tensor| tensor.dtype != DType::F8_E4M3) {
        return Ok(None);
    }
    let in_config = of_block(files, |block| {
        let method = block.text("quant_method")?.map(str::to_ascii_lowercase);
        match method.as_deref() {
            Some("modelopt" | "modelopt_fp4") => scheme(block),
            None if block.has("quant_algo") => scheme(block),
            _ => Ok(None),
        }
    })?;
    if let Some(scheme) = in_config {
        return Ok(scheme);
    }
    let side = files.quantization.as_ref().filter(|file| file.file().ends_with(FILE));
    side.and_then(|file| file.section("quantization").transpose()).map_or(Ok(None), |block| scheme(&block?))
}

fn scheme(block: &Section<'_>) -> Result<Option<Scheme>> {
    const KNOWN: &str = "quant_method quant_algo kv_cache_quant_algo kv_cache_scheme group_size ignore exclude_modules config_groups \
                         producer";
    let kind = match block.text("quant_algo")? {
        Some("FP8") => Kind::Fp8(WeightScales::Tensor),
        Some("FP8_PER_CHANNEL_PER_TOKEN") => Kind::Fp8(WeightScales::Channel),
        Some("FP8_PB_WO") => Kind::Fp8(WeightScales::Block(BLOCK)),
        Some("NVFP4" | "W4A16_NVFP4") => Kind::Fp4(Fp4::Multiplied),
        _ => return Ok(None),
    };
    // The patterns of Python's fnmatch, of which no set of characters is known in a name.
    let names = Names::read("ModelOpt", block, &["ignore", "exclude_modules"], |name| {
        Some(format!(r"(?:{})\z", escape(name).replace(r"\*", ".*").replace(r"\?", ".")))
    });
    let mut scheme = Scheme::new(if matches!(kind, Kind::Fp8(_)) { "ModelOpt FP8" } else { "ModelOpt" }, block, names?);
    scheme.notes.unknown(block, KNOWN);
    if block.text("quant_algo")? != Some("W4A16_NVFP4") {
        scheme.notes.floats.push(block.dotted("quant_algo"));
    }
    if let (Kind::Fp4(fp4), Some(size)) = (kind, block.unsigned("group_size")?)
        && size != fp4.size()
    {
        return Err(super::foreign::unsupported("ModelOpt", block, "group_size", &size.to_string(), "16"));
    }
    scheme.note_cache(block);
    Ok(Some(scheme.with_group(kind)))
}

/// Whether ModelOpt's own file says one that runs.
pub(super) fn describes(file: &JsonFile) -> Result<bool> {
    let block = file.section("quantization")?;
    Ok(block.map(|block| scheme(&block)).transpose()?.flatten().is_some())
}
