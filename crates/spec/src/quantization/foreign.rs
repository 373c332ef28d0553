//! The refusal of weights that another tool quantised, by what `config.json`, a file next to it or the tensors say.

pub(super) use super::methods::{COMPRESSED_TENSORS, MXFP4};
use super::methods::{Method, OTHER_PARTS, SECTIONS, TELLING, details, methods};
use crate::error::{Error, Result};
use crate::header::config::{JsonFile, JsonObject, QUANTIZATION_FILES, Section};
use crate::header::{Fields, Header, TensorInfo};
use model_factory_dtypes::DType;
use serde_json::{Map, Value};
use std::path::Path;

/// Deepest nesting in which keys of a method are looked for.
const DEPTH: usize = 4;

/// The refusal of a scheme of a known method, for what is `found` in `section` under `key`.
pub(super) fn unsupported(method: &str, section: &Section<'_>, key: &str, found: &str, expected: &str) -> Error {
    let place = format!("{} is {found}, expected {expected}", section.dotted(key));
    refusal(section.file(), &of_name(method), &place, section.root())
}

pub(super) fn by_config(config: &JsonFile) -> Result<()> {
    const IPEX: &str = "bigdl_transformers_low_bit";
    for &key in SECTIONS {
        let Some(section) = config.section(key)? else { continue };
        let (method, told_by) = match (section.text("quant_method")?, key) {
            (Some(method), _) => (named(method), Some("quant_method")),
            (None, "quantization") => (named("mlx"), None),
            (None, _) => match telling(section.object()) {
                Some((told_by, method)) => (of_name(method), Some(told_by)),
                // MLX writes its own section a second time under this name.
                None if config.has("quantization") => continue,
                None => (unknown(format!("a {key} without quant_method")), None),
            },
        };
        let place = told_by.map_or(key.to_owned(), |told_by| format!("{key}.{told_by}"));
        return Err(refusal(config.file(), &method, &place, section.object()));
    }
    if let Some(text) = config.section("text_config")?
        && let Some(section) = text.section("quantization_config")?
    {
        let method = section.text("quant_method")?.map_or_else(|| of_name(""), named);
        return Err(refusal(config.file(), &method, &section.path(), section.object()));
    }
    let Some(kind) = config.text(IPEX)? else { return Ok(()) };
    let details = Map::from_iter([("quant_type".to_owned(), kind.into())]);
    Err(refusal(config.file(), &named("ipex-llm"), IPEX, &details))
}

pub(super) fn by_side_file(file: &JsonFile) -> Result<()> {
    let name = file.file().file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let Some(&(_, key, method)) = QUANTIZATION_FILES.iter().find(|known| known.0 == name) else { return Ok(()) };
    let section = key.map_or(Ok(None), |key| file.section(key))?.unwrap_or_else(|| file.whole());
    let object = section.object();
    let (method, key) = match (section.text("quant_method")?, telling(object)) {
        (Some(text), _) => (named(text), "quant_method".to_owned()),
        (None, Some((told_by, method))) => {
            (of_name(method), key.map_or(told_by.into(), |key| format!("{key}.{told_by}")))
        }
        (None, None) => (of_name(method), "the file itself".to_owned()),
    };
    Err(refusal(file.file(), &method, &key, object))
}

/// Refuses tensors that only a method's own layout has, where nothing says which it is. The layout of a method of a `known`
/// name is described elsewhere.
pub(super) fn by_tensors(header: &Header, known: impl Fn(&str) -> bool) -> Result<()> {
    for method in methods().filter(|method| !known(method.name)) {
        for marks in method.tensors.split(',') {
            let marked = |mark| header.tensors.values().find(|tensor| has_mark(tensor, mark));
            let found: Option<Vec<&TensorInfo>> = marks.split_whitespace().map(marked).collect();
            let Some(tensor) = found.as_ref().and_then(|found| found.first()) else { continue };
            let place = format!("tensor {} of {}", tensor.name, tensor.dtype);
            return Err(refusal(&header.source.files[tensor.file].path, &of_name(method.name), &place, &Map::new()));
        }
    }
    Ok(())
}

