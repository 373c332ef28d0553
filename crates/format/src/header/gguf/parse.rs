//! One GGUF file -> its metadata and located tensors (ggml `docs/gguf.md`; checks as in llama.cpp's `gguf.cpp`).

use super::metadata::{Array, Bits, GgufMetadata, NumberType, Value};
use super::{GgufFile, Strings};
use crate::bytes::Reader;
use crate::error::{Error, FormatErrorKind, IncompleteKind, Result};
use crate::header::{Fields, TensorInfo, TensorTable, stored_bytes};
use crate::limits;
use crate::source::content::{self, PREFIX_BYTES};
use model_factory_dtypes::{DType, removed_ggml_type};
use std::io::{Read, Seek};
use std::path::Path;

const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;

/// Bytes of the shortest key-value pair: a key of one byte, a type, a u8.
const LEAST_PAIR: u64 = 8 + 1 + 4 + 1;
/// Bytes of the shortest tensor info: a name of one byte, no dimensions, type and offset.
const LEAST_TENSOR: u64 = 8 + 1 + 4 + 4 + 8;

impl GgufFile {
    /// Parses the header of `source`, the content of `file` with `len` bytes. Tensors get the file index `index`.
    ///
    /// # Errors
    /// `Format`, `Quantization` for a tensor type that no current ggml has, `Incomplete` when the file is cut off.
    pub fn parse<R: Read + Seek>(file: &Path, index: usize, len: u64, source: R) -> Result<GgufFile> {
        let mut reader = Reader::new(file, len, limits::GGUF_HEADER_BYTES, source)?;
        let reader = &mut reader;
        check_magic(reader)?;
        let tensors = count(reader, "the number of tensors", LEAST_TENSOR, limits::TENSORS)?;
        let pairs = count(reader, "the number of keys", LEAST_PAIR, limits::GGUF_KEYS)?;
        let mut metadata = GgufMetadata::new(file);
        for _ in 0..pairs {
            let offset = reader.position();
            let (key, value) = read_pair(reader)?;
            if metadata.has(&key) {
                return Err(reader.refuse(offset, FormatErrorKind::DuplicateKey { key }));
            }
            metadata.insert(key, value);
        }
        let alignment = alignment(&metadata)?;
        let (tensors, last) = read_tensors(reader, index, tensors, alignment)?;
        let mut gguf = GgufFile { metadata, tensors, warnings: Vec::new(), bytes_read: 0 };
        locate(reader, &mut gguf, alignment, last.as_deref())?;
        gguf.bytes_read = reader.bytes_read();
        Ok(gguf)
    }
}

fn check_magic<R: Read>(reader: &mut Reader<R>) -> Result<()> {
    let (file, len) = (reader.file().to_owned(), reader.len());
    let prefix = reader.prefix(PREFIX_BYTES)?;
    if !prefix.starts_with(MAGIC) {
        let cut_off = !prefix.is_empty() && MAGIC.starts_with(prefix);
        return Err(if cut_off { reader.truncated("the magic") } else { content::refuse(&file, prefix, len) });
    }
    reader.take::<4>("the magic")?;
    let version = reader.u32("the version")?;
    let kind = match version {
        2 | 3 => return Ok(()),
        // This is llama.cpp's test: the low half of a version in the other byte order is zero.
        _ if version != 0 && version & 0xffff == 0 => FormatErrorKind::BigEndian { version: version.swap_bytes() },
        _ => {
            let old = "download a newer file of this model, or convert it again with a current llama.cpp";
            let new = "the file is damaged or newer than this reader";
            FormatErrorKind::Version { found: version, remedy: if version < 2 { old } else { new } }
        }
    };
    Err(reader.refuse(4, kind))
}

/// Reads a count of at most `most` items, and checks that the file has `least` bytes for each.
fn count<R: Read>(reader: &mut Reader<R>, what: &'static str, least: u64, most: u64) -> Result<u64> {
    let offset = reader.position();
    let count = reader.u64(what)?;
    if count > most {
        return Err(reader.refuse(offset, FormatErrorKind::TooMany { what, found: count, limit: most }));
    }
    reader.claim(what, offset, count, least)?;
    Ok(count)
}

pub(crate) fn read_pair<R: Read>(reader: &mut Reader<R>) -> Result<(String, Value)> {
    let key = name(reader, "a key", limits::GGUF_KEY_BYTES)?;
    let value = read_value(reader, &key)?;
    Ok((key, value))
}

/// Reads the length of a string, checked against the limit and the file.
fn length<R: Read>(reader: &mut Reader<R>, what: &'static str) -> Result<usize> {
    let offset = reader.position();
    let length = reader.u64(what)?;
    reader.claim(what, offset, length, 1)
}

