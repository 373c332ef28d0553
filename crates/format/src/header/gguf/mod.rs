//! GGUF v2 and v3, single and split -> Header.

mod metadata;
mod parse;
mod strings;

pub use metadata::GgufMetadata;
pub(crate) use metadata::Value;
pub(crate) use parse::read_pair;
pub use strings::Strings;

use super::{Fields, Header, Metadata, Projector, TensorInfo, TensorTable, refuse_adapter};
use crate::error::{ArchitectureErrorKind, Error, FormatErrorKind, Result};
use crate::source::{ModelSource, content};
use std::path::Path;
use std::sync::OnceLock;

/// The `general.architecture` of files that hold vision towers, and the prefix of their keys.
const ARCHITECTURE: &str = "clip";

/// The content of one GGUF header.
#[derive(Debug)]
pub struct GgufFile {
    /// The key-value section of the file.
    pub metadata: GgufMetadata,
    /// The tensors of the file.
    pub tensors: TensorTable,
    /// Oddities of the file that do no harm.
    pub warnings: Vec<String>,
    /// Bytes read for this.
    pub bytes_read: u64,
}

pub(super) fn read(source: ModelSource) -> Result<Header> {
    let mut whole: Option<GgufFile> = None;
    let mut stated = None;
    let mut warnings = source.notes.clone();
    let mut bytes_read = 0;
    let parts = source.projector.unwrap_or(source.files.len());
    for (index, part) in source.files[..parts].iter().enumerate() {
        let (file, len) = content::open(&part.path)?;
        let mut gguf = GgufFile::parse(&part.path, index, len, file)?;
        bytes_read += gguf.bytes_read;
        warnings.append(&mut gguf.warnings);
        stated = check_part(parts, index, &gguf, stated)?;
        let Some(whole) = &mut whole else {
            whole = Some(gguf);
            continue;
        };
        for (name, tensor) in gguf.tensors {
            if let Some(TensorInfo { name, .. }) = whole.tensors.insert(name, tensor) {
                return Err(Error::format(&part.path, FormatErrorKind::DuplicateTensor { name }));
            }
        }
    }
    let Some(whole) = whole else {
        return Err(Error::file_missing(&source.path, "a GGUF file", "the source has no files"));
    };
    if let Some(expected) = stated
        && expected != whole.tensors.len() as u64
    {
        let one = format!("split.tensors.count is {expected}");
        let other = format!("the {} parts hold {} tensors; download them again", parts, whole.tensors.len());
        return Err(Error::contradiction(&source.files[0].path, one, other));
    }
    refuse_adapter(&source, &whole.tensors)?;
    let projector = source.projector.map(|index| projector(&source, index, &whole.tensors)).transpose()?;
    let projector = projector.map(|GgufFile { metadata, tensors, warnings: more, bytes_read: read }| {
        warnings.extend(more);
        bytes_read += read;
        Projector { metadata, tensors }
    });
    Ok(Header {
        source,
        tensors: whole.tensors,
        metadata: Metadata::Gguf(whole.metadata),
        projector,
        bytes_read,
        warnings,
        tokenizer: OnceLock::new(),
    })
}

/// The header of the vision tower's file, which has no tensor of the language model.
fn projector(source: &ModelSource, index: usize, own: &TensorTable) -> Result<GgufFile> {
    const KEY: &str = "general.architecture";
    let path = &source.files[index].path;
    let (file, len) = content::open(path)?;
    let gguf = GgufFile::parse(path, index, len, file)?;
    let found = gguf.metadata.text(KEY)?;
    if found != Some(ARCHITECTURE) {
        let found = found.map_or_else(|| "absent".to_owned(), |found| found.chars().take(80).collect());
        let missing = format!("{KEY} of this file is {found}, expected {ARCHITECTURE}: it is no mmproj");
        return Err(Error::Architecture { file: path.into(), kind: ArchitectureErrorKind::NoTower { missing } });
    }
    check_part(1, 0, &gguf, None)?;
    match gguf.tensors.keys().find(|name| own.contains_key(*name)) {
        Some(name) => Err(Error::format(path, FormatErrorKind::DuplicateTensor { name: name.clone() })),
        None => Ok(gguf),
    }
}

/// Checks that part `index` names itself as that part of the right number of parts, and returns the number of tensors
/// of all parts that it states, which must be `stated` if an earlier part gave it.
fn check_part(parts: usize, index: usize, gguf: &GgufFile, stated: Option<u64>) -> Result<Option<u64>> {
    let file = gguf.metadata.file();
    let contradiction = |one: String, other: String| Err(Error::contradiction(file, one, other));
    let parts = parts as u64;
    // Absent or 0 means a file that was never split, or was merged again.
    let count = gguf.metadata.unsigned("split.count")?.unwrap_or(0);
    if count.max(1) != parts {
        let one = format!("split.count says that the model has {count} parts");
        let expected = "the name of part 1 ends in";
        let other = if parts == 1 {
            format!("the file is not named like a part; {expected} -00001-of-{count:05}.gguf: rename the parts so")
        } else {
            format!("its name says {parts}; download the parts again under their own names")
        };
        return contradiction(one, other);
    }
    if count <= 1 {
        return Ok(stated);
    }
    let number = gguf.metadata.unsigned("split.no")?.ok_or_else(|| missing(file, "split.no"))?;
    if number != index as u64 {
        let one = format!("split.no says that this is part {} of {count}", number.saturating_add(1));
        return contradiction(one, format!("its name says part {}; rename it or download it again", index + 1));
    }
    let tensors = gguf.metadata.unsigned("split.tensors.count")?.ok_or_else(|| missing(file, "split.tensors.count"))?;
    match stated {
        Some(first) if first != tensors => contradiction(
            format!("split.tensors.count is {tensors} here"),
            format!("{first} in part 1; the parts belong to different models: download them again"),
        ),
        _ => Ok(Some(tensors)),
    }
}

fn missing(file: &Path, key: &str) -> Error {
    let needed_for = "without it the parts of a split model cannot be checked; download this part again";
    Error::key_missing(file, key, needed_for)
}
