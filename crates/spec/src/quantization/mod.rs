//! How a model's weights are quantised, the schemes that run, and the refusal of every scheme that would need a cast.

mod auto_round;
mod awq;
mod bitsandbytes;
mod compressed_tensors;
mod foreign;
mod fp8;
mod gptq;
mod methods;
mod mlx;
mod model_opt;
mod names;
mod packed;
mod scheme;

pub(crate) use fp8::SCALES as FP8_SCALES;
pub(crate) use packed::COLUMNS;
pub(crate) use scheme::{
    Activations, ColumnPacked, FourBit, Fp4, Group, Kind, Notes, Packed, Scheme, WeightScales, Words,
};

use crate::error::{Error, Result};
use crate::header::config::{ConfigFiles, JsonFile, Section, wrong_type};
use crate::header::gguf::GgufMetadata;
use crate::header::{Fields, Header, Metadata, TensorTable};
use model_factory_dtypes::DType;
use serde_json::Value;
use std::collections::BTreeMap;

/// What quantised the weights of a model in safetensors that run; nothing for plain weights.
#[derive(Debug, Default)]
pub(crate) struct Recognised {
    /// A scheme of integers, or of floats of 4 or 8 bits.
    pub(crate) scheme: Option<Scheme>,
    /// Whether experts are blocks of MXFP4.
    pub(crate) mxfp4: bool,
}