/// Reads a key or tensor name: not empty, UTF-8, at most `most` bytes.
fn name<R: Read>(reader: &mut Reader<R>, what: &'static str, most: u64) -> Result<String> {
    let offset = reader.position();
    let length = reader.u64(what)?;
    if length == 0 {
        return Err(reader.refuse(offset, FormatErrorKind::EmptyName { what }));
    }
    if length > most {
        let what = if what == "a key" { "the length of a key" } else { "the length of a tensor name" };
        return Err(reader.refuse(offset, FormatErrorKind::TooMany { what, found: length, limit: most }));
    }
    let length = reader.claim(what, offset, length, 1)?;
    let mut bytes = Vec::with_capacity(length);
    reader.append(what, length, &mut bytes)?;
    String::from_utf8(bytes).map_err(|error| {
        let found = String::from_utf8_lossy(error.as_bytes()).chars().take(100).collect();
        reader.refuse(offset, FormatErrorKind::NotUtf8 { what, found })
    })
}

fn read_value<R: Read>(reader: &mut Reader<R>, key: &str) -> Result<Value> {
    const WHAT: &str = "a metadata value";
    let offset = reader.position();
    let id = reader.u32("a metadata type")?;
    if let Some(kind) = NumberType::find(id) {
        return Ok(kind.read(&read_numbers(reader, key, WHAT, kind, 1)?));
    }
    match id {
        8 => {
            let length = length(reader, "the length of a string")?;
            let mut bytes = Vec::new();
            reader.append(WHAT, length, &mut bytes)?;
            Ok(Value::Text(bytes))
        }
        9 => read_array(reader, key).map(Value::Array),
        found => Err(reader.refuse(offset, FormatErrorKind::ValueType { key: key.into(), found })),
    }
}

fn read_array<R: Read>(reader: &mut Reader<R>, key: &str) -> Result<Array> {
    const STRING_LENGTH: usize = 8;
    let offset = reader.position();
    let id = reader.u32("the element type of an array")?;
    let kind = NumberType::find(id);
    let least = match (kind, id) {
        (Some(kind), _) => kind.3,
        (None, 8) => STRING_LENGTH,
        (None, 9) => return Err(reader.refuse(offset, FormatErrorKind::NestedArray { key: key.into() })),
        (None, found) => return Err(reader.refuse(offset, FormatErrorKind::ValueType { key: key.into(), found })),
    };
    let at = reader.position();
    let length = reader.u64("the length of an array")?;
    let length = reader.claim("the length of an array", at, length, least as u64)?;
    if let Some(kind) = kind {
        return Ok(Array::Numbers(kind, read_numbers(reader, key, "an array", kind, length)?));
    }
    let mut strings = Strings::default();
    for _ in 0..length {
        let length = self::length(reader, "the length of a string")?;
        strings.push_with(|bytes| reader.append("a string of an array", length, bytes))?;
    }
    Ok(Array::Texts(strings))
}

/// Reads the bytes of `count` numbers of `key`; those of bools must be 0 or 1.
fn read_numbers<R: Read>(
    reader: &mut Reader<R>,
    key: &str,
    what: &'static str,
    kind: &NumberType,
    count: usize,
) -> Result<Vec<u8>> {
    let start = reader.position();
    let mut bytes = Vec::new();
    reader.append(what, count * kind.3, &mut bytes)?;
    if kind.2 == Bits::Bool
        && let Some(at) = bytes.iter().position(|byte| *byte > 1)
    {
        let (found, expected) = (format!("a bool of byte {}", bytes[at]), "0 or 1".into());
        let kind = FormatErrorKind::KeyValue { key: key.into(), found, expected };
        return Err(reader.refuse(start + at as u64, kind));
    }
    Ok(bytes)
}

fn alignment(metadata: &GgufMetadata) -> Result<u64> {
    const KEY: &str = "general.alignment";
    match metadata.value(KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::Unsigned("u32", alignment)) if alignment.is_power_of_two() => Ok(*alignment),
        Some(found @ Value::Unsigned("u32", _)) => Err(metadata.key_value(KEY, found, "a power of two")),
        Some(found) => Err(metadata.key_type(KEY, found, "a u32")),
    }
}

/// Reads the tensor infos, whose offsets are relative to the data section, and the name of the last stored tensor.
fn read_tensors<R: Read>(
    reader: &mut Reader<R>,
    index: usize,
    count: u64,
    alignment: u64,
) -> Result<(TensorTable, Option<String>)> {
    let mut table = TensorTable::new();
    let (mut last, mut end) = (None, 0_u64);
    for _ in 0..count {
        let start = reader.position();
        let name = name(reader, "a tensor name", limits::GGUF_TENSOR_NAME_BYTES)?;
        if table.contains_key(&name) {
            return Err(reader.refuse(start, FormatErrorKind::DuplicateTensor { name }));
        }
        let shape = read_shape(reader, &name)?;
        let type_offset = reader.position();
        let dtype = read_dtype(reader, &name)?;
        let bytes = size(&name, dtype, &shape).map_err(|kind| reader.refuse(type_offset, kind))?;
        let offset = reader.u64("a tensor offset")?;
        // llama.cpp accepts only this order, and only this order reveals two swapped offsets.
        if offset != end {
            let kind = FormatErrorKind::TensorOffset { name, found: offset, expected: end };
            return Err(reader.refuse(reader.position() - 8, kind));
        }
        end = offset.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(alignment)).ok_or_else(|| {
            let kind = FormatErrorKind::TensorSize { name: name.clone(), dtype, shape: shape.clone() };
            reader.refuse(type_offset, kind)
        })?;
        last = Some(name.clone());
        table.insert(name.clone(), TensorInfo { name, dtype, shape, file: index, offset, bytes });
    }
    Ok((table, last))
}

