//! Bytes -> a file and back: parts that end with a checksum, and a file that replaces another one completely or not at all.

use crate::error::{Error, Result, SessionFileError, SessionFileProblem};
use crc32fast::Hasher;
use model_factory_diagnostics::source;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a checksum.
pub(crate) const CHECKSUM: u64 = 4;
/// Bytes that are summed while they are in the processor's cache: just after reading or just before writing.
const STRIDE: usize = 256 << 10;

/// Writes the parts of a file. The checksum at the end of each part is that of all parts up to there, so that swapped parts
/// are detected too.
pub(crate) struct Writer {
    out: BufWriter<File>,
    sum: Hasher,
    /// The bytes that were written.
    pub(crate) bytes: u64,
}

impl Writer {
    /// Appends bytes to the current part.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        bytes.chunks(STRIDE).try_for_each(|bytes| {
            self.sum.update(bytes);
            self.append(bytes)
        })
    }

    /// Ends the current part with the checksum.
    pub(crate) fn end(&mut self) -> std::io::Result<()> {
        self.append(&self.sum.clone().finalize().to_le_bytes())
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

/// Reads what a [`Writer`] wrote.
pub(crate) struct Reader<'p> {
    path: &'p Path,
    file: BufReader<File>,
    sum: Hasher,
    /// The bytes of the file.
    pub(crate) bytes: u64,
    /// The bytes that were read.
    pub(crate) position: u64,
    /// Where the current part began.
    start: u64,
}

impl<'p> Reader<'p> {
    /// Opens a regular file; anything else is an error, without waiting for it.
    pub(crate) fn open(path: &'p Path) -> Result<Reader<'p>> {
        let (file, bytes) = source::open(path).map_err(|error| match error {
            model_factory_diagnostics::Error::Format { .. } => problem(path, SessionFileProblem::NotAFile),
            model_factory_diagnostics::Error::Io { path, source } => Error::io(path, source),
            error => error.into(),
        })?;
        Ok(Reader::of(path, file, bytes))
    }

    /// Reads `file`, which lies at `path` and has so many bytes.
    pub(crate) fn of(path: &'p Path, file: File, bytes: u64) -> Reader<'p> {
        Reader { path, file: BufReader::new(file), sum: Hasher::new(), bytes, position: 0, start: 0 }
    }

    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        for bytes in bytes.chunks_mut(STRIDE) {
            self.fill(bytes)?;
            self.sum.update(bytes);
        }
        Ok(())
    }

    /// Ends the current part, which is named `part`, and compares its checksum.
    pub(crate) fn end(&mut self, part: &'static str) -> Result<()> {
        let (bytes, mut written) = (self.start..self.position, [0; CHECKSUM as usize]);
        self.fill(&mut written)?;
        self.start = self.position;
        let (found, expected) = (self.sum.clone().finalize(), u32::from_le_bytes(written));
        if found == expected {
            Ok(())
        } else {
            Err(self.problem(SessionFileProblem::Checksum { part, bytes, found, expected }))
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.position += bytes.len() as u64;
        self.file.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.length(self.position),
            _ => Error::io(self.path, error),
        })
    }

    /// The error of a file that should have been (at least) `expected` bytes long.
    pub(crate) fn length(&self, expected: u64) -> Error {
        self.problem(SessionFileProblem::Length { found: self.bytes, expected })
    }

    /// The error of a file whose value of `what` is impossible.
    pub(crate) fn malformed(&self, what: &'static str, found: impl ToString, expected: impl ToString) -> Error {
        let (found, expected) = (found.to_string(), expected.to_string());
        self.problem(SessionFileProblem::Malformed { what, found, expected })
    }

    pub(crate) fn problem(&self, problem: SessionFileProblem) -> Error {
        self::problem(self.path, problem)
    }
}

pub(crate) fn problem(path: &Path, problem: SessionFileProblem) -> Error {
    SessionFileError { file: path.into(), problem }.into()
}

/// Replaces `path` atomically with what `write` writes: the old file stays until all of it is on the disk.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut Writer) -> Result<()>) -> Result<()> {
    replace_as(Kept::Safely, path, write)
}

/// How a file is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// All of it is on the disk before it has its name; it has the process's default permissions.
    Safely,
    /// It may be damaged when the machine fails; only its user may read and write it.
    Privately,
}

