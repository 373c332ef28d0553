//! Bytes as the files of a folder: each section, begun by a separator and a number, is the content of one file.

use super::random::Random;
use super::{Bytes, json};
use model_factory_diagnostics::error::{Error, IncompleteKind};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

/// What begins a section; the number of its file in [`NAMES`] follows.
const SEPARATOR: &[u8] = b"\0FILE";

pub const NAMES: [&str; 20] = [
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.gguf",
    "part-00001-of-00002.gguf",
    "part-00002-of-00002.gguf",
    "adapter_config.json",
    "nameless",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "tiktoken.model",
];

/// Where a GGUF file of the seeds has its keys and tensors; weights follow.
const GGUF_HEADER: usize = 16384;

fn name(number: u8) -> &'static str {
    NAMES[usize::from(number) % NAMES.len()]
}

/// The files' numbers and contents.
fn split(bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut sections = Vec::new();
    let mut rest = bytes;
    while let Some(start) = find(rest) {
        let section = &rest[start + SEPARATOR.len()..];
        let end = find(section).unwrap_or(section.len());
        if let Some((number, content)) = section[..end].split_first() {
            sections.push((*number, content));
        }
        rest = &section[end..];
    }
    sections
}

fn find(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(zero) = bytes[from..].iter().position(|byte| *byte == 0) {
        if bytes[from + zero..].starts_with(SEPARATOR) {
            return Some(from + zero);
        }
        from += zero + 1;
    }
    None
}

/// Writes the files into `folder`.
pub fn write(bytes: &[u8], folder: &Path) -> io::Result<()> {
    split(bytes).into_iter().try_for_each(|(number, content)| fs::write(folder.join(name(number)), content))
}

/// A header alone stands for the file that it begins: where `error` says that one is cut short, it grows, sparse, to the
/// length it asks for, up to `longest`. Whether it did.
pub fn grow(error: Option<&Error>, longest: u64) -> bool {
    match error {
        Some(Error::Incomplete { file, kind: IncompleteKind::DataTruncated { need, .. } }) if *need <= longest => {
            OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(*need)).is_ok()
        }
        _ => false,
    }
}

/// Changes one file: JSON by its nodes, a GGUF file mostly in its header, and anything else by its bytes.
pub fn mutate(input: &[u8], longest: usize, random: &mut Random, bytes: &mut Bytes) -> Option<Vec<u8>> {
    let mut sections: Vec<(u8, Vec<u8>)> =
        split(input).into_iter().map(|(number, content)| (number, content.to_vec())).collect();
    if sections.is_empty() || random.once_in(16) {
        return None;
    }
    let chosen = random.below(sections.len());
    let (number, content) = &mut sections[chosen];
    let name = name(*number);
    let nodes = if name.ends_with(".json") {
        json::mutate(content, random)
    } else if name.ends_with(".safetensors") {
        safetensors(content, random)
    } else {
        None
    };
    match nodes {
        Some(changed) if !random.once_in(8) => *content = changed,
        _ => {
            let end = if name.ends_with(".gguf") && !random.once_in(8) { GGUF_HEADER } else { usize::MAX };
            let (head, tail) = content.split_at(content.len().min(end));
            let mut changed = head.to_vec();
            bytes(&mut changed, head.len() + 64);
            *content = [&changed, tail].concat();
        }
    }
    let sections: Vec<u8> =
        sections.iter().flat_map(|(number, content)| [SEPARATOR, &[*number], content].concat()).collect();
    (sections.len() <= longest).then_some(sections)
}

/// Another header, of the same length where it fits, so that the weights stay at their places.
fn safetensors(content: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let (length, rest) = content.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (header, data) = rest.split_at_checked(length)?;
    let mut header = json::mutate(header, random)?;
    header.resize(header.len().max(length), b' ');
    Some([&(header.len() as u64).to_le_bytes(), header.as_slice(), data].concat())
}
