//! bitsandbytes, NF4, FP4 and LLM.int8, as transformers stores it: config block -> [`Scheme`], and bytes -> the matrices that they are.
//!
//! Keys and defaults: transformers 5 `BitsAndBytesConfig` (`utils/quantization_config.py`). Tensors: bitsandbytes 0.50 `QuantState`
//! (`functional.py`), `Linear8bitLt` (`nn/modules.py`). What does not run is refused with the key that asks for it.

use super::fp8::excluded;
use super::scheme::{FourBit, Kind, Scheme};
use super::{foreign, of_block};
use crate::error::{Error, IncompleteKind, Result};
use crate::header::config::{ConfigFiles, Section};
use crate::header::{Fields, Header, TensorTable};
use model_factory_dtypes::DType;

const METHOD: &str = "bitsandbytes";

/// What is between the name of a matrix and the kind of its codes, in the name of the tensor that describes them.
const STATE: &str = ".quant_state.bitsandbytes__";

/// The dtypes as which codes are stored, by the names that configs have for them.
const STORAGE: [(&str, DType); 6] = [
    ("uint8", DType::U8),
    ("int8", DType::I8),
    ("bfloat16", DType::BF16),
    ("float16", DType::F16),
    ("float32", DType::F32),
    ("float64", DType::F64),
];

/// The scheme of a model's files; `None` when they announce none of bitsandbytes.
///
/// # Errors
/// `Quantization` for every scheme that does not run, `Format` for keys of the wrong type.
pub(super) fn read(header: &Header, files: &ConfigFiles) -> Result<Option<Scheme>> {
    let scheme = of_block(files, |block| match block.text("quant_method")? {
        Some(method) if !method.eq_ignore_ascii_case(METHOD) => Ok(None),
        None if !block.has("load_in_4bit") && !block.has("load_in_8bit") => Ok(None),
        _ => scheme(header, block).map(Some),
    })?;
    Ok(scheme.flatten())
}

fn scheme(header: &Header, block: &Section<'_>) -> Result<Scheme> {
    const KNOWN: &str = "quant_method load_in_4bit load_in_8bit _load_in_4bit _load_in_8bit bnb_4bit_compute_dtype \
                         bnb_4bit_quant_storage bnb_4bit_quant_type bnb_4bit_use_double_quant llm_int8_enable_fp32_cpu_offload \
                         llm_int8_has_fp16_weight llm_int8_skip_modules llm_int8_threshold";
    const NESTED: &str = "bnb_4bit_use_double_quant";
    const STORED_AS: &str = "bnb_4bit_quant_storage";
    let refusal = |key: &str, found: &str, expected: &str| foreign::unsupported(METHOD, block, key, found, expected);
    let [four, eight] = ["load_in_4bit", "load_in_8bit"].map(|key| block.boolean(key).map(|given| given == Some(true)));
    let key = match (four?, eight?) {
        (true, false) => "load_in_4bit",
        (false, true) => "load_in_8bit",
        (true, true) => return Err(refusal("load_in_8bit", "true, as load_in_4bit is", "one of them")),
        (false, false) => return Err(refusal("load_in_4bit", "no more true than load_in_8bit", "one of them true")),
    };
    let four = key == "load_in_4bit";
    let is_quantized = |name: &String| if four { name.contains(STATE) } else { name.ends_with(".SCB") };
    if !header.tensors.keys().any(is_quantized) {
        let found = "true and no tensor is stored so: transformers would quantize this model when it loads it";
        return Err(refusal(key, found, "false, or quantized tensors"));
    }
    block.boolean("llm_int8_enable_fp32_cpu_offload")?;
    block.text("bnb_4bit_compute_dtype")?;
    let threshold = block.number("llm_int8_threshold")?;
    if block.boolean("llm_int8_has_fp16_weight")? == Some(true) {
        return Err(refusal("llm_int8_has_fp16_weight", "true", "false: the tensors are integers"));
    }
    let mut scheme = Scheme::new(METHOD, block, excluded(METHOD, block, "llm_int8_skip_modules")?);
    scheme.notes.unknown(block, KNOWN);
    if !four {
        if threshold.is_none() {
            scheme.notes.absent(block, "llm_int8_threshold", "6.0");
        }
        let place = block.dotted("llm_int8_threshold");
        scheme.notes.floats.push(format!("{place} (int8 by token below {})", threshold.unwrap_or(6.0)));
        return Ok(scheme.with_group(Kind::Int8Rows));
    }
    let dtype = match block.text("bnb_4bit_quant_type")? {
        Some("nf4") => DType::NF4,
        Some("fp4") => DType::FP4,
        None => {
            scheme.notes.absent(block, "bnb_4bit_quant_type", "fp4");
            DType::FP4
        }
        Some(other) => return Err(refusal("bnb_4bit_quant_type", &format!("{other:?}"), "nf4 or fp4")),
    };
    let nested = block.boolean(NESTED)?;
    if nested.is_none() {
        scheme.notes.absent(block, NESTED, "false");
    }
    let storage = block.text(STORED_AS)?.unwrap_or_else(|| {
        scheme.notes.absent(block, STORED_AS, "uint8");
        "uint8"
    });
    let Some((_, storage)) = STORAGE.into_iter().find(|(name, _)| *name == storage) else {
        let names = STORAGE.map(|(name, _)| name).join(", ");
        return Err(refusal(STORED_AS, &format!("{storage:?}"), &format!("one of {names}")));
    };
    Ok(scheme.with_group(Kind::FourBit(FourBit { dtype, nested: nested == Some(true), storage })))
}

