//! ModelSource -> Weights: the model's files, mapped read-only or read into memory, and views of the tensors in them.
//! This module has the only memory map.
#![allow(unsafe_code)]

use crate::error::Error;
use memmap2::{Mmap, MmapMut, MmapOptions};
use model_factory_dtypes::DType;
use model_factory_dtypes::memory::OutOfMemory;
use model_factory_format::header::TensorInfo;
use model_factory_format::source::{self, ModelSource, SourceFile};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PIECE: usize = 64 << 20;

/// The files of one model, mapped or read into memory.
///
/// A file must not shrink or change while it is mapped: the pages are the file's own, so another process that
/// truncates it makes reading them fail with a bus error, and one that rewrites it changes the model. Replace a model
/// by renaming a new file over it, as download tools do: the map keeps the old one.
#[derive(Clone, Debug)]
pub struct Weights {
    files: Vec<Arc<Mmap>>,
    paths: Vec<PathBuf>,
}

/// One tensor's bytes, exactly as the file stores them.
#[derive(Clone)]
pub struct WeightView {
    map: Arc<Mmap>,
    range: Range<usize>,
    dtype: DType,
    row_bytes: usize,
}

impl Weights {
    /// Maps every file of `source`. Reads no byte of them.
    ///
    /// # Errors
    /// `Io` when a file cannot be opened or mapped; `Files` when it is not a regular file or no longer has the length
    /// that the header's reader saw.
    pub fn map(source: &ModelSource) -> Result<Weights, Error> {
        Weights::each(source, |file| {
            let handle = open(file)?;
            // SAFETY: the map is read-only and private to this process's view; the type's documentation states what
            // other processes must not do to the file meanwhile.
            unsafe { MmapOptions::new().map(&handle) }.map_err(|source| io(file, source))
        })
    }

    /// Reads every file of `source` into memory of this process, once; the files may then change or be removed. `read`
    /// is called with the bytes read so far and the bytes in all; its error ends the reading.
    ///
    /// # Errors
    /// Errors of [`map`](Self::map) and of `read`; `Files` when a file ends before its length; `OutOfMemory`.
    pub fn read(source: &ModelSource, read: &dyn Fn(u64, u64) -> Result<(), Error>) -> Result<Weights, Error> {
        let (mut done, total) = (0, source.files.iter().map(|file| file.bytes).sum());
        read(done, total)?;
        Weights::each(source, |file| {
            let mut handle = open(file)?;
            let bytes = usize::try_from(file.bytes).unwrap_or(usize::MAX);
            let refused = |_| OutOfMemory { what: "weights that are read into memory", bytes };
            // Memory pages of its own: on a page boundary like a mapped file, and read-only as soon as they are filled.
            let mut pages = MmapMut::map_anon(bytes).map_err(refused)?;
            for piece in pages.chunks_mut(PIECE) {
                handle.read_exact(piece).map_err(|error| match error.kind() {
                    ErrorKind::UnexpectedEof => other_length(
                        file,
                        "it ended before that while it was read; load it again when nothing writes to it".into(),
                    ),
                    _ => io(file, error),
                })?;
                done += piece.len() as u64;
                read(done, total)?;
            }
            pages.make_read_only().map_err(|source| io(file, source))
        })
    }

    fn each(source: &ModelSource, mut load: impl FnMut(&SourceFile) -> Result<Mmap, Error>) -> Result<Weights, Error> {
        let files = source.files.iter().map(|file| load(file).map(Arc::new)).collect::<Result<_, Error>>()?;
        Ok(Weights { files, paths: source.files.iter().map(|file| file.path.clone()).collect() })
    }

    /// The bytes of `tensor`, which comes from the header of the same source.
    /// Panics when it lies outside the map, which the header's reader has ruled out.
    pub fn view(&self, tensor: &TensorInfo) -> WeightView {
        let map = self.files[tensor.file].clone();
        let start = tensor.offset as usize;
        let range = start..start + tensor.bytes as usize;
        assert!(range.end <= map.len(), "tensor {} ends at {} of {}", tensor.name, range.end, map.len());
        let row = tensor.shape.last().copied().unwrap_or(1);
        let row_bytes = tensor.dtype.bytes_of(row).unwrap_or(tensor.bytes) as usize;
        WeightView { map, range, dtype: tensor.dtype, row_bytes }
    }

    /// The path of file number `file`.
    pub fn path(&self, file: usize) -> &Path {
        &self.paths[file]
    }

    /// The bytes of each file.
    pub fn files(&self) -> impl Iterator<Item = &[u8]> {
        self.files.iter().map(|map| &map[..])
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|map| map.len() as u64).sum()
    }
}

