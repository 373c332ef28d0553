//! A file of the Hub -> the cache, complete or not at all; an interrupted download is continued.

use super::cache::RepoCache;
use super::client::Client;
use super::digest::Digest;
use super::mirror::Mirror;
use super::own;
use super::transfer::SLICE;
use crate::error::HubError;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

/// Bytes of a partial file that are hashed at a time.
const STRIDE: usize = 1 << 20;

/// Downloads files of one commit into the cache.
pub(super) struct Download<'d> {
    pub(super) client: &'d Client,
    pub(super) cache: &'d RepoCache,
    pub(super) commit: &'d str,
    pub(super) mirror: &'d Mirror,
    /// Called with the bytes that are done, and the bytes in total.
    pub(super) on_progress: &'d dyn Fn(u64, u64),
}

/// A file before it is downloaded.
struct Wanted<'f> {
    name: &'f str,
    etag: String,
    bytes: u64,
}

/// The part of a file that has been downloaded.
struct PartialFile<'p> {
    path: &'p Path,
    out: File,
    bytes: u64,
    digest: Digest,
}

impl Download<'_> {
    pub(super) fn all(&self, files: &[String]) -> Result<(), HubError> {
        let wanted: Vec<Wanted<'_>> = files.iter().map(|name| self.look(name)).collect::<Result<_, _>>()?;
        let total = wanted.iter().fold(0, |total: u64, file| total.saturating_add(file.bytes));
        let mut before = 0;
        for file in &wanted {
            let blob = self.cache.blob(&file.etag);
            let tell = |done| (self.on_progress)(before + done, total);
            if !is_whole(&blob, file.bytes) {
                match self.mirror.etag(file.name) {
                    Some(_) => self.cache.copy(&self.mirror.path().join(file.name), &blob)?,
                    None => self.fetch(file, &blob, &tell)?,
                }
            }
            self.cache.link(self.commit, file.name, &file.etag)?;
            tell(file.bytes);
            before += file.bytes;
        }
        Ok(())
    }

    /// Requests length and ETag of a file.
    fn look<'f>(&self, name: &'f str) -> Result<Wanted<'f>, HubError> {
        if let Some(etag) = self.mirror.etag(name) {
            let path = self.mirror.path().join(name);
            let bytes = fs::metadata(&path).map_err(HubError::io(path))?.len();
            return Ok(Wanted { name, etag, bytes });
        }
        let answer = self.client.retried(|_| {
            // One byte, which is read so that the connection can be used again.
            let mut answer = self.client.open(self.commit, name, 0, Some(1))?;
            if answer.total > 0 {
                answer.read(1)?;
            }
            Ok(answer)
        })?;
        let etag = answer.etag.ok_or_else(|| HubError::Answer { url: name.into(), what: "it has no ETag".into() })?;
        Ok(Wanted { name, etag, bytes: answer.total })
    }

    /// Downloads one content into the cache. Waits for another process that downloads it.
    fn fetch(&self, file: &Wanted<'_>, blob: &Path, tell: &dyn Fn(u64)) -> Result<(), HubError> {
        let folder = blob.parent().unwrap_or(blob);
        fs::create_dir_all(folder).map_err(HubError::io(folder))?;
        let (lock, path) = (blob.with_extension("lock"), blob.with_extension("part"));
        let lock_file = own::lock(&lock)?;
        loop {
            match lock_file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => self.client.cancel.check()?,
                Err(TryLockError::Error(error)) => return Err(HubError::io(&lock)(error)),
            }
            std::thread::sleep(SLICE);
        }
        if is_whole(blob, file.bytes) {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match self.complete(file, &path, tell)? {
                Some(found) => {
                    // A continued file may have been damaged; if a fresh download differs again, the server is at fault.
                    fs::remove_file(&path).map_err(HubError::io(&path))?;
                    if tries == 2 {
                        let expected = file.etag.clone();
                        return Err(HubError::Digest { file: file.name.into(), found, expected });
                    }
                }
                None => return fs::rename(&path, blob).map_err(HubError::io(blob)),
            }
        }
    }

    /// Continues the file at `path` until it is complete, and returns its digest where that does not match its ETag.
    fn complete(&self, file: &Wanted<'_>, path: &Path, tell: &dyn Fn(u64)) -> Result<Option<String>, HubError> {
        let mut part = self.open_part(file, path, tell)?;
        if part.bytes < file.bytes {
            let appended = self.client.retried(|came| {
                let before = part.bytes;
                let result = self.append(file, &mut part, tell);
                *came = part.bytes.saturating_sub(before);
                result
            });
            appended.map_err(|error| match error {
                HubError::Connection { reason, .. } => {
                    HubError::Interrupted { file: file.name.into(), done: part.bytes, total: file.bytes, reason }
                }
                error => error,
            })?;
        }
        part.out.sync_all().map_err(HubError::io(path))?;
        Ok(part.digest.mismatch())
    }

    /// Opens what was downloaded of `file` before, and hashes it.
    fn open_part<'p>(
        &self,
        file: &Wanted<'_>,
        path: &'p Path,
        tell: &dyn Fn(u64),
    ) -> Result<PartialFile<'p>, HubError> {
        let (out, found) = own::part(path)?;
        let mut part = PartialFile { path, out, bytes: 0, digest: Digest::named(&file.etag, file.bytes) };
        if found > file.bytes {
            // A partial file that is too long belongs to something else.
            part.clear(file)?;
        }
        let mut bytes = vec![0; STRIDE];
        // Reading the file moves to its end.
        loop {
            self.client.cancel.check()?;
            let count = part.out.read(&mut bytes).map_err(HubError::io(path))?;
            if count == 0 {
                return Ok(part);
            }
            part.digest.update(&bytes[..count]);
            part.bytes += count as u64;
            tell(part.bytes);
        }
    }

    /// Appends the bytes of one connection.
    fn append(&self, file: &Wanted<'_>, part: &mut PartialFile<'_>, tell: &dyn Fn(u64)) -> Result<(), HubError> {
        let mut answer = self.client.open(self.commit, file.name, part.bytes, None)?;
        if answer.total != file.bytes {
            let (found, expected) = (answer.total, file.bytes);
            return Err(HubError::Length { file: file.name.into(), found, expected });
        }
        if answer.etag.as_ref() != Some(&file.etag) {
            let what = format!("{} has changed since it was asked for", file.name);
            return Err(HubError::Answer { url: file.name.into(), what });
        }
        match answer.start {
            start if start == part.bytes => {}
            // The server sends the whole file, whatever range was requested.
            0 => part.clear(file)?,
            start => {
                let what = format!("it begins at byte {start}, asked for was {}", part.bytes);
                return Err(HubError::Answer { url: file.name.into(), what });
            }
        }
        while part.bytes < file.bytes {
            tell(part.bytes);
            let bytes = answer.read(file.bytes - part.bytes)?;
            part.out.write_all(&bytes).map_err(HubError::io(part.path))?;
            part.digest.update(&bytes);
            part.bytes += bytes.len() as u64;
        }
        Ok(())
    }
}

impl PartialFile<'_> {
    fn clear(&mut self, file: &Wanted<'_>) -> Result<(), HubError> {
        self.out.set_len(0).and_then(|()| self.out.rewind()).map_err(HubError::io(self.path))?;
        (self.bytes, self.digest) = (0, Digest::named(&file.etag, file.bytes));
        Ok(())
    }
}

fn is_whole(blob: &Path, bytes: u64) -> bool {
    fs::metadata(blob).is_ok_and(|metadata| metadata.is_file() && metadata.len() == bytes)
}
