//! The kind of a file, by its first bytes.

use crate::error::{Error, FormatErrorKind, IncompleteKind, Result};
use crate::limits;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Bytes of a file that [`sniff`] needs.
pub(crate) const PREFIX_BYTES: usize = 512;

/// The kind of a file by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The GGUF magic, or the part of it that a cut-off file has.
    Gguf,
    /// A header length and an opening brace.
    Safetensors,
    /// A known file that holds no model: what it is, and what to use instead.
    UnsupportedFile(&'static str, &'static str),
    Unknown,
}

const CONVERT: &str = "download the model's .safetensors files, or convert it to safetensors or GGUF";
const OLD: &str = "download the model as GGUF, or convert it again with a current llama.cpp";
const PAGE: &str =
    "download the file itself: the link may need a login, an accepted licence or /resolve/ in place of /blob/";
const UNPACK: &str = "unpack it and give the model file inside";

/// Markers of files that users pass instead of a model: (offset, bytes, what, what to do). The first match counts.
#[rustfmt::skip]
const OTHER_FILES: &[(usize, &[u8], &str, &str)] = &[
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file it stands for", "run `git lfs pull`, or download the file"),
    (0, b"PK\x03\x04", "a zip archive, as PyTorch saves pickled checkpoints", CONVERT),
    (0, b"PK\x05\x06", "an empty zip archive", CONVERT),
    (0, b"lmgg", "an old GGML file (magic ggml)", OLD),
    (0, b"fmgg", "an old GGML file (magic ggmf)", OLD),
    (0, b"tjgg", "an old GGML file (magic ggjt)", OLD),
    (0, b"algg", "an old GGML adapter (magic ggla)", OLD),
    (0, b"\x89HDF\r\n", "an HDF5 file, as Keras saves weights", CONVERT),
    (0, b"\x93NUMPY", "a NumPy array", CONVERT),
    (4, b"TFL3", "a TensorFlow Lite model", CONVERT),
    (0, b"\x1f\x8b", "a gzip archive", UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard archive", UNPACK),
    (0, b"\xfd7zXZ", "an xz archive", UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", UNPACK),
    (257, b"ustar", "a tar archive", UNPACK),
    (0, b"Entry not found", "the server's message that there is no such file", "check the file's name in the repository"),
    (0, b"Repository not found", "the server's message that there is no such repository", "check the repository's name and your access to it"),
    (0, b"Invalid username or password", "the server's refusal of a login", "log in and download again"),
    (0, b"Access to model", "the server's refusal of access", "accept the model's licence, log in and download again"),
];

/// Returns the kind of a file of `len` bytes that begins with `prefix`.
pub(crate) fn sniff(prefix: &[u8], len: u64) -> Content {
    if !prefix.is_empty() && (prefix.starts_with(b"GGUF") || b"GGUF".starts_with(prefix)) {
        return Content::Gguf;
    }
    // Checked before the other formats: a header length may look like another format's magic.
    if let Some((length, [b'{', ..])) = prefix.split_first_chunk::<8>()
        && u64::from_le_bytes(*length) <= limits::SAFETENSORS_HEADER_BYTES
    {
        return Content::Safetensors;
    }
    for (offset, magic, what, remedy) in OTHER_FILES {
        if prefix.get(*offset..).is_some_and(|rest| rest.starts_with(magic)) {
            return Content::UnsupportedFile(what, remedy);
        }
    }
    if matches!(prefix, [0x80, 2..=5, ..]) {
        return Content::UnsupportedFile("a Python pickle, as PyTorch saves checkpoints", CONVERT);
    }
    let text = prefix.strip_prefix(b"\xef\xbb\xbf").unwrap_or(prefix).trim_ascii_start();
    let lower = text[..text.len().min(16)].to_ascii_lowercase();
    if [b"<!doctype".as_slice(), b"<html", b"<head", b"<?xml", b"<error"].iter().any(|tag| lower.starts_with(tag)) {
        return Content::UnsupportedFile("a web page saved in the file's place", PAGE);
    }
    if text.starts_with(b"{") {
        return Content::UnsupportedFile("a JSON file", "give the model's weights, its config.json or its folder");
    }
    if len >= 64 && prefix.len() >= 64 && prefix.iter().all(|byte| *byte == 0) {
        return Content::UnsupportedFile(
            "a file of zeros, as a download reserves it before the data comes",
            "download it again",
        );
    }
    Content::Unknown
}

/// Returns the kind of the file `path`, its first bytes and its length.
pub(crate) fn identify(path: &Path) -> Result<(Content, Vec<u8>, u64)> {
    let (file, len) = open(path)?;
    let mut prefix = Vec::new();
    let read = file.take(PREFIX_BYTES as u64).read_to_end(&mut prefix);
    read.map_err(|error| Error::io(path, error))?;
    Ok((sniff(&prefix, len), prefix, len))
}

/// The error for bytes that are recognized and hold no model; `None` for anything else.
pub(crate) fn unsupported(file: &Path, prefix: &[u8]) -> Option<Error> {
    let prefix = &prefix[..prefix.len().min(PREFIX_BYTES)];
    match sniff(prefix, prefix.len() as u64) {
        Content::UnsupportedFile(what, remedy) if !prefix.starts_with(b"{") => {
            Some(Error::format(file, FormatErrorKind::UnsupportedFile { what, remedy }))
        }
        _ => None,
    }
}

/// The error for a file that begins with `prefix` and is not an `expected` file.
pub(crate) fn refuse(file: &Path, prefix: &[u8], len: u64) -> Error {
    let kind = match sniff(prefix, len) {
        Content::UnsupportedFile(what, remedy) => FormatErrorKind::UnsupportedFile { what, remedy },
        _ if len == 0 => FormatErrorKind::EmptyFile,
        _ => FormatErrorKind::Unrecognised { found: beginning(&prefix[..prefix.len().min(8)]) },
    };
    Error::Format { file: file.into(), offset: Some(0), kind }
}

/// `bytes` in hexadecimal, and as text where all of them are printable ASCII.
fn beginning(bytes: &[u8]) -> String {
    let found = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) => {
            format!("{found} ({text:?}), which looks like a text file")
        }
        _ => found,
    }
}