/// Opens a file that must be as long as it was when its header was read.
fn open(file: &SourceFile) -> Result<File, Error> {
    let (handle, bytes) = source::open(&file.path)?;
    if bytes == file.bytes {
        Ok(handle)
    } else {
        Err(other_length(file, format!("it is {bytes} bytes long now; load it again when nothing writes to it")))
    }
}

fn io(file: &SourceFile, source: std::io::Error) -> Error {
    Error::io(&file.path, source)
}

fn other_length(file: &SourceFile, now: String) -> Error {
    let one = format!("the file was {} bytes long when its header was read", file.bytes);
    Error::from(model_factory_format::Error::contradiction(&file.path, one, now))
}

impl WeightView {
    /// The whole tensor.
    pub fn bytes(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }

    /// Consecutive rows, a row being the innermost dimension. Panics past the end.
    pub fn rows(&self, rows: Range<usize>) -> &[u8] {
        &self.bytes()[rows.start * self.row_bytes..rows.end * self.row_bytes]
    }

    /// The stored element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}

impl std::fmt::Debug for WeightView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WeightView({}, bytes {}..{})", self.dtype, self.range.start, self.range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_factory_format::header::Header;
    use model_factory_format::source;
    use std::fs::{self, OpenOptions};
    use std::path::PathBuf;

    const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/tinyllama/q8_0.gguf");

    /// A folder with a copy of a fixture in it, the copy, and its header.
    fn copy() -> (tempfile::TempDir, PathBuf, Header) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        fs::copy(FIXTURE, &path).unwrap();
        let header = source::probe(&path).and_then(Header::read).unwrap();
        (folder, path, header)
    }

    #[test]
    fn refuses_a_file_whose_length_changed_since_its_header_was_read() {
        for change in [-1, 1, -100_000] {
            let (_folder, path, header) = copy();
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(header.source.files[0].bytes.strict_add_signed(change)).unwrap();
            let error = Weights::map(&header.source).unwrap_err();
            assert_eq!(error.code(), 15, "{change}: {error}");
            assert!(error.to_string().contains("m.gguf"), "{error}");
        }
        let (_folder, path, header) = copy();
        fs::remove_file(path).unwrap();
        assert_eq!(Weights::map(&header.source).unwrap_err().code(), 1);
    }

    /// A pipe that took a file's place since its header was read has no other end.
    #[cfg(unix)]
    #[test]
    fn does_not_wait_for_a_pipe_in_the_place_of_a_file() {
        let (_folder, path, header) = copy();
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (done, result) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(Weights::map(&header.source).map(drop)));
        let error = result.recv_timeout(std::time::Duration::from_secs(30)).expect("it hangs").unwrap_err();
        assert!(matches!(&error, Error::Files(_)) && error.code() == 10, "{error}");
    }

    #[test]
    fn reading_tells_how_far_it_is_and_can_be_given_up() {
        let (_folder, path, header) = copy();
        let told = std::cell::RefCell::new(Vec::new());
        let read = |stop: u64| {
            told.borrow_mut().clear();
            Weights::read(&header.source, &|done, total| {
                told.borrow_mut().push((done, total));
                if done >= stop { Err(Error::Cancelled) } else { Ok(()) }
            })
        };
        let weights = read(u64::MAX).unwrap();
        let bytes = header.source.files[0].bytes;
        assert_eq!(*told.borrow(), [(0, bytes), (bytes, bytes)]);
        let mapped = Weights::map(&header.source).unwrap();
        for tensor in header.tensors.values() {
            assert!(weights.view(tensor).bytes() == mapped.view(tensor).bytes(), "{}", tensor.name);
        }
        for stop in [0, bytes] {
            assert!(matches!(read(stop), Err(Error::Cancelled)));
        }
        for change in [-1, 1] {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(bytes.strict_add_signed(change)).unwrap();
            assert_eq!(read(u64::MAX).unwrap_err().code(), 15);
        }
    }

    #[test]
    fn keeps_the_old_weights_when_a_file_is_renamed_over() {
        let (folder, path, header) = copy();
        let weights = Weights::map(&header.source).unwrap();
        let name = "token_embd.weight";
        let view = weights.view(&header.tensors[name]);
        let before = view.bytes().to_vec();
        let other = folder.path().join("download");
        fs::write(&other, vec![0; 4096]).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(view.bytes(), before);
        assert!(before.iter().any(|byte| *byte != 0));
        assert_eq!(Weights::map(&header.source).unwrap_err().code(), 15);
    }
}
