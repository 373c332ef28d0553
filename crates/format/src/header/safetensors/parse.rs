//! One safetensors file -> its located tensors (like safetensors 0.8 `tensor.rs`, but repeated names are refused).

use crate::bytes::Reader;
use crate::error::{Error, FormatErrorKind, IncompleteKind, Result};
use crate::header::{TensorInfo, TensorTable, stored_bytes};
use crate::json;
use crate::limits;
use crate::source::content::{self, Content, PREFIX_BYTES};
use model_factory_dtypes::DType;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::Read;
use std::path::Path;

/// The key for strings about the file, which is not a tensor.
const METADATA: &str = "__metadata__";

/// Bytes of the header's length, which comes before the header.
const LENGTH_BYTES: u64 = 8;

/// The content of one safetensors header.
#[derive(Debug)]
pub struct SafetensorsFile {
    /// The tensors of the file.
    pub tensors: TensorTable,
    /// Bytes read for this.
    pub bytes_read: u64,
}

impl SafetensorsFile {
    /// Parses the header of `source`, the content of `file` with `len` bytes. Tensors get the file index `index`.
    ///
    /// # Errors
    /// `Format`, `Quantization` for a dtype outside the format, `Incomplete` when the file is cut off.
    pub fn parse<R: Read>(file: &Path, index: usize, len: u64, source: R) -> Result<SafetensorsFile> {
        let limit = LENGTH_BYTES + limits::SAFETENSORS_HEADER_BYTES;
        let mut reader = Reader::new(file, len, limit, source)?;
        check_content(&mut reader)?;
        let length = reader.u64("the length of the header")?;
        let length = reader.claim("the length of the header", 0, length, 1)?;
        let mut text = Vec::new();
        reader.append("the header", length, &mut text)?;
        let entries: Entries = json::typed(file, LENGTH_BYTES, &text)?;
        let data = reader.position();
        let tensors = locate(&reader, index, data, entries.0)?;
        Ok(SafetensorsFile { tensors, bytes_read: reader.bytes_read() })
    }
}

/// Refuses a file that is not safetensors before its first bytes are used as a length.
fn check_content<R: Read>(reader: &mut Reader<R>) -> Result<()> {
    let (file, len) = (reader.file().to_owned(), reader.len());
    let prefix = reader.prefix(PREFIX_BYTES)?;
    let length = prefix.first_chunk::<8>().map(|length| u64::from_le_bytes(*length));
    match (content::sniff(prefix, len), length) {
        (Content::Safetensors, _) => Ok(()),
        (Content::UnsupportedFile(..), _) => Err(content::refuse(&file, prefix, len)),
        (_, None) if len > 0 => Err(reader.truncated("the length of the header")),
        // The file has only a plausible length: it was cut off after it.
        (_, Some(2..=limits::SAFETENSORS_HEADER_BYTES)) if len == LENGTH_BYTES => Err(reader.truncated("the header")),
        // A header in the right place with an invalid length has an error of its own.
        (_, Some(found)) if prefix.get(8) == Some(&b'{') => {
            let (what, limit) = ("the length of the header", limits::SAFETENSORS_HEADER_BYTES);
            Err(reader.refuse(0, FormatErrorKind::TooMany { what, found, limit }))
        }
        _ => Err(content::refuse(&file, prefix, len)),
    }
}

/// The tensors of a header in file order, repeated names included.
struct Entries(Vec<(String, TensorEntry)>);

#[derive(Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// Dimensions: their number, and as many of them as can be valid.
struct Shape {
    found: usize,
    dimensions: Vec<u64>,
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShapeVisitor;
        impl<'de> Visitor<'de> for ShapeVisitor {
            type Value = Shape;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of dimensions")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let (mut found, mut dimensions) = (0, Vec::new());
                while let Some(dimension) = list.next_element()? {
                    found += 1;
                    if found <= limits::SAFETENSORS_DIMENSIONS {
                        dimensions.push(dimension);
                    }
                }
                Ok(Shape { found, dimensions })
            }
        }
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