/// Reads dimensions, outermost first and without outer dimensions of 1: [64, 32, 1] in the file is [64, 32], here [32, 64].
fn read_shape<R: Read>(reader: &mut Reader<R>, name: &str) -> Result<Vec<u64>> {
    let offset = reader.position();
    let count = reader.u32("the number of dimensions")?;
    if count > limits::GGUF_DIMENSIONS {
        let (found, limit) = (count as usize, limits::GGUF_DIMENSIONS as usize);
        return Err(reader.refuse(offset, FormatErrorKind::Dimensions { name: name.into(), found, limit }));
    }
    let mut shape = Vec::with_capacity(count as usize);
    for _ in 0..count {
        shape.push(reader.u64("a dimension")?);
    }
    while shape.len() > 1 && shape.last() == Some(&1) {
        shape.pop();
    }
    // GGUF stores dimensions innermost first; ours are outermost first.
    shape.reverse();
    Ok(shape)
}

fn read_dtype<R: Read>(reader: &mut Reader<R>, name: &str) -> Result<DType> {
    let id = reader.u32("a tensor type")?;
    DType::from_ggml_id(id).ok_or_else(|| {
        let (scheme, why) = match removed_ggml_type(id) {
            Some(removed) => {
                let plain = if removed.starts_with("IQ4") { "IQ4_NL" } else { "Q4_0" };
                let why =
                    format!("ggml removed this layout, used by tensor {name}; use the {plain} file of this model");
                (format!("{removed} (ggml type {id})"), why)
            }
            None => {
                let why = format!("tensor {name} has a type that ggml does not define; the file is damaged or too new");
                (format!("ggml type {id}"), why)
            }
        };
        Error::Quantization { file: reader.file().into(), scheme, why }
    })
}

/// Bytes of a tensor, whose rows must be whole blocks.
fn size(name: &str, dtype: DType, shape: &[u64]) -> Result<u64, FormatErrorKind> {
    let row = shape.last().copied().unwrap_or(1);
    if row % dtype.block_len() as u64 != 0 {
        return Err(FormatErrorKind::RowLength { name: name.into(), row, dtype });
    }
    let bytes = stored_bytes(dtype, shape);
    bytes.ok_or_else(|| FormatErrorKind::TensorSize { name: name.into(), dtype, shape: shape.into() })
}

/// Converts offsets in the data section to offsets in the file, and checks where the last tensor ends.
fn locate<R: Read + Seek>(
    reader: &mut Reader<R>,
    gguf: &mut GgufFile,
    alignment: u64,
    last: Option<&str>,
) -> Result<()> {
    let header_end = reader.position();
    let (file, have) = (reader.file().to_owned(), reader.len());
    let too_far = || {
        let kind = FormatErrorKind::TooMany { what: "the size of the data section", found: u64::MAX, limit: have };
        Error::Format { file: file.clone(), offset: Some(header_end), kind }
    };
    // A file without tensors needs no data section, and so no padding.
    let Some(last) = last else { return trailing(reader, gguf, header_end, header_end) };
    let data = header_end.checked_next_multiple_of(alignment).ok_or_else(too_far)?;
    let mut first_past: Option<(u64, String)> = None;
    let mut need = 0;
    for tensor in gguf.tensors.values_mut() {
        tensor.offset = tensor.offset.checked_add(data).ok_or_else(too_far)?;
        let end = tensor.offset.checked_add(tensor.bytes).ok_or_else(too_far)?;
        need = need.max(end);
        if end > have && first_past.as_ref().is_none_or(|(offset, _)| tensor.offset < *offset) {
            first_past = Some((tensor.offset, tensor.name.clone()));
        }
    }
    if let Some((_, name)) = first_past {
        return Err(Error::incomplete(&file, IncompleteKind::DataTruncated { name, have, need }));
    }
    let end = gguf.tensors.get(last).map_or(need, |tensor| tensor.offset + tensor.bytes);
    trailing(reader, gguf, end, end.checked_next_multiple_of(alignment).ok_or_else(too_far)?)
}

/// Notes bytes after the last tensor, which ends at `end` or with its padding at `padded`, and ignores them like
/// llama.cpp, unless they are another GGUF.
fn trailing<R: Read + Seek>(reader: &mut Reader<R>, gguf: &mut GgufFile, end: u64, padded: u64) -> Result<()> {
    for offset in [padded, end] {
        if reader.magic_at(offset, MAGIC)? {
            return Err(reader.refuse(offset, FormatErrorKind::Concatenated));
        }
    }
    let bytes = reader.len().saturating_sub(padded);
    // Without tensors the data section is empty, and padding before it is not data.
    if bytes > 0 && !gguf.tensors.is_empty() {
        let file = reader.file().display();
        gguf.warnings.push(format!("{file}: {bytes} bytes after the last tensor are ignored"));
    }
    Ok(())
}