/// Checks that `path` is a regular file, and returns its length, without opening it.
pub(crate) fn regular_file(path: &Path) -> Result<u64> {
    let metadata =
        std::fs::metadata(path).map_err(|error| dead_link(path).unwrap_or_else(|| Error::io(path, error)))?;
    length(path, &metadata)
}

/// The length of the regular file `path`; `None` where there is no file.
pub(crate) fn length_if_there(path: &Path) -> Result<Option<u64>> {
    match regular_file(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn length(path: &Path, metadata: &Metadata) -> Result<u64> {
    if metadata.is_file() { Ok(metadata.len()) } else { Err(Error::format(path, FormatErrorKind::NotAFile)) }
}

/// Opens the regular file `path`, and returns its length. Never blocks, whatever is put in its place meanwhile.
///
/// # Errors
/// `Io` when it cannot be opened, `Incomplete` for a broken link, `Format` for a folder, a pipe or a device.
pub fn open(path: &Path) -> Result<(File, u64)> {
    // Checks the path first: opening a device may act on it. Checks the handle too: the path may lead elsewhere by now.
    regular_file(path)?;
    let mut options = File::options();
    // Does not wait for the other end of a pipe; this has no effect on regular files.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.read(true).open(path).map_err(|error| Error::io(path, error))?;
    let metadata = file.metadata().map_err(|error| Error::io(path, error))?;
    let len = length(path, &metadata)?;
    Ok((file, len))
}

/// All bytes of the regular file `path`, at most `limit`.
///
/// # Errors
/// The errors of [`open`], and `Format` for a longer file.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let (file, found) = open(path)?;
    if found > limit {
        let what = "the length of this file in bytes";
        return Err(Error::format(path, FormatErrorKind::TooMany { what, found, limit }));
    }
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(usize::try_from(found).unwrap_or(usize::MAX));
    reserved.map_err(|_| Error::io(path, ErrorKind::OutOfMemory.into()))?;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| Error::io(path, error))?;
    Ok(bytes)
}

/// The error for a link whose target cannot be reached.
pub(crate) fn dead_link(path: &Path) -> Option<Error> {
    let target = std::fs::read_link(path).ok()?;
    let target = target.display().to_string();
    Some(Error::incomplete(path, IncompleteKind::BrokenLink { target }))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    /// A path that is a file at one moment and a pipe at the next, as when others write to the folder.
    #[test]
    fn nothing_is_waited_for_when_a_pipe_takes_the_place_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let [path, file, pipe] = ["model", "file", "pipe"].map(|name| folder.path().join(name));
        std::fs::write(&file, b"GGUF").unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let swap = |from: &Path| {
            let link = folder.path().join("link");
            std::fs::hard_link(from, &link).and_then(|()| std::fs::rename(&link, &path)).unwrap();
        };
        swap(&file);
        let (done, opened) = mpsc::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let (asked, end) = (path.clone(), ended.clone());
        std::thread::spawn(move || {
            for _ in 0..20_000 {
                let result = open(&asked);
                let sound = matches!(result, Ok((_, 4)) | Err(Error::Format { kind: FormatErrorKind::NotAFile, .. }));
                assert!(sound, "{result:?}");
            }
            end.store(true, Ordering::Relaxed);
            done.send(()).unwrap();
        });
        for turn in 0..200_000 {
            if ended.load(Ordering::Relaxed) {
                break;
            }
            swap(if turn % 2 == 0 { &pipe } else { &file });
        }
        opened.recv_timeout(Duration::from_secs(30)).expect("it waits for the other end of the pipe");
    }
}
