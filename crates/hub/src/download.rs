//! A file of the Hub -> the cache, whole or not at all; what a broken connection left is continued.

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

/// Bytes of a part that are hashed at a time.
const STRIDE: usize = 1 << 20;

/// Brings files of one commit into the cache.
pub(super) struct Download<'d> {
    pub(super) client: &'d Client,
    pub(super) cache: &'d RepoCache,
    pub(super) commit: &'d str,
    pub(super) mirror: &'d Mirror,
    /// Is told bytes that are done, and bytes in all.
    pub(super) on_progress: &'d dyn Fn(u64, u64),
}

/// A file before it is downloaded.
struct Wanted<'f> {
    name: &'f str,
    etag: String,
    bytes: u64,
}

/// What has come of a file.
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

    /// Length and content of a file.
    fn look<'f>(&self, name: &'f str) -> Result<Wanted<'f>, HubError> {
        if let Some(etag) = self.mirror.etag(name) {
            let path = self.mirror.path().join(name);
            let bytes = fs::metadata(&path).map_err(HubError::io(path))?.len();
            return Ok(Wanted { name, etag, bytes });
        }
        let answer = self.client.retried(|_| {
            // One byte, and it is read: the connection can be used again then.
            let mut answer = self.client.open(self.commit, name, 0, Some(1))?;
            if answer.total > 0 {
                answer.read(1)?;
            }
            Ok(answer)
        })?;
        let etag = answer.etag.ok_or_else(|| HubError::Answer { url: name.into(), what: "it has no ETag".into() })?;
        Ok(Wanted { name, etag, bytes: answer.total })
    }

    /// Brings one content into the cache. Another process that does so is waited for.
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
                    // What was continued may have been damaged; what comes whole and differs again is the server's fault.
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

    /// Continues the file at `path` until it is as long as it must be, and gives its digest where its tag is another.
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

    /// What has come of `file` before, hashed.
    fn open_part<'p>(
        &self,
        file: &Wanted<'_>,
        path: &'p Path,
        tell: &dyn Fn(u64),
    ) -> Result<PartialFile<'p>, HubError> {
        let (out, found) = own::part(path)?;
        let mut part = PartialFile { path, out, bytes: 0, digest: Digest::named(&file.etag, file.bytes) };
        if found > file.bytes {
            // What is too long was no part of this.
            part.clear(file)?;
        }
        let mut bytes = vec![0; STRIDE];
        // Reading it leads to its end.
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

    /// Appends what one connection brings.
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
            // The whole file comes, whatever was asked for.
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
