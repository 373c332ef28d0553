//! The meaning of file names: part numbers, and unfinished downloads.

use std::path::{Path, PathBuf};

/// A name of the form `stem-00001-of-00003.ext`; numbers may have any width, as in published models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SplitName {
    /// The common beginning of the names of all parts.
    pub(crate) stem: String,
    /// The number of the part, from 1.
    pub(crate) number: u64,
    pub(crate) total: u64,
    width: usize,
    tail: String,
}

impl SplitName {
    /// Parses `name`; `None` when it is not a part among several, or not of extension `ext`.
    pub(crate) fn parse(name: &str, ext: &str) -> Option<SplitName> {
        let (body, found) = name.rsplit_once('.')?;
        if !found.eq_ignore_ascii_case(ext) {
            return None;
        }
        let (front, total) = body.rsplit_once("-of-")?;
        let (stem, number) = front.rsplit_once('-')?;
        let tail = format!("-of-{total}.{found}");
        let width = number.len();
        let (number, total) = (digits(number)?, digits(total)?);
        let sound = total > 1 && total <= crate::limits::PARTS && (1..=total).contains(&number);
        sound.then(|| SplitName { stem: stem.into(), number, total, width, tail })
    }

    pub(crate) fn same_model(&self, other: &SplitName) -> bool {
        self.stem == other.stem && self.total == other.total
    }

    pub(crate) fn name_of(&self, number: u64) -> String {
        format!("{}-{number:0width$}{}", self.stem, self.tail, width = self.width)
    }
}

pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => ".".into(),
    }
}

/// Whether `path` is one of several parts of a model, by its name.
pub(crate) fn is_part(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["gguf", "safetensors"].iter().any(|ext| SplitName::parse(&name, ext).is_some())
}

fn digits(text: &str) -> Option<u64> {
    let all = !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    if all { text.parse().ok() } else { None }
}

/// Whether `name` is the name of an unfinished download.
pub(crate) fn is_unfinished(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    [".incomplete", ".part", ".partial", ".crdownload", ".download", ".aria2", ".!ut", ".tmp"]
        .iter()
        .any(|end| lower.ends_with(end))
}

/// Whether `name` has extension `ext` in any case.
pub(crate) fn has_extension(name: &str, ext: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, found)| found.eq_ignore_ascii_case(ext))
}

/// Weights in unsupported formats: (extensions, beginning of the name, what they are).
const OTHERS: &[(&str, &str, &str)] = &[
    ("bin pt pth", "", "pickled PyTorch files"),
    ("ckpt", "", "pickled checkpoints"),
    ("safetensors", "consolidated", "in the layout of Mistral's own tools"),
    ("onnx", "", "ONNX graphs"),
    ("h5", "", "TensorFlow files"),
    ("msgpack", "", "Flax files"),
    ("npz", "", "NumPy archives"),
    ("tflite", "", "TensorFlow Lite files"),
];

/// The kind of weights that `name` belongs to, if they are in an unsupported format.
pub(crate) fn other_weights(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let found = OTHERS.iter().find(|(extensions, start, _)| {
        lower.starts_with(start) && extensions.split(' ').any(|ext| has_extension(&lower, ext))
    });
    found.map(|(_, _, what)| *what).filter(|_| lower != "training_args.bin" && lower != "optimizer.pt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_part_names_of_any_width_apart() {
        let part = SplitName::parse("model-00001-of-000002.safetensors", "safetensors").unwrap();
        assert_eq!((part.stem.as_str(), part.number, part.total), ("model", 1, 2));
        assert_eq!(part.name_of(2), "model-00002-of-000002.safetensors");
        let cases =
            ["a-0-of-3.gguf", "a-4-of-3.gguf", "a-1-of-1.gguf", "a-1-of-.gguf", "a-+1-of-3.gguf", "1-of-3.gguf"];
        for name in cases.into_iter().chain(["a-00001-of-00003.bin", "-of-", "a-1-of-99999999999999999999.gguf"]) {
            assert_eq!(SplitName::parse(name, "gguf"), None, "{name}");
        }
    }
}