impl Kept {
    /// How the names of temporary files begin.
    pub(crate) fn temporary(self) -> &'static str {
        match self {
            Kept::Safely => ".session-",
            Kept::Privately => ".prompt-",
        }
    }
}

/// Replaces `path` atomically with what `write` writes.
pub(crate) fn replace_as(kept: Kept, path: &Path, write: impl FnOnce(&mut Writer) -> Result<()>) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let io = |error| Error::io(path, error);
    let (mut unfinished, file) = Unfinished::create(folder, kept).map_err(io)?;
    let mut writer = Writer { out: BufWriter::new(file), sum: Hasher::new(), bytes: 0 };
    write(&mut writer)?;
    let file = writer.out.into_inner().map_err(|error| io(error.into_error()))?;
    if kept == Kept::Safely {
        file.sync_all().map_err(io)?;
    }
    fs::rename(&unfinished.path, path).map_err(io)?;
    unfinished.in_place = true;
    if kept == Kept::Privately {
        return Ok(());
    }
    // Now the name is on the disk too. Not every file system supports this, and without it either the old or the new file is whole.
    #[cfg(unix)]
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// A temporary file that is removed unless it is renamed to its place.
struct Unfinished {
    path: PathBuf,
    in_place: bool,
}

impl Unfinished {
    /// A new file in `folder` that no other process and no other thread uses.
    fn create(folder: &Path, kept: Kept) -> std::io::Result<(Unfinished, File)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{}{}-{number}.tmp", kept.temporary(), std::process::id()));
            let mut options = File::options();
            options.read(true).write(true).create_new(true);
            #[cfg(unix)]
            if kept == Kept::Privately {
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            }
            match options.open(&path) {
                Ok(file) => return Ok((Unfinished { path, in_place: false }, file)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.in_place {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A folder with an old file in it.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.session");
        fs::write(&path, b"old").unwrap();
        (folder, path)
    }

    #[test]
    fn a_file_is_replaced_by_all_of_another_or_stays() {
        let (folder, path) = folder();
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let begin = |out: &mut Writer| out.write(&[7; 3 * STRIDE]).map_err(|error| Error::io(&path, error));
        let failed = replace(&path, |out| begin(out).and(Err(Error::Cancelled)));
        assert!(matches!(failed, Err(Error::Cancelled)));
        assert_eq!((fs::read(&path).unwrap(), names()), (b"old".to_vec(), 1));
        catch_unwind(AssertUnwindSafe(|| replace(&path, |out| begin(out).map(|()| panic!("a test"))))).unwrap_err();
        assert_eq!((fs::read(&path).unwrap(), names()), (b"old".to_vec(), 1));
        replace(&path, begin).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names()), (vec![7; 3 * STRIDE], 1));
        // A folder, which cannot be replaced, stays too.
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        assert!(matches!(replace(&inner, begin), Err(Error::Io { path, .. }) if path == inner));
        assert_eq!(names(), 2);
        let nowhere = folder.path().join("no/such");
        assert!(matches!(replace(&nowhere, begin), Err(Error::Io { path, .. }) if path == nowhere));
    }

    #[test]
    fn parts_that_changed_places_are_seen() {
        let (_folder, path) = folder();
        let part = |byte| [byte; 1000];
        replace(&path, |out| {
            [1, 2].into_iter().try_for_each(|byte| out.write(&part(byte)).and_then(|()| out.end())).unwrap();
            Ok(())
        })
        .unwrap();
        let read = || -> Result<Vec<u8>> {
            let (mut file, mut bytes) = (Reader::open(&path)?, vec![0; 2000]);
            for bytes in bytes.chunks_mut(1000) {
                file.read(bytes)?;
                file.end("a part")?;
            }
            Ok(bytes)
        };
        assert_eq!(read().unwrap(), [part(1), part(2)].concat());
        let written = fs::read(&path).unwrap();
        fs::write(&path, [&written[1004..], &written[..1004]].concat()).unwrap();
        let Err(Error::SessionFile(error)) = read() else { panic!("it was read") };
        let SessionFileProblem::Checksum { part: "a part", bytes, .. } = error.problem else { panic!("{error}") };
        assert_eq!(bytes, 0..1000);
        fs::write(&path, &written[..2007]).unwrap();
        let Err(Error::SessionFile(error)) = read() else { panic!("it was read") };
        assert_eq!(error.problem, SessionFileProblem::Length { found: 2007, expected: 2008 });
    }
}
