//! A file of the Hub -> the cache, whole or not at all; what a broken connection left is continued.

use super::cache::RepoCache;
use super::client::{Client, Patience};
use super::error::HubError;
use crate::cancel::Cancel;
use crate::progress::{OnProgress, Stage};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Brings files of one commit into the cache.
pub(super) struct Download<'d> {
    pub(super) client: &'d Client,
    pub(super) cache: &'d RepoCache,
    pub(super) commit: &'d str,
    pub(super) on_progress: &'d OnProgress,
    pub(super) cancel: &'d Cancel,
}

/// A file before it is downloaded.
struct Wanted<'f> {
    name: &'f str,
    etag: String,
    bytes: u64,
}

impl Download<'_> {
    /// Brings `files`, in their order, into the cache.
    pub(super) fn all(&self, files: &[String]) -> Result<(), HubError> {
        let wanted: Vec<Wanted<'_>> = files.iter().map(|name| self.look(name)).collect::<Result<_, _>>()?;
        let total = wanted.iter().fold(0, |total: u64, file| total.saturating_add(file.bytes));
        let mut before = 0;
        for file in &wanted {
            let blob = self.cache.blob(&file.etag);
            let tell = |done| self.on_progress.tell(Stage::Download, before + done, total);
            if !is_whole(&blob, file.bytes) {
                self.fetch(file, &blob, &tell)?;
            }
            self.cache.link(self.commit, file.name, &file.etag)?;
            tell(file.bytes);
            before += file.bytes;
        }
        Ok(())
    }

    /// Length and content of a file.
    fn look<'f>(&self, name: &'f str) -> Result<Wanted<'f>, HubError> {
        let mut patience = Patience::new();
        let answer = loop {
            match self.client.open(self.commit, name, 0, Some(1)) {
                Err(error) if patience.goes_on(&error, false) => {}
                result => break result?,
            }
        };
        let etag = answer.etag.ok_or_else(|| HubError::Answer { url: name.into(), what: "it has no ETag".into() })?;
        Ok(Wanted { name, etag, bytes: answer.total })
    }

    /// Brings one content into the cache. Another process that does so is waited for.
    fn fetch(&self, file: &Wanted<'_>, blob: &Path, tell: &dyn Fn(u64)) -> Result<(), HubError> {
        let folder = blob.parent().unwrap_or(blob);
        fs::create_dir_all(folder).map_err(HubError::io(folder))?;
        let (lock, part) = (blob.with_extension("lock"), blob.with_extension("part"));
        let lock_file = File::create(&lock).map_err(HubError::io(&lock))?;
        lock_file.lock().map_err(HubError::io(&lock))?;
        if is_whole(blob, file.bytes) {
            return Ok(());
        }
        self.append(file, &part, tell)?;
        fs::rename(&part, blob).map_err(HubError::io(blob))
    }

    /// Continues the file `part` until it is whole.
    fn append(&self, file: &Wanted<'_>, part: &Path, tell: &dyn Fn(u64)) -> Result<(), HubError> {
        let mut out = File::options().create(true).append(true).open(part).map_err(HubError::io(part))?;
        let mut done = out.metadata().map_err(HubError::io(part))?.len();
        if done > file.bytes {
            // What is too long was no part of this.
            out.set_len(0).map_err(HubError::io(part))?;
            done = 0;
        }
        let mut patience = Patience::new();
        while done < file.bytes {
            let before = done;
            let Err(error) = self.append_once(file, &mut out, part, &mut done, tell) else { continue };
            if !patience.goes_on(&error, done > before) {
                return Err(match error {
                    HubError::Connection { reason, .. } => {
                        HubError::Interrupted { file: file.name.into(), done, total: file.bytes, reason }
                    }
                    error => error,
                });
            }
        }
        out.sync_all().map_err(HubError::io(part))
    }

    fn append_once(
        &self,
        file: &Wanted<'_>,
        out: &mut File,
        part: &Path,
        done: &mut u64,
        tell: &dyn Fn(u64),
    ) -> Result<(), HubError> {
        let mut answer = self.client.open(self.commit, file.name, *done, None)?;
        if answer.total != file.bytes {
            let (found, expected) = (answer.total, file.bytes);
            return Err(HubError::Length { file: file.name.into(), found, expected });
        }
        if answer.etag.as_ref() != Some(&file.etag) {
            let what = format!("{} has changed since it was asked for", file.name);
            return Err(HubError::Answer { url: file.name.into(), what });
        }
        match answer.start {
            start if start == *done => {}
            0 => {
                // The whole file comes, whatever was asked for.
                out.set_len(0).map_err(HubError::io(part))?;
                *done = 0;
            }
            start => {
                let what = format!("it begins at byte {start}, asked for was {done}");
                return Err(HubError::Answer { url: file.name.into(), what });
            }
        }
        while *done < file.bytes {
            tell(*done);
            if self.cancel.is_cancelled() {
                return Err(HubError::Cancelled);
            }
            let bytes = answer.read(self.client, self.commit, file.name, file.bytes - *done)?;
            out.write_all(&bytes).map_err(HubError::io(part))?;
            *done += bytes.len() as u64;
        }
        Ok(())
    }
}

/// Whether `blob` is there and as long as it must be.
fn is_whole(blob: &Path, bytes: u64) -> bool {
    fs::metadata(blob).is_ok_and(|metadata| metadata.is_file() && metadata.len() == bytes)
}