impl Scheme {
    /// The tensors of `header`, where those of codes are rows `[codes]` of their dtype, as the header does not tell outputs from
    /// inputs, and integers of theirs.
    ///
    /// # Errors
    /// `Incomplete` for one whose dtype is another than the config's, that the config does not know, or that lacks its description.
    pub(super) fn with_codes(&self, header: &Header) -> Result<TensorTable> {
        let mut tensors = header.tensors.clone();
        let contradiction = |one: String, other: String| Err(Error::contradiction(&self.file, one, other));
        for name in header.tensors.keys() {
            let stored = || format!("tensor {name} is stored");
            if let Some((matrix, kind)) = name.split_once(STATE) {
                let module = matrix.trim_end_matches(".weight");
                let four = match self.group(module, "Linear").map(|group| group.kind) {
                    Ok(Kind::FourBit(four)) => four,
                    Ok(_) => return contradiction(format!("{} describes integers", self.place), stored()),
                    Err(says) => return contradiction(says, stored()),
                };
                if !four.dtype.name().eq_ignore_ascii_case(kind) {
                    return contradiction(format!("{}.bnb_4bit_quant_type is {}", self.place, four.dtype), stored());
                }
                let Some(codes) = tensors.get_mut(matrix) else {
                    return contradiction(stored(), format!("tensor {matrix} is missing"));
                };
                if codes.dtype != four.storage {
                    let file = &header.source.files[codes.file].path;
                    let (found, expected) = (codes.dtype, four.storage.name());
                    let kind = IncompleteKind::TensorDType { name: matrix.to_owned(), found, expected };
                    return Err(Error::incomplete(file, kind));
                }
                if codes.shape.get(1..) != Some(&[1]) {
                    let shape = format!("tensor {matrix} has shape {:?}", codes.shape);
                    return contradiction(stored(), format!("{shape}, not that of one column"));
                }
                (codes.dtype, codes.shape) = (four.dtype, vec![codes.bytes.saturating_mul(2)]);
            } else if let Some(matrix) = name.strip_suffix(".absmax")
                && ["nf4", "fp4"].iter().all(|kind| !header.tensors.contains_key(&format!("{matrix}{STATE}{kind}")))
            {
                return contradiction(stored(), format!("no tensor {matrix}{STATE}nf4 or fp4 describes it"));
            }
        }
        if self.groups.iter().any(|group| group.kind == Kind::Int8Rows) {
            tensors.values_mut().filter(|tensor| tensor.dtype == DType::I8).for_each(|tensor| tensor.dtype = DType::S8);
        }
        Ok(tensors)
    }
}