/// An object of strings, which are all dropped.
struct Texts;

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;
        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = Texts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
                while let Some(key) = map.next_key::<String>()? {
                    map.next_value::<String>().map_err(|error| A::Error::custom(format!("{key}: {error}")))?;
                }
                Ok(Texts)
            }
        }
        deserializer.deserialize_map(TextsVisitor)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                let mut described = false;
                while let Some(name) = map.next_key::<String>()? {
                    if name.len() > limits::SAFETENSORS_NAME_BYTES {
                        let (found, most) = (name.len(), limits::SAFETENSORS_NAME_BYTES);
                        return Err(A::Error::custom(format!(
                            "a tensor name of {found} bytes, at most {most} are valid"
                        )));
                    }
                    let located = |error| A::Error::custom(format!("{name}: {error}"));
                    if name == METADATA {
                        if std::mem::replace(&mut described, true) {
                            return Err(A::Error::custom("__metadata__ appears twice"));
                        }
                        // MLX writes null for none.
                        map.next_value::<Option<Texts>>().map_err(located)?;
                        continue;
                    }
                    let entry = map.next_value::<TensorEntry>().map_err(located)?;
                    entries.push((name, entry));
                    if entries.len() as u64 > limits::TENSORS {
                        return Err(A::Error::custom(format!("more than {} tensors", limits::TENSORS)));
                    }
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

/// Checks every tensor's size, and that together they fill the data section, which begins at byte `data`.
fn locate<R: Read>(
    reader: &Reader<R>,
    index: usize,
    data: u64,
    entries: Vec<(String, TensorEntry)>,
) -> Result<TensorTable> {
    let file = reader.file();
    let have = reader.len();
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let TensorEntry { dtype, shape, data_offsets: (begin, end) } = entry;
        let refuse = |kind| Error::format(file, kind);
        let Shape { found, dimensions: shape } = shape;
        if found > limits::SAFETENSORS_DIMENSIONS {
            let limit = limits::SAFETENSORS_DIMENSIONS;
            return Err(refuse(FormatErrorKind::Dimensions { name, found, limit }));
        }
        let dtype = DType::from_safetensors(&dtype).ok_or_else(|| Error::Quantization {
            file: file.into(),
            scheme: format!("dtype {dtype:?}"),
            why: format!(
                "tensor {name} has a dtype that safetensors 0.8 does not define; the file is damaged or too new"
            ),
        })?;
        let Some(bytes) = stored_bytes(dtype, &shape) else {
            return Err(refuse(FormatErrorKind::TensorSize { name, dtype, shape }));
        };
        if end.checked_sub(begin) != Some(bytes) {
            return Err(refuse(FormatErrorKind::TensorRange { name, begin, end, expected: bytes }));
        }
        tensors.push((begin, end, TensorInfo { name, dtype, shape, file: index, offset: 0, bytes }));
    }
    tensors.sort_by_key(|(begin, end, _)| (*begin, *end));
    let mut table = TensorTable::new();
    let (mut need, mut first_past) = (0, None);
    for (begin, end, mut tensor) in tensors {
        if begin != need {
            let kind = FormatErrorKind::TensorOffset { name: tensor.name, found: begin, expected: need };
            return Err(Error::format(file, kind));
        }
        need = end;
        let too_far = || {
            let (dtype, shape) = (tensor.dtype, tensor.shape.clone());
            Error::format(file, FormatErrorKind::TensorSize { name: tensor.name.clone(), dtype, shape })
        };
        tensor.offset = data.checked_add(begin).ok_or_else(too_far)?;
        let end = data.checked_add(end).ok_or_else(too_far)?;
        if end > have && first_past.is_none() {
            first_past = Some(tensor.name.clone());
        }
        if let Some(tensor) = table.insert(tensor.name.clone(), tensor) {
            return Err(Error::format(file, FormatErrorKind::DuplicateTensor { name: tensor.name }));
        }
    }
    let need = data.saturating_add(need);
    if let Some(name) = first_past {
        return Err(Error::incomplete(file, IncompleteKind::DataTruncated { name, have, need }));
    }
    if have > need {
        return Err(reader.refuse(need, FormatErrorKind::TrailingBytes { bytes: have - need }));
    }
    Ok(table)
}
