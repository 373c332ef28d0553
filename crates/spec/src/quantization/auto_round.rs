//! AutoRound's own format: config block -> [`Scheme`]. Its words are those of GPTQ or AWQ, as `packing_format` says.
//!
//! Keys and layouts: AutoRound 0.16 `export/export_to_autoround/export.py`, `inference/backend.py`. What does not run is refused with
//! the key that asks for it.

use super::foreign;
use super::gptq::{contained, refusal, with_block};
use super::names::Names;
use super::scheme::{ColumnPacked, Group, Kind, Scheme};
use crate::error::Result;
use crate::header::config::ConfigFiles;
use crate::header::{Fields, Header};
use model_factory_dtypes::PackedDim;

/// What people call the method.
const METHOD: &str = "AutoRound";

/// Keys that change nothing here: how the weights were found.
const KNOWN: &str = "quant_method bits act_bits group_size sym data_type packing_format extra_config block_name_to_quantize \
                     autoround_version iters lr minmax_lr nsamples seqlen batch_size gradient_accumulate_steps low_gpu_mem_usage \
                     enable_quanted_input enable_minmax_tuning enable_norm_bias_tuning dataset amp scale_dtype to_quant_block_names \
                     act_data_type act_group_size act_sym act_dynamic super_bits super_group_size static_kv_dtype seed";

/// The scheme of a model's files; `None` when they announce another method.
///
/// # Errors
/// `Quantization` for every scheme that does not run, `Format` for keys of the wrong type.
pub(super) fn read(header: &Header, files: &ConfigFiles) -> Result<Option<Scheme>> {
    with_block(header, files, |block| {
        let method = block.text("quant_method")?.map(str::to_ascii_lowercase);
        if !matches!(method.as_deref(), Some("auto-round" | "intel/auto-round")) {
            return Ok(None);
        }
        let (packed, zero_offset) = match block.text("packing_format")? {
            Some("auto_round:auto_gptq" | "auto_round:gptq") => (PackedDim::Inputs, 1),
            Some("auto_round" | "auto_round:gptqmodel") => (PackedDim::Inputs, 0),
            Some("auto_round:auto_awq") => (PackedDim::Outputs, 0),
            found => {
                let expected = "auto_round:auto_gptq, auto_round:gptqmodel, auto_round or auto_round:auto_awq";
                return Err(refusal(block, METHOD, "packing_format", found, expected));
            }
        };
        if let Some(found) = block.text("data_type")?.filter(|found| *found != "int") {
            return Err(refusal(block, METHOD, "data_type", Some(found), "int"));
        }
        if let Some(found) = block.unsigned("act_bits")?.filter(|bits| *bits < 16) {
            return Err(foreign::unsupported(
                METHOD,
                block,
                "act_bits",
                &found.to_string(),
                "16: activations are floats",
            ));
        }
        let mut scheme = Scheme::new(METHOD, block, Names::none());
        scheme.notes.unknown(block, KNOWN);
        let base = ColumnPacked::read(METHOD, block, None, packed, zero_offset)?;
        if let Some(extra) = block.section("extra_config")? {
            for name in extra.object().keys() {
                let Some(part) = extra.section(name)? else { continue };
                // The tensors tell of modules that were left as they are.
                if part.unsigned("bits")?.is_some_and(|bits| bits >= 16) {
                    continue;
                }
                if let Some(found) = part.text("data_type")?.filter(|found| *found != "int") {
                    return Err(refusal(&part, METHOD, "data_type", Some(found), "int"));
                }
                let targets = Names::one(METHOD, &extra, name, contained(name).as_deref())?;
                let kind = Kind::Columns(ColumnPacked::read(METHOD, &part, Some(base), packed, zero_offset)?);
                scheme.groups.push(Group { place: part.path(), targets, kind });
            }
        }
        Ok(Some(scheme.with_group(Kind::Columns(base))))
    })
}
