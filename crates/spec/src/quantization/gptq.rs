//! GPTQ: the config of GPTQModel, AutoGPTQ and transformers -> [`Scheme`].
//!
//! Keys and layout: GPTQModel 7.7 `quantization/config.py`, `utils/model_dequant.py`, transformers 5 `GPTQConfig`. What does not run is
//! refused with the key that asks for it.

use super::foreign;
use super::names::Names;
use super::of_block;
use super::packed::COLUMNS;
use super::scheme::{ColumnPacked, Group, Kind, Scheme, WeightScales};
use crate::error::{Error, Result};
use crate::header::config::{ConfigFiles, JsonObject, Section};
use crate::header::{Fields, Header};
use model_factory_dtypes::PackedDim;
use regex::escape;
use serde_json::Value;

/// What people call the method.
const METHOD: &str = "GPTQ";

/// Keys that change nothing here: how the weights were found, and for other engines.
const KNOWN: &str = "quant_method method format checkpoint_format bits group_size sym desc_act lm_head dynamic pack_dtype meta adapter \
                     offload_to_disk pack_impl modules_in_block_to_quantize true_sequential damp_percent static_groups is_marlin_format \
                     model_name_or_path model_file_base_name tokenizer dataset block_name_to_quantize batch_size pad_token_id \
                     module_name_preceding_first_block use_cuda_fp16 use_exllama disable_exllama exllama_config max_input_length \
                     cache_block_outputs model_seqlen backend act_group_aware quant_type";

/// The scheme of a model's files; `None` when they announce another method.
///
/// # Errors
/// `Quantization` for every scheme that does not run, `Format` for keys of the wrong type.
pub(super) fn read(header: &Header, files: &ConfigFiles) -> Result<Option<Scheme>> {
    with_block(header, files, |block| {
        let method = block.text("quant_method")?.map(str::to_ascii_lowercase);
        match method.as_deref() {
            Some("gptq") => {}
            None if ["desc_act", "damp_percent"].iter().any(|key| block.has(key)) && !block.has("w_bit") => {}
            _ => return Ok(None),
        }
        let format = ["checkpoint_format", "format"].into_iter().find(|key| block.has(key));
        let zero_offset = match format.map(|key| (key, block.text(key))) {
            None => 1,
            Some((key, found)) => match found? {
                Some("gptq") => 1,
                Some("gptq_v2") => 0,
                found => return Err(refusal(block, METHOD, key, found, "gptq or gptq_v2")),
            },
        };
        for (key, expected) in [("is_marlin_format", "false"), ("adapter", "null: adapters are not applied")] {
            if block.object().get(key).is_some_and(|value| !value.is_null() && *value != Value::Bool(false)) {
                return Err(foreign::unsupported(METHOD, block, key, "given", expected));
            }
        }
        if let Some(found) = block.text("pack_dtype")?.filter(|found| *found != "int32") {
            return Err(refusal(block, METHOD, "pack_dtype", Some(found), "int32"));
        }
        let mut scheme = Scheme::new(METHOD, block, Names::none());
        scheme.notes.unknown(block, KNOWN);
        let base = ColumnPacked::read(METHOD, block, None, PackedDim::Inputs, zero_offset)?;
        if let Some(dynamic) = block.section("dynamic")? {
            for (pattern, value) in dynamic.object() {
                // The tensors tell of modules that were left as they are.
                if !pattern.starts_with("-:")
                    && let Value::Object(_) = value
                    && let Some(part) = dynamic.section(pattern)?
                {
                    let body = pattern.strip_prefix("+:").unwrap_or(pattern);
                    let targets = Names::one(METHOD, &dynamic, pattern, Some(body))?;
                    let kind = Kind::Columns(ColumnPacked::read(METHOD, &part, Some(base), base.packed, zero_offset)?);
                    scheme.groups.push(Group { place: part.path(), targets, kind });
                }
            }
        }
        Ok(Some(scheme.with_group(Kind::Columns(base))))
    })
}