/// What `read` makes of the block of `config.json`, or of its part for text, that says how weights are quantized; `None` without one.
fn of_block<T>(files: &ConfigFiles, read: impl FnOnce(&Section<'_>) -> Result<T>) -> Result<Option<T>> {
    const KEY: &str = "quantization_config";
    let text = files.config.section("text_config")?;
    let of_text = text.as_ref().map_or(Ok(None), |text| text.section(KEY))?;
    files.config.section(KEY)?.or(of_text).map(|block| read(&block)).transpose()
}

/// Refuses a config whose `block` says that weights are `method`'s where none is of this dtype.
fn expect_stored(header: &Header, dtype: DType, method: &str, block: &Section<'_>) -> Result<()> {
    if header.tensors.values().any(|tensor| tensor.dtype == dtype) {
        return Ok(());
    }
    Err(Error::contradiction(block.file(), format!("{} says {method}", block.path()), format!("no tensor is {dtype}")))
}

/// Reads the config of a format.
type Format = fn(&Header, &ConfigFiles) -> Result<Option<Scheme>>;

/// The formats, a file of this folder each. Of what several of them know, the first counts.
const FORMATS: [Format; 8] = [
    compressed_tensors::read,
    fp8::read,
    model_opt::read,
    mlx::read,
    gptq::read,
    awq::read,
    auto_round::read,
    bitsandbytes::read,
];

/// What quantised the weights of a model in safetensors, of whose family experts may be `in_mxfp4`.
///
/// # Errors
/// `Quantization` for weights quantised in any other way, with method, file and key or tensor; `Format` where a key of
/// the method is of another type.
pub(crate) fn recognise(header: &Header, files: &ConfigFiles, in_mxfp4: bool) -> Result<Recognised> {
    let scheme = FORMATS.iter().find_map(|read| read(header, files).transpose()).transpose()?;
    let mxfp4 = in_mxfp4 && is_mxfp4(&files.config)?;
    if scheme.is_none() && !mxfp4 {
        foreign::by_config(&files.config)?;
    }
    if let Some(file) = &files.quantization {
        match &scheme {
            Some(scheme)
                if scheme.is_of_floats() && file.file().ends_with(model_opt::FILE) && model_opt::describes(file)? => {}
            Some(scheme) if scheme.is_by_columns() && gptq::is_side_file(file.file()) => {}
            _ => foreign::by_side_file(file)?,
        }
    }
    let describes = |method: &str| scheme.as_ref().is_some_and(|scheme| scheme.describes(method));
    foreign::by_tensors(header, |method| describes(method) || mxfp4 && method == foreign::MXFP4)?;
    Ok(Recognised { scheme, mxfp4 })
}

/// Whether `config.json` says that weights are in MXFP4, but for some modules. Which these are the tensors say as well.
fn is_mxfp4(config: &JsonFile) -> Result<bool> {
    const LEFT_OUT: &str = "modules_to_not_convert";
    let Some(section) = config.section("quantization_config")? else { return Ok(false) };
    let mxfp4 = section.text("quant_method")?.is_some_and(|method| method.eq_ignore_ascii_case(foreign::MXFP4));
    let is_list = |names: &Value| names.as_array().is_some_and(|names| names.iter().all(Value::is_string));
    match section.object().get(LEFT_OUT) {
        Some(other) if mxfp4 && !other.is_null() && !is_list(other) => {
            Err(wrong_type(section.file(), &section.dotted(LEFT_OUT), other, "a list of names, or null"))
        }
        _ => Ok(mxfp4),
    }
}

/// The quantization in words: `GGUF Q4_K_M`, `none`.
///
/// # Errors
/// `Format` when `general.file_type` is no number or an unknown one, `Quantization` for blocks of another version.
pub(crate) fn in_words(header: &Header) -> Result<String> {
    let Metadata::Gguf(metadata) = &header.metadata else { return Ok("none".into()) };
    refuse_other_layouts(&header.tensors, metadata)?;
    const KEY: &str = "general.file_type";
    let Some(id) = metadata.unsigned(KEY)? else { return Ok(format!("GGUF, mostly {}", most_frequent(header))) };
    match file_type(id) {
        // What a writer called the mixture is a claim; where most bytes are another dtype, both are said.
        Some(name) => {
            let most = most_frequent(header).name();
            Ok(if name.starts_with(most) { format!("GGUF {name}") } else { format!("GGUF {name}, mostly {most}") })
        }
        None => {
            let expected = "a llama_ftype that llama.cpp still writes, at most 41";
            Err(Error::key_value(metadata.file(), KEY, id.to_string(), expected))
        }
    }
}

/// Block layouts have a version of their own; every GGUF file is of version 2 (ggml `GGML_QNT_VERSION`).
pub(crate) fn refuse_other_layouts(tensors: &TensorTable, metadata: &GgufMetadata) -> Result<()> {
    let version = metadata.unsigned("general.quantization_version")?.unwrap_or(2);
    let blocks = tensors.values().any(|tensor| tensor.dtype.block_len() > 1);
    if version == 2 || !blocks {
        return Ok(());
    }
    Err(Error::Quantization {
        file: metadata.file().into(),
        scheme: format!("general.quantization_version {version}"),
        why: "its blocks are laid out in another way than version 2; convert the model again with a current llama.cpp"
            .into(),
    })
}

fn most_frequent(header: &Header) -> DType {
    let mut bytes: BTreeMap<DType, u64> = BTreeMap::new();
    for tensor in header.tensors.values() {
        *bytes.entry(tensor.dtype).or_default() += tensor.bytes;
    }
    bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map_or(DType::F32, |(dtype, _)| dtype)
}

/// The name of a `general.file_type` (llama.cpp `llama_ftype`).
#[rustfmt::skip]
fn file_type(id: u64) -> Option<&'static str> {
    Some(match id {
        0 => "F32", 1 => "F16", 2 => "Q4_0", 3 => "Q4_1", 4 => "Q4_1_SOME_F16", 7 => "Q8_0", 8 => "Q5_0", 9 => "Q5_1",
        10 => "Q2_K", 11 => "Q3_K_S", 12 => "Q3_K_M", 13 => "Q3_K_L", 14 => "Q4_K_S", 15 => "Q4_K_M",
        16 => "Q5_K_S", 17 => "Q5_K_M", 18 => "Q6_K", 19 => "IQ2_XXS", 20 => "IQ2_XS", 21 => "Q2_K_S",
        22 => "IQ3_XS", 23 => "IQ3_XXS", 24 => "IQ1_S", 25 => "IQ4_NL", 26 => "IQ3_S", 27 => "IQ3_M",
        28 => "IQ2_S", 29 => "IQ2_M", 30 => "IQ4_XS", 31 => "IQ1_M", 32 => "BF16", 36 => "TQ1_0",
        37 => "TQ2_0", 38 => "MXFP4", 39 => "NVFP4", 40 => "Q1_0", 41 => "Q2_0",
        _ => return None,
    })
}
