//! A model folder of the Hugging Face cache: `models--org--name/{blobs, refs, snapshots/<revision>}`.

use super::content;
use crate::error::{Error, Result};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of a reference that are read; a revision has 40.
const REFERENCE_BYTES: u64 = 256;

/// Whether a folder with these subfolders is the cache of one model.
pub(super) fn is_cache(folders: &[String]) -> bool {
    folders.iter().any(|name| name == "snapshots")
}

/// The snapshot of the cache folder `path`: the one of `refs/main`, or the only one. `None` when `path` is not a cache
/// folder.
pub(super) fn snapshot(path: &Path, folders: &[String], files: &[String]) -> Result<Option<PathBuf>> {
    if !is_cache(folders) || !files.is_empty() {
        return Ok(None);
    }
    let snapshots = path.join("snapshots");
    if let Some(main) = reference(&path.join("refs").join("main")).map(|revision| snapshots.join(revision))
        && main.is_dir()
    {
        return Ok(Some(main));
    }
    let mut candidates = Vec::new();
    for entry in std::fs::read_dir(&snapshots).map_err(|error| Error::io(&snapshots, error))? {
        let entry = entry.map_err(|error| Error::io(&snapshots, error))?.path();
        if entry.is_dir() {
            candidates.push(entry);
        }
    }
    candidates.sort();
    match candidates.as_slice() {
        [] => Err(Error::file_missing(path, "a snapshot", "this cache folder has none; download the model again")),
        [one] => Ok(Some(one.clone())),
        _ => Err(Error::Ambiguous { path: path.into(), candidates }),
    }
}

/// The revision in a reference file; `None` when it has none that could be a folder's name.
fn reference(path: &Path) -> Option<String> {
    let (file, _) = content::open(path).ok()?;
    let mut text = String::new();
    file.take(REFERENCE_BYTES).read_to_string(&mut text).ok()?;
    let revision = text.trim();
    let sound = !revision.is_empty() && revision.bytes().all(|byte| byte.is_ascii_alphanumeric());
    sound.then(|| revision.into())
}
