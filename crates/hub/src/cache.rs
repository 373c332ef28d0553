//! One repository in the shared cache: `blobs` by content, `snapshots` by commit, `refs` by branch.

use super::{names, own};
use crate::error::HubError;
use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a reference that are read; a commit has 40.
const REFERENCE_BYTES: u64 = 256;

/// The depth of folders in a snapshot that are listed.
const DEPTH: usize = 3;

pub(super) struct RepoCache {
    folder: PathBuf,
    paths: CacheRepo,
}

impl RepoCache {
    pub(super) fn new(cache: &Path, repo: &str) -> RepoCache {
        let repo = Repo::new(repo.into(), RepoType::Model);
        let folder = cache.join(repo.folder_name());
        RepoCache { folder, paths: Cache::new(cache.into()).repo(repo) }
    }

    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.paths.pointer_path(commit)
    }

    /// The commit that `revision` was at its last download, or that it names directly.
    pub(super) fn commit(&self, revision: &str) -> Result<Option<String>, HubError> {
        let text = own::reference(&self.reference(revision), REFERENCE_BYTES)?;
        let commit = text.as_deref().unwrap_or(revision).trim();
        Ok((names::is_commit(commit) && self.snapshot(commit).is_dir()).then(|| commit.into()))
    }

    fn reference(&self, revision: &str) -> PathBuf {
        self.folder.join("refs").join(revision)
    }

    /// Stores that `revision` is `commit`, once all files are there.
    pub(super) fn set_commit(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if revision == commit {
            return Ok(());
        }
        let path = self.reference(revision);
        if own::reference(&path, REFERENCE_BYTES)?.is_some_and(|text| text == commit) {
            return Ok(());
        }
        in_place_of(&path, |new| fs::write(new, commit))
    }

    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(etag)
    }

    /// Creates `blob` from the content of the file at `from`.
    pub(super) fn copy(&self, from: &Path, blob: &Path) -> Result<(), HubError> {
        in_place_of(blob, |new| {
            fs::copy(from, new)?;
            fs::File::options().write(true).open(new)?.sync_all()
        })
    }

    /// Links `file` of `commit` to the content with this ETag, which is in the cache.
    pub(super) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<(), HubError> {
        let path = self.snapshot(commit).join(file);
        let blob = self.blob(etag);
        let there = |path: &Path| fs::canonicalize(path).ok();
        if there(&path).is_some_and(|path| Some(path) == there(&blob)) {
            return Ok(());
        }
        let up = "../".repeat(2 + file.matches('/').count());
        let target = Path::new(&up).join("blobs").join(etag);
        in_place_of(&path, |new| point(new, &target, &blob))
    }

    /// The complete files of `commit`, sorted.
    pub(super) fn names(&self, commit: &str) -> Result<Vec<String>, HubError> {
        let mut names = Vec::new();
        list(&self.snapshot(commit), "", DEPTH, &mut names)?;
        names.sort();
        Ok(names)
    }
}

/// Creates a link at `new` to the content `blob`, whose path from there is `target`.
#[cfg(unix)]
fn point(new: &Path, target: &Path, _blob: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, new)
}

/// Outside of Unix, symbolic links may need rights that a user lacks.
#[cfg(not(unix))]
fn point(new: &Path, _target: &Path, blob: &Path) -> std::io::Result<()> {
    fs::hard_link(blob, new)
}

/// Replaces `path` by what `write` creates in one step, so that nobody sees half of it.
fn in_place_of(path: &Path, write: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), HubError> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(HubError::io(folder))?;
    let staging = tempfile::Builder::new().prefix(".tmp").tempdir_in(folder).map_err(HubError::io(folder))?;
    let new = staging.path().join("new");
    // A relative link is written for its final place, one folder further up.
    write(&new).and_then(|()| fs::rename(&new, path)).map_err(HubError::io(path))
}

fn list(folder: &Path, prefix: &str, depth: usize, names: &mut Vec<String>) -> Result<(), HubError> {
    for entry in fs::read_dir(folder).map_err(HubError::io(folder))? {
        let entry = entry.map_err(HubError::io(folder))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (path, name) = (entry.path(), format!("{prefix}{name}"));
        if path.is_file() && names::is_inside(&name) {
            names.push(name);
        } else if path.is_dir() && depth > 1 && !name.starts_with('.') {
            list(&path, &format!("{name}/"), depth - 1, names)?;
        }
    }
    Ok(())
}