fn has_mark(tensor: &TensorInfo, mark: &str) -> bool {
    use DType::{F6_E2M3, F6_E3M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2, F8_E5M2FNUZ};
    let (name, dtypes) = mark.split_once(':').unwrap_or((mark, ""));
    let is_named = match name.strip_prefix('*') {
        Some(part) => tensor.name.contains(part.trim_end_matches('*')),
        None => tensor.name.ends_with(name),
    };
    let is_typed = |dtype| match dtype {
        "F8" => matches!(tensor.dtype, F8_E4M3 | F8_E5M2 | F8_E4M3FNUZ | F8_E5M2FNUZ | F6_E2M3 | F6_E3M2),
        name => tensor.dtype.name() == name,
    };
    is_named && (dtypes.is_empty() || dtypes.split('/').any(is_typed))
}

/// The name of a method, known or not, and the GGUF file type of about the same size.
type Named = (String, &'static str);

/// The first method that `is` it, by its row of the table.
fn known(is: impl Fn(&Method) -> bool) -> Option<Named> {
    methods().find(is).map(|method| (method.name.into(), method.file_type))
}

fn unknown(name: impl Into<String>) -> Named {
    (name.into(), "Q8_0")
}

/// The method that `quant_method` names.
fn named(quant_method: &str) -> Named {
    let lower = quant_method.to_ascii_lowercase();
    known(|method| method.quant_methods.split_whitespace().any(|known| known == lower))
        .unwrap_or_else(|| unknown(format!("quantization method {quant_method:?}")))
}

/// The method of this row of the table.
fn of_name(name: &str) -> Named {
    known(|method| method.name == name).unwrap_or_else(|| unknown("a quantization of unknown method"))
}

fn telling(object: &Map<String, Value>) -> Option<(&'static str, &'static str)> {
    TELLING.iter().copied().find(|(key, _)| object.get(*key).is_some_and(|value| !value.is_null()))
}

fn refusal(file: &Path, (name, nearest): &Named, place: &str, object: &Map<String, Value>) -> Error {
    let mut found = Vec::new();
    collect(object, DEPTH, &mut found);
    let mut words = vec![name.clone()];
    for (key, pattern) in details() {
        let value = found.iter().find(|(name, _)| *name == key).map(|(_, value)| pattern.replace("{}", value));
        words.extend(value.filter(|value| !words.contains(value)));
    }
    let scheme = words.join(", ");
    let nearest = bits(&found).unwrap_or(nearest);
    Error::Quantization {
        file: file.into(),
        scheme: format!("{scheme} ({place})"),
        why: format!(
            "nothing here computes it as stored, and dequantising its weights would be a cast; the unquantised \
             checkpoint, or a GGUF {nearest} of the same model, runs"
        ),
    }
}

/// The values of known keys, those nearest to the root first.
fn collect(object: &Map<String, Value>, depth: usize, found: &mut Vec<(&'static str, String)>) {
    for (key, _) in details() {
        if let Some(value) = object.get(key).and_then(plain)
            && !found.iter().any(|(name, _)| *name == key)
        {
            found.push((key, value));
        }
    }
    if depth == 0 {
        return;
    }
    for (key, value) in object {
        if let Value::Object(nested) = value
            && OTHER_PARTS.split(' ').all(|other| other != key)
        {
            collect(nested, depth - 1, found);
        }
    }
}

/// A value that fits into a sentence.
fn plain(value: &Value) -> Option<String> {
    let text = match value {
        Value::Bool(true) => "true".into(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.chars().filter(|c| !c.is_control()).collect(),
        Value::Array(values) if values.iter().all(Value::is_number) => value.to_string(),
        _ => return None,
    };
    (!text.is_empty()).then(|| text.chars().take(60).collect())
}

/// The GGUF file type of about as many bits as the method has, where its keys say.
fn bits(found: &[(&'static str, String)]) -> Option<&'static str> {
    let value = |keys: &[&str]| found.iter().find(|(name, _)| keys.contains(name)).map(|(_, value)| value.as_str());
    let bits = match (value(&["load_in_8bit"]), value(&["load_in_4bit"])) {
        (Some(_), _) => 8.0,
        (_, Some(_)) => 4.0,
        _ => value(&["bits", "w_bit", "nbits", "num_bits"])?.parse().ok()?,
    };
    match bits {
        _ if bits > 7.0 => Some("Q8_0"),
        _ if bits > 5.0 => Some("Q6_K"),
        _ => Some("Q4_K_M"),
    }
}
