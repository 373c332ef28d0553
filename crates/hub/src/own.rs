//! Files of the cache itself: locks, partial files and references. Others may have put something else in their place,
//! so each is opened without waiting and must be a regular file, else the error names it. Files to be written are never
//! opened through a link.

use crate::error::HubError;
use model_factory_format::{Error, source};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Opens the lock at `path`, or creates it. Nothing is read or written.
pub(super) fn lock(path: &Path) -> Result<File, HubError> {
    Ok(made(path, File::options().write(true))?.0)
}

/// Opens the partial file at `path` to read and write, or creates it; returns its length too.
pub(super) fn part(path: &Path) -> Result<(File, u64), HubError> {
    // Not opened to append: such a file cannot be truncated on Windows.
    let (file, metadata) = made(path, File::options().read(true).write(true))?;
    if names(&metadata) > 1 {
        return Err(HubError::NotAFile { path: path.into(), found: "a file that has another name too" });
    }
    Ok((file, metadata.len()))
}

/// Opens the file at `path`, or creates it; a link is not followed.
fn made(path: &Path, options: &mut OpenOptions) -> Result<(File, Metadata), HubError> {
    let open = |options: &OpenOptions| {
        let file = options.open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_file() { Ok((file, metadata)) } else { Err(ErrorKind::InvalidInput.into()) }
    };
    open(unlinked(options.create(true).truncate(false))).map_err(|error| told(path, error))
}

/// The first `bytes` of the text in the reference at `path`, which may be a link; `None` when there is none.
pub(super) fn reference(path: &Path, bytes: u64) -> Result<Option<String>, HubError> {
    let file = match file(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(told(path, error)),
    };
    let mut text = Vec::new();
    file.take(bytes).read_to_end(&mut text).map_err(HubError::io(path))?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// Opens the file of a model at `path` to read it.
pub(super) fn file(path: &Path) -> io::Result<File> {
    source::open(path).map(|(file, _)| file).map_err(|error| match error {
        Error::Io { source, .. } => source,
        Error::Incomplete { .. } => ErrorKind::NotFound.into(), // a link that leads nowhere
        _ => ErrorKind::InvalidInput.into(),
    })
}

/// Makes `options` neither follow a link nor wait for the other end of a pipe.
#[cfg(unix)]
fn unlinked(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NOFOLLOW | libc::O_NONBLOCK)
}

/// Makes `options` open a link itself, which is then no regular file.
#[cfg(windows)]
fn unlinked(options: &mut OpenOptions) -> &mut OpenOptions {
    const FILE_FLAG_OPEN_REPARSE_POINT: u32 = 0x0020_0000;
    std::os::windows::fs::OpenOptionsExt::custom_flags(options, FILE_FLAG_OPEN_REPARSE_POINT)
}

#[cfg(not(any(unix, windows)))]
fn unlinked(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// How many names (hard links) a file has: a file to be written must have only one.
#[cfg(unix)]
fn names(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(metadata)
}

/// Outside of Unix the standard library does not tell the number of names.
#[cfg(not(unix))]
fn names(_metadata: &Metadata) -> u64 {
    1
}

/// Why `path` could not be opened: the kind of what is there, where that is no regular file.
fn told(path: &Path, error: io::Error) -> HubError {
    let Ok(metadata) = path.symlink_metadata() else { return HubError::io(path)(error) };
    let found = match metadata.file_type() {
        kind if kind.is_file() => return HubError::io(path)(error),
        kind if kind.is_symlink() => "a link",
        kind if kind.is_dir() => "a folder",
        _ => "a pipe or a device",
    };
    HubError::NotAFile { path: path.into(), found }
}
