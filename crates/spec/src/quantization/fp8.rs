//! Floats of 8 bits (E4M3) as configs other than compressed-tensors' describe them: config block -> [`Scheme`] of one group.
//!
//! Keys and defaults: transformers 5 `FineGrainedFP8Config` and `FbgemmFp8Config` (`utils/quantization_config.py`), AutoFP8's older
//! keys. What does not run is refused with the key that asks for it.

use super::foreign;
use super::names::Names;
use super::scheme::{Kind, Scheme, WeightScales};
use super::{expect_stored, of_block};
use crate::error::{Error, Result};
use crate::header::config::{ConfigFiles, Section};
use crate::header::{Fields, Header};
use model_factory_dtypes::DType;
use regex::escape;

/// Ends of the names of scales, which multiply: those of the first are called inverse because they undo a division.
pub(crate) const SCALES: [&str; 2] = ["weight_scale_inv", "weight_scale"];

/// Sides of a block where the config gives none.
pub(super) const BLOCK: [u64; 2] = [128, 128];

/// The scheme of a model's files; `None` when they announce no FP8.
///
/// # Errors
/// `Quantization` for every scheme that does not run, `Incomplete` where no tensor is FP8, `Format` for keys of the wrong type.
pub(super) fn read(header: &Header, files: &ConfigFiles) -> Result<Option<Scheme>> {
    let scheme = of_block(files, |block| {
        let method = block.text("quant_method")?.map(str::to_ascii_lowercase);
        let method = method.as_deref().filter(|method| ["fp8", "fbgemm_fp8"].contains(method));
        if let Some(method) = method {
            expect_stored(header, DType::F8_E4M3, method, block)?;
        }
        match method {
            Some("fp8") => by_blocks_or_tensor(header, block).map(Some),
            Some(_) => {
                let mut scheme = Scheme::new("FBGEMM FP8", block, excluded("FP8", block, "modules_to_not_convert")?);
                scheme.notes.unknown(block, "quant_method activation_scale_ub modules_to_not_convert");
                scheme.notes.floats.push(format!("{} (FP8 by token)", block.dotted("activation_scale_ub")));
                Ok(Some(scheme.with_group(Kind::Fp8(WeightScales::Channel))))
            }
            None => Ok(None),
        }
    })?;
    Ok(scheme.flatten())
}

/// transformers' `fp8`, DeepSeek's and Qwen's, with a scale for each block, or AutoFP8's with one for each tensor.
fn by_blocks_or_tensor(header: &Header, block: &Section<'_>) -> Result<Scheme> {
    const KNOWN: &str = "quant_method activation_scheme weight_block_size modules_to_not_convert modules_to_convert ignored_layers \
                         dequantize fmt scale_fmt expert_dtype kv_cache_scheme";
    let key = if block.has("modules_to_not_convert") { "modules_to_not_convert" } else { "ignored_layers" };
    let mut scheme = Scheme::new("FP8", block, excluded("FP8", block, key)?);
    scheme.notes.unknown(block, KNOWN);
    let expected = [("fmt", "e4m3"), ("expert_dtype", "fp8")];
    for (key, expected) in expected {
        if let Some(found) = block.text(key)?.filter(|found| *found != expected) {
            return Err(refusal(block, key, &format!("{found:?}"), expected));
        }
    }
    if block.strings("modules_to_convert")?.is_some_and(|mut names| names.next().is_some()) {
        return Err(refusal(block, "modules_to_convert", "given", "null: only linear layers are computed in FP8"));
    }
    match block.text("activation_scheme")? {
        Some(kind @ ("dynamic" | "static")) => {
            scheme.notes.floats.push(format!("{} ({kind} FP8)", block.dotted("activation_scheme")));
        }
        None => scheme.notes.absent(block, "activation_scheme", "dynamic"),
        Some(other) => {
            return Err(refusal(block, "activation_scheme", &format!("{other:?}"), "dynamic or static"));
        }
    }
    scheme.note_cache(block);
    let scales = match block.integers("weight_block_size")? {
        Some(found) => WeightScales::of_block(&found).ok_or_else(|| {
            refusal(block, "weight_block_size", &format!("{found:?}"), "outputs and inputs of a block, or null")
        })?,
        None if block.object().contains_key("weight_block_size") => WeightScales::Tensor,
        // transformers takes blocks of 128 x 128, AutoFP8 and vLLM one scale for a tensor: the stored scales tell.
        None => {
            let is_scale = |name: &str| SCALES.iter().any(|end| name.ends_with(end));
            let mut scales = header.tensors.values().filter(|tensor| is_scale(&tensor.name));
            let blocks = scales.any(|scale| scale.shape.len() > 1);
            scheme.notes.absent(block, "weight_block_size", if blocks { "[128, 128]" } else { "null" });
            if blocks { WeightScales::Block(BLOCK) } else { WeightScales::Tensor }
        }
    };
    Ok(scheme.with_group(Kind::Fp8(scales)))
}

/// The modules that are left as they are by transformers' `should_convert_module`: an entry is a pattern of the beginning of a name
/// up to a dot or the end, or the end of a name.
pub(super) fn excluded(method: &str, block: &Section<'_>, key: &str) -> Result<Names> {
    Names::read(method, block, &[key], |name| {
        let border = if name.ends_with('.') { "" } else { r"(?:\.|\z)" };
        Some(format!(r"(?:{name}){border}|.*{}\z", escape(name)))
    })
}

fn refusal(block: &Section<'_>, key: &str, found: &str, expected: &str) -> Error {
    foreign::unsupported("FP8", block, key, found, expected)
}
