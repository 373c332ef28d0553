//! MLX's own formats, as mlx_lm writes them: config block -> [`Scheme`], and words -> the matrices that they are.
//!
//! Keys and defaults: mlx 0.32 `nn/layers/quantized.py`, mlx_lm 0.32 `utils.py`. Modules that no key names are quantised where their
//! scales are stored. What does not run is refused with the key that asks for it.

use super::expect_stored;
use super::foreign;
use super::methods::MLX as METHOD;
use super::names::Names;
use super::packed::fields;
use super::scheme::{Group, Kind, Scheme, Words};
use crate::error::{Error, Result};
use crate::header::config::{ConfigFiles, JsonObject, Section, wrong_type};
use crate::header::{Fields, Header, TensorInfo, TensorTable};
use model_factory_dtypes::DType;
use serde_json::Value;

/// The section of the config, and the copy of it that mlx_lm writes.
const SECTION: &str = "quantization";
const COPY: &str = "quantization_config";

/// Keys that are of no module.
const KNOWN: [&str; 3] = ["group_size", "bits", "mode"];

/// Models whose tensors in mlx_lm's files have the names, but for those of experts, and the values that the tables know.
const MODELS: &[&str] = &[
    "llama",
    "mistral",
    "mistral3",
    "ministral3",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "phi3",
    "olmo2",
    "smollm3",
    "granite",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "olmoe",
    "gpt_oss",
];

/// The scheme of a model's files; `None` when they have no section of MLX.
///
/// # Errors
/// `Quantization` for every scheme that does not run, `Incomplete` where no tensor is of words, `Format` for keys of the wrong type.
pub(super) fn read(header: &Header, files: &ConfigFiles) -> Result<Option<Scheme>> {
    let config = &files.config;
    let Some(block) = config.section(SECTION)? else { return Ok(None) };
    if block.text("quant_method")?.is_some_and(|method| !method.eq_ignore_ascii_case(METHOD)) {
        return Ok(None);
    }
    expect_stored(header, DType::U32, METHOD, &block)?;
    if let Some(copy) = config.section(COPY)?
        && copy.object() != block.object()
    {
        return Err(Error::contradiction(
            config.file(),
            format!("{SECTION} says one thing"),
            format!("{COPY} another"),
        ));
    }
    let model = config.text("model_type")?.unwrap_or_default();
    if !MODELS.contains(&model) {
        let found = format!("that of a model_type {model:?}");
        let expected =
            "that of a model whose tensors MLX stores as others do: of others it changes names, axes or values";
        return Err(foreign::unsupported(METHOD, &config.whole(), SECTION, &found, expected));
    }
    let mut scheme = Scheme::new(METHOD, &block, Names::of([]));
    let default = words(&block)?;
    let targets = Names::of(["Linear", "Embedding"]);
    scheme.groups.push(Group { place: block.path(), targets, kind: Kind::Words(default) });
    let mut left = Vec::new();
    for (name, value) in block.object().iter().filter(|(name, _)| !KNOWN.contains(&name.as_str())) {
        match value {
            Value::Object(_) => {
                let Some(module) = block.section(name)? else { continue };
                let kind = Kind::Words(words(&module)?);
                scheme.notes.unknown(&module, "group_size bits mode global_scale");
                scheme.groups.push(Group { place: module.path(), targets: Names::of([name.as_str()]), kind });
            }
            Value::Bool(true) => {}
            Value::Bool(false) => left.push(name.as_str()),
            _ if name == "quant_method" => {}
            _ if name.contains('.') => {
                return Err(wrong_type(block.file(), &block.dotted(name), value, "an object, true or false"));
            }
            _ => scheme.notes.unknown.push(block.dotted(name)),
        }
    }
    scheme.ignore = Names::of(left);
    Ok(Some(scheme))
}

/// What a section says of its modules: fields with scales and biases unless it names another mode.
fn words(section: &Section<'_>) -> Result<Words> {
    let refusal = |key: &str, found: &str, expected: &str| foreign::unsupported(METHOD, section, key, found, expected);
    let number = |key: &str, expected: &str, is: &dyn Fn(u64) -> bool| {
        let found = section.object().get(key).filter(|value| !value.is_null());
        let number = found.and_then(Value::as_u64).filter(|number| is(*number));
        number.ok_or_else(|| refusal(key, &found.map_or("absent".to_owned(), Value::to_string), expected))
    };
    if section.boolean("global_scale")? == Some(true) {
        return Err(refusal("global_scale", "true", "false: experts have no scale of their own"));
    }
    let mode = section.text("mode")?.unwrap_or("affine");
    let (words, bits, size) = match mode {
        "affine" => {
            let bits = number("bits", "2, 3, 4, 5, 6 or 8", &|bits| matches!(bits, 2..=6 | 8))?;
            let size = number("group_size", "32, 64 or 128", &|size| matches!(size, 32 | 64 | 128))?;
            return Ok(Words::Affine { bits, size });
        }
        "mxfp4" => (Words::Mxfp4, 4, 32),
        "nvfp4" => (Words::Nvfp4, 4, 16),
        "mxfp8" => (Words::Mxfp8, 8, 32),
        _ => return Err(refusal("mode", &format!("{mode:?}"), "affine, mxfp4, nvfp4 or mxfp8")),
    };
    for (key, value) in [("bits", bits), ("group_size", size)] {
        number(key, &format!("{value} with mode {mode}"), &|found| found == value)?;
    }
    Ok(words)
}

impl Words {
    /// The dtype of what they hold, and its bits.
    fn dtype(self) -> (DType, u64) {
        match self {
            Words::Affine { bits, .. } => (fields(bits), bits),
            Words::Mxfp4 | Words::Nvfp4 => (DType::F4, 4),
            Words::Mxfp8 => (DType::F8_E4M3, 8),
        }
    }
}

impl Scheme {
    /// The tensors of `header`, where those of words are matrices `[outputs, inputs]` of what they hold, or as many as there are
    /// experts.
    ///
    /// # Errors
    /// `Incomplete` for one whose shape is another than the config's, or that the config does not know.
    pub(super) fn with_words(&self, header: &Header) -> Result<TensorTable> {
        let mut tensors = header.tensors.clone();
        for tensor in tensors.values_mut().filter(|tensor| tensor.dtype == DType::U32) {
            let TensorInfo { name, shape, .. } = &*tensor;
            let contradiction =
                |one: String| Err(Error::contradiction(&self.file, one, format!("tensor {name} of U32 is stored")));
            let Some(module) = name.strip_suffix(".weight") else {
                return contradiction(format!("{} describes words of weights", self.place));
            };
            let ((dtype, bits), place) = match self.group(module, "Linear") {
                Ok(Group { kind: Kind::Words(words), place, .. }) => (words.dtype(), place),
                Ok(group) => return contradiction(format!("{} describes no words", group.place)),
                Err(says) => return contradiction(says),
            };
            let words = shape.last().copied().unwrap_or(0);
            let inputs = words.checked_mul(32).filter(|all| all.is_multiple_of(bits)).map(|all| all / bits);
            let (Some(inputs), 2 | 3) = (inputs, shape.len()) else {
                return contradiction(format!(
                    "{place} has fields of {bits} bits, of which rows of {shape:?} hold no whole number"
                ));
            };
            let mut shape = shape.clone();
            shape.pop();
            shape.push(inputs);
            *tensor = TensorInfo { dtype, shape, ..tensor.clone() };
        }
        Ok(tensors)
    }
}
