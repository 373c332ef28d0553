//! Headers by range requests -> a folder of sparse files that an ordinary diagnosis reads.

use super::client::Client;
use super::digest::Digest;
use super::own;
use super::selection::Selection;
use crate::error::HubError;
use model_factory_format::header::gguf::GgufFile;
use model_factory_format::header::repository::{companion, is_gguf};
use model_factory_format::header::safetensors::SafetensorsFile;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use tempfile::TempDir;

/// The most bytes of all headers and companions of a repository. The largest tokenizers have 35 MB, headers of 150,000 tensors 20.
const LIMIT: u64 = 512 << 20;

/// Files that are requested at once.
const REQUESTS: usize = 8;

/// Bytes of the first request for the header of a shard: more than most headers have.
const FIRST: u64 = 32 << 10;

/// Bytes of the first request for the header of a GGUF file, which holds the vocabulary.
const FIRST_GGUF: u64 = 256 << 10;

/// The most bytes of a later request.
const MOST: u64 = 2 << 20;

/// A folder that holds the headers of a repository's files, each in a file of its right length.
pub(super) struct Mirror {
    _folder: TempDir,
    path: PathBuf,
    /// The complete files, and the names of their contents in a cache.
    whole: Mutex<BTreeMap<String, String>>,
    /// The ranges of other files that are present.
    ranges: Mutex<Vec<(String, Range<u64>)>>,
}

impl Mirror {
    /// Fetches what a diagnosis of `selection` among the files `names` reads, and no weights. A file that is listed but
    /// missing on the Hub is missing in the mirror too.
    pub(super) fn fetch(
        client: &Client,
        commit: &str,
        repo: &str,
        names: &[String],
        selection: &Selection,
    ) -> Result<Mirror, HubError> {
        let folder = tempfile::tempdir().map_err(HubError::io(std::env::temp_dir()))?;
        let path = folder.path().join(repo);
        fs::create_dir_all(&path).map_err(HubError::io(&path))?;
        let mirror = Mirror { _folder: folder, path, whole: Mutex::default(), ranges: Mutex::default() };
        let fetch = Fetch { client, commit, repo, mirror: &mirror };
        let companions = selection.companions(names);
        fetch.all(&companions, |file| fetch.companion(file))?;
        let weights = selection.weights(names, &mirror.path);
        fetch.all(&weights.iter().collect::<Vec<_>>(), |file| fetch.header(file))?;
        if *selection == Selection::Nothing {
            // Only the names show what the repository holds instead.
            for name in names.iter().filter(|name| !name.contains('/') && !companions.contains(name)) {
                fetch.create(name)?;
            }
        }
        Ok(mirror)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The name in a cache of the content of the file `name`, where that is complete here.
    pub(super) fn etag(&self, name: &str) -> Option<String> {
        locked(&self.whole).get(name).cloned()
    }

    /// Whether the files in `folder` are those that were read here.
    pub(super) fn is_of(&self, folder: &Path) -> io::Result<bool> {
        let part = |folder: &Path, name: &str, range: &Range<u64>| {
            let (mut file, mut bytes) = (own::file(&folder.join(name))?, Vec::new());
            file.seek(SeekFrom::Start(range.start))?;
            file.take(range.end - range.start).read_to_end(&mut bytes).map(|_| bytes)
        };
        let (ranges, whole) = (locked(&self.ranges), locked(&self.whole));
        let all =
            ranges.iter().map(|(name, range)| (name, range)).chain(whole.keys().map(|name| (name, &(0..u64::MAX))));
        for (name, range) in all {
            if part(&self.path, name, range)? != part(folder, name, range)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|lock| lock.into_inner())
}

struct Fetch<'c> {
    client: &'c Client,
    commit: &'c str,
    repo: &'c str,
    mirror: &'c Mirror,
}

impl Fetch<'_> {
    /// Calls `fetch` for each of `files`, several at once; the first error ends all.
    fn all(&self, files: &[&String], fetch: impl Fn(&str) -> Result<(), HubError> + Sync) -> Result<(), HubError> {
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = match fetch(file) {
                    Err(HubError::FileMissing { .. }) => Ok(()),
                    Ok(()) if self.client.received() > LIMIT => {
                        Err(HubError::TooLarge { id: self.repo.into(), limit: LIMIT })
                    }
                    result => result,
                };
                if let Err(error) = result {
                    next.store(files.len(), Ordering::Relaxed);
                    locked(&failed).get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..REQUESTS.min(files.len()) {
                // If no thread can be started, this one does all the work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        failed.into_inner().unwrap_or_else(|lock| lock.into_inner()).map_or(Ok(()), Err)
    }

    /// Creates an empty file called `name` in the mirror.
    fn create(&self, name: &str) -> Result<(File, PathBuf), HubError> {
        let path = self.mirror.path.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(HubError::io(folder))?;
        }
        let options = File::options().read(true).write(true).create_new(true).open(&path);
        Ok((options.map_err(HubError::io(&path))?, path))
    }

    /// Fetches a whole small file, and once more where it does not match its ETag. Of a file that is longer than its
    /// reader accepts, the length is enough.
    fn companion(&self, name: &str) -> Result<(), HubError> {
        let limit = companion(name).unwrap_or(0);
        let mut part = self.client.part(self.commit, name, 0..limit, true)?;
        if Digest::mismatch_of(&part).is_some() {
            part = self.client.part(self.commit, name, 0..limit, true)?;
        }
        if let Some(found) = Digest::mismatch_of(&part) {
            let expected = part.etag.unwrap_or_default();
            return Err(HubError::Digest { file: name.into(), found, expected });
        }
        let (mut file, path) = self.create(name)?;
        file.write_all(&part.bytes).and_then(|()| file.set_len(part.total)).map_err(HubError::io(path))?;
        if let Some(etag) = part.etag.filter(|_| part.bytes.len() as u64 == part.total) {
            locked(&self.mirror.whole).insert(name.into(), etag);
        }
        Ok(())
    }

    /// Fetches the part of a file of weights that its parser reads.
    fn header(&self, name: &str) -> Result<(), HubError> {
        let bytes = if is_gguf(name) { FIRST_GGUF } else { FIRST };
        let first = self.client.part(self.commit, name, 0..bytes, false)?;
        let (file, path) = self.create(name)?;
        file.set_len(first.total).map_err(HubError::io(&path))?;
        let mut remote = RemoteFile {
            fetch: self,
            name,
            mirror: file,
            len: first.total,
            position: 0,
            here: 0..0,
            next: bytes,
            failed: None,
        };
        remote.keep(0, &first.bytes).map_err(HubError::io(&path))?;
        // A parse error here is reported by the diagnosis of the mirror, which reads the same bytes.
        match is_gguf(name) {
            true => drop(GgufFile::parse(&path, 0, first.total, &mut remote)),
            false => drop(SafetensorsFile::parse(&path, 0, first.total, &mut remote)),
        }
        remote.failed.map_or(Ok(()), Err)
    }
}

/// A file of the Hub that is fetched as it is read, and kept in the mirror.
struct RemoteFile<'f> {
    fetch: &'f Fetch<'f>,
    name: &'f str,
    mirror: File,
    len: u64,
    position: u64,
    /// The last range received; it is in the mirror.
    here: Range<u64>,
    /// Bytes of the next request.
    next: u64,
    failed: Option<HubError>,
}