/// Reads the block that says how words by columns are quantized, where there are any: that of `config.json`, of its part for text, or a
/// file next to it.
pub(super) fn with_block(
    header: &Header,
    files: &ConfigFiles,
    read: impl Fn(&Section<'_>) -> Result<Option<Scheme>>,
) -> Result<Option<Scheme>> {
    if !header.tensors.keys().any(|name| name.ends_with(COLUMNS)) {
        return Ok(None);
    }
    let side = files.quantization.as_ref().filter(|file| is_side_file(file.file()));
    let Some(scheme) = of_block(files, &read)? else {
        return side.map_or(Ok(None), |file| read(&file.whole()));
    };
    let Some(scheme) = scheme else { return Ok(None) };
    if let Some(file) = side {
        match read(&file.whole())? {
            Some(other) if other.in_words() == scheme.in_words() => {}
            Some(other) => {
                let says = format!("{} has {}", file.file().display(), other.in_words());
                return Err(Error::contradiction(
                    &scheme.file,
                    format!("{} has {}", scheme.place, scheme.in_words()),
                    says,
                ));
            }
            None => foreign::by_side_file(file)?,
        }
    }
    Ok(Some(scheme))
}

/// Whether a file next to `config.json` is of a method whose words are columns.
pub(super) fn is_side_file(file: &std::path::Path) -> bool {
    ["quantize_config.json", "quant_config.json", "quantization_config.json"].iter().any(|name| file.ends_with(name))
}

/// The refusal of a word under `key`.
pub(super) fn refusal(
    block: &Section<'_>,
    method: &str,
    key: &str,
    found: Option<&str>,
    expected: &str,
) -> crate::Error {
    let found = found.map_or("absent".to_owned(), |found| format!("{found:?}"));
    foreign::unsupported(method, block, key, &found, expected)
}

impl ColumnPacked {
    /// Bits, group size and symmetry by the keys of `block`, or as in `base`; `zero_offset` counts where integers are not symmetric.
    pub(super) fn read(
        method: &str,
        block: &Section<'_>,
        base: Option<ColumnPacked>,
        packed: PackedDim,
        zero_offset: u32,
    ) -> Result<ColumnPacked> {
        let widths: &[u64] = if packed == PackedDim::Inputs { &[2, 3, 4, 8] } else { &[4] };
        let names = |key, old| if block.has(key) { key } else { old };
        let (bits_key, size_key) = (names("bits", "w_bit"), names("group_size", "q_group_size"));
        let absent = |key: &str, expected: &str| foreign::unsupported(method, block, key, "absent", expected);
        let bits = match (block.unsigned(bits_key)?, base) {
            (Some(found), _) if !widths.contains(&found) => {
                let expected = if widths.len() > 1 { "2, 3, 4 or 8" } else { "4" };
                return Err(foreign::unsupported(method, block, bits_key, &found.to_string(), expected));
            }
            (Some(bits), _) => bits as u32,
            (None, Some(base)) => base.bits,
            (None, None) => return Err(absent("bits", "the bits of a weight")),
        };
        let expected = "a positive number, or -1 for all inputs";
        let scales = match (block.object().get(size_key).filter(|size| !size.is_null()), base) {
            (Some(size), _) => match (size.as_i64(), block.unsigned(size_key)) {
                (Some(-1), _) => WeightScales::Channel,
                (Some(1..), Ok(Some(size))) => WeightScales::Group(size),
                _ => return Err(foreign::unsupported(method, block, size_key, &size.to_string(), expected)),
            },
            (None, Some(base)) => base.scales,
            (None, None) => return Err(absent("group_size", expected)),
        };
        let zero_offset = match (packed, block.boolean("sym")?, base) {
            // AWQ always has zero points.
            (PackedDim::Outputs, ..) | (_, Some(false), _) => Some(zero_offset),
            (_, Some(true), _) => None,
            (_, None, Some(base)) => base.zero_offset,
            (_, None, None) => return Err(absent("sym", "whether zero points are the middle of the integers")),
        };
        Ok(ColumnPacked { bits, packed, scales, zero_offset })
    }
}

/// The pattern of what contains `name`, which is a pattern itself if it has more than letters and dots.
pub(super) fn contained(name: &str) -> Option<String> {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    (!is_plain).then(|| format!(".*(?:{name})")).filter(|_| escape(name) != name)
}