impl RemoteFile<'_> {
    fn keep(&mut self, start: u64, bytes: &[u8]) -> io::Result<()> {
        self.mirror.seek(SeekFrom::Start(start))?;
        self.mirror.write_all(bytes)?;
        self.here = start..start + bytes.len() as u64;
        locked(&self.fetch.mirror.ranges).push((self.name.into(), self.here.clone()));
        Ok(())
    }

    fn fill(&mut self) -> io::Result<()> {
        let Fetch { client, commit, repo, .. } = *self.fetch;
        if client.received() > LIMIT {
            self.failed = Some(HubError::TooLarge { id: repo.into(), limit: LIMIT });
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let end = self.position.saturating_add(self.next).min(self.len);
        match client.part(commit, self.name, self.position..end, false) {
            Ok(part) => {
                self.next = (self.next * 2).min(MOST);
                self.keep(self.position, &part.bytes)
            }
            Err(error) => {
                self.failed = Some(error);
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }
}

impl Read for RemoteFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.len || buffer.is_empty() {
            return Ok(0);
        }
        if !self.here.contains(&self.position) {
            self.fill()?;
        }
        let left = usize::try_from(self.here.end - self.position).unwrap_or(usize::MAX).min(buffer.len());
        self.mirror.seek(SeekFrom::Start(self.position))?;
        let count = self.mirror.read(&mut buffer[..left])?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for RemoteFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(to) => Some(to),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
        };
        self.position = to.ok_or(io::ErrorKind::InvalidInput)?;
        self.next = FIRST;
        Ok(self.position)
    }
}
