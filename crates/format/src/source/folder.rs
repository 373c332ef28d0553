//! A folder, or a file and its neighbors -> the files of one model.

use super::content::{self, Content};
use super::index::ShardIndex;
use super::names::{self, SplitName};
use super::{Format, ModelSource, SourceFile, sidecar};
use crate::error::{Error, FormatErrorKind, Result, some_of};
use crate::limits;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of an index in transformers.
const INDEX: &str = "model.safetensors.index.json";

/// The formats that a folder is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Any,
    /// The model that a `config.json` describes.
    Safetensors,
}

/// The names in one folder.
pub(super) struct Folder<'a> {
    /// The path as the user gave it, for messages and the [`ModelSource`].
    path: &'a Path,
    dir: PathBuf,
    /// Sorted names of files, without hidden ones.
    files: Vec<String>,
    folders: Vec<String>,
}

/// The last component of `path`, with replacement characters where it is not UTF-8.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl<'a> Folder<'a> {
    pub(super) fn read(path: &'a Path, dir: &Path) -> Result<Folder<'a>> {
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        let failed = |error| Error::io(dir, error);
        for (count, entry) in std::fs::read_dir(dir).map_err(failed)?.enumerate() {
            if count >= limits::FOLDER_ENTRIES {
                let (what, limit) = ("the number of entries of this folder", limits::FOLDER_ENTRIES as u64);
                return Err(Error::format(dir, FormatErrorKind::TooMany { what, found: limit + 1, limit }));
            }
            let entry = entry.map_err(failed)?;
            // No published model has a name that is not UTF-8; such a file can be given by itself.
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue;
            }
            let kind = entry.file_type().map_err(failed)?;
            let is_folder = kind.is_dir() || (kind.is_symlink() && entry.path().is_dir());
            if is_folder { folders.push(name) } else { files.push(name) }
        }
        files.sort();
        folders.sort();
        Ok(Folder { path, dir: dir.into(), files, folders })
    }

    /// Finds the one model in the folder `path`, or in its snapshot if it is a folder of the Hugging Face cache.
    pub(super) fn probe(path: &'a Path) -> Result<ModelSource> {
        let folder = Folder::read(path, path)?;
        match super::cache::snapshot(path, &folder.folders, &folder.files)? {
            Some(snapshot) => Folder::read(path, &snapshot)?.choose(Wanted::Any),
            None => folder.choose(Wanted::Any),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.files.binary_search_by(|file| file.as_str().cmp(name)).is_ok()
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn with_extension<'s>(&'s self, ext: &'s str) -> impl Iterator<Item = &'s str> {
        self.files.iter().map(String::as_str).filter(move |name| names::has_extension(name, ext))
    }

    pub(super) fn choose(&self, wanted: Wanted) -> Result<ModelSource> {
        let gguf_files = if wanted == Wanted::Any { self.gguf_candidates() } else { Vec::new() };
        let mut candidates = self.safetensors_candidates();
        let another = !gguf_files.is_empty() || !self.models().is_empty();
        if another && !self.has("config.json") {
            // Without a config the safetensors files are no model, and there is another model.
            candidates.clear();
        }
        candidates.extend(gguf_files.iter().cloned());
        if candidates.is_empty() && wanted == Wanted::Any {
            candidates = self.guess();
        }
        match candidates.as_slice() {
            [] => Err(self.explain()),
            [one] => {
                let (path, name) = (self.join(one), one.as_str());
                let others = if gguf_files.is_empty() { Vec::new() } else { self.models() };
                if !others.is_empty() {
                    let candidates = std::iter::once(path).chain(others).collect();
                    return Err(Error::Ambiguous { path: self.path.into(), candidates });
                }
                if names::has_extension(name, "json") {
                    return indexed(self.path, &self.dir, &path);
                }
                let (content, prefix, len) = content::identify(&path)?;
                match content {
                    Content::Gguf => gguf(self.path, &self.dir, &path),
                    Content::Safetensors => shards(self, &path),
                    // The file is too short to be recognized; its own reader reports what is wrong.
                    Content::Unknown if len > 0 && names::has_extension(name, "safetensors") => shards(self, &path),
                    _ => Err(content::refuse(&path, &prefix, len)),
                }
            }
            _ => {
                let mut candidates: Vec<PathBuf> = candidates.iter().map(|name| self.join(name)).collect();
                if wanted == Wanted::Any {
                    candidates.extend(self.nested());
                }
                Err(Error::Ambiguous { path: self.path.into(), candidates })
            }
        }
    }

    /// One name for each safetensors model: its index, its first shard present, or its file.
    fn safetensors_candidates(&self) -> Vec<String> {
        let index_names = || self.files.iter().filter(|name| name.ends_with(".safetensors.index.json"));
        let model: Vec<&str> = self
            .with_extension("safetensors")
            .filter(|name| !name.starts_with("consolidated") && !name.starts_with("adapter_model"))
            .collect();
        let mut candidates = Vec::new();
        if self.has(INDEX) {
            candidates.push(INDEX.to_owned());
        } else {
            candidates.extend(index_names().filter(|name| !name.starts_with("consolidated")).cloned());
        }
        let single = "model.safetensors";
        if self.has(single) && !candidates.iter().any(|index| self.index_names(index, single)) {
            candidates.push(single.into());
        }
        if !candidates.is_empty() {
            return candidates;
        }
        candidates = one_name_a_model(model.iter().copied().filter(|name| name.starts_with("model")), "safetensors");
        if candidates.is_empty() {
            candidates = one_name_a_model(model.into_iter(), "safetensors");
        }
        candidates
    }

    /// Whether the index file `index` names `file`; a broken index names none, and its own reader reports the error.
    fn index_names(&self, index: &str, file: &str) -> bool {
        ShardIndex::read(&self.join(index)).is_ok_and(|index| index.files.iter().any(|name| name == file))
    }

    /// One name for each GGUF model; projectors, adapters and vocabularies only when there is nothing else.
    fn gguf_candidates(&self) -> Vec<String> {
        let all = one_name_a_model(self.with_extension("gguf"), "gguf");
        if all.len() < 2 {
            return all;
        }
        let models: Vec<String> = all.iter().filter(|name| !self.is_aside(name)).cloned().collect();
        if models.is_empty() { all } else { models }
    }

    /// Whether the GGUF file `name` is a projector, an adapter, a draft head or a vocabulary.
    fn is_aside(&self, name: &str) -> bool {
        let path = self.join(name);
        // `mtp-` files hold draft heads; nothing in the file distinguishes them from a model.
        name.starts_with("mtp-") || {
            // A file that cannot be read stays a candidate: choosing it reports the error.
            let about = sidecar::about(&path).unwrap_or_default();
            about.refusal(&path).is_some() || (about.tensors == Some(0) && SplitName::parse(name, "gguf").is_none())
        }
    }

    /// Files whose names show nothing and whose content is a model.
    fn guess(&self) -> Vec<String> {
        let nameless = self.files.iter().filter(|name| {
            !names::is_unfinished(name)
                && !["json", "txt", "md", "safetensors"].iter().any(|ext| names::has_extension(name, ext))
        });
        let is_gguf = |name: &&String| matches!(content::identify(&self.join(name)), Ok((Content::Gguf, _, 16..)));
        nameless.take(limits::FOLDER_GUESSES).filter(is_gguf).cloned().collect()
    }

    /// The error that says why there is no model in this folder.
    fn explain(&self) -> Error {
        let config = self.has("config.json");
        let of_adapter = |name: &String| name.starts_with("adapter_model.");
        if self.files.iter().any(of_adapter) || (!config && self.has("adapter_config.json")) {
            return sidecar::adapter(&self.dir);
        }
        if let Some(name) = self.files.iter().find(|name| names::is_unfinished(name)) {
            let why = format!("{name} is an unfinished download; finish it");
            return Error::file_missing(self.path, "the model's weights", why);
        }
        let other = self.files.iter().find_map(|name| names::other_weights(name).map(|what| (name, what)));
        if let Some((name, what)) = other {
            let remedy = "download the model's .safetensors files or a GGUF of it, or convert them to safetensors";
            return Error::format(self.path, FormatErrorKind::OtherWeights { what, name: name.clone(), remedy });
        }
        if config {
            let why = "config.json is here, its weights are not; download the .safetensors files into this folder";
            return Error::file_missing(self.path, "model.safetensors", why);
        }
        if let Some(error) = self.deeper() {
            return error;
        }
        let mut found: Vec<&str> = self.files.iter().chain(&self.folders).map(String::as_str).take(5).collect();
        let total = self.files.len() + self.folders.len();
        let more = format!("{} more", total.saturating_sub(5));
        if total > 5 {
            found.push(&more);
        }
        let found = if found.is_empty() { "it is empty".into() } else { format!("it holds {}", found.join(", ")) };
        Error::format(self.path, FormatErrorKind::NoModel { found })
    }

    /// The subfolders that seem to hold a model.
    fn nested(&self) -> Vec<PathBuf> {
        let aside = ["original", "onnx", "runs", "blobs", "refs"];
        let folders = self.folders.iter().filter(|name| !aside.contains(&name.as_str()));
        let holds = |name: &&String| {
            let Ok(folder) = Folder::read(self.path, &self.join(name)) else { return false };
            let weights = ["gguf", "safetensors"].iter().any(|ext| folder.with_extension(ext).next().is_some());
            weights || super::cache::is_cache(&folder.folders)
        };
        folders.take(limits::FOLDER_GUESSES).filter(holds).map(|name| self.join(name)).collect()
    }

    /// The subfolders whose files are a model by themselves.
    fn models(&self) -> Vec<PathBuf> {
        let holds = |path: &PathBuf| {
            let Ok(folder) = Folder::read(self.path, path) else { return false };
            let described = folder.has("config.json") && !folder.safetensors_candidates().is_empty();
            let gguf = || folder.with_extension("gguf").any(|name| !folder.is_aside(name));
            described || super::cache::is_cache(&folder.folders) || gguf()
        };
        self.nested().into_iter().filter(holds).collect()
    }

    /// The error for a folder whose models are in subfolders.
    fn deeper(&self) -> Option<Error> {
        let candidates = self.nested();
        match candidates.as_slice() {
            [] => None,
            [one] => {
                let found = format!("there is one in {}: give that folder", one.display());
                Some(Error::format(self.path, FormatErrorKind::NoModel { found }))
            }
            _ => Some(Error::Ambiguous { path: self.path.into(), candidates }),
        }
    }

    /// A note on safetensors files that do not belong to the model.
    fn strays(&self, used: impl Fn(&str) -> bool) -> Vec<String> {
        let strays: Vec<&str> = self.with_extension("safetensors").filter(|name| !used(name)).collect();
        if strays.is_empty() {
            return Vec::new();
        }
        vec![format!("{} in {} not part of the model, ignored", strays.join(", "), self.dir.display())]
    }

    fn safetensors(&self, files: Vec<SourceFile>, index: Option<PathBuf>, notes: Vec<String>) -> ModelSource {
        let (path, folder) = (self.path.into(), self.dir.clone());
        ModelSource { path, format: Format::Safetensors, folder, files, index, projector: None, notes }
    }
}

/// One name for each model: of the parts of a split model only the first that is present.
fn one_name_a_model<'n>(names: impl Iterator<Item = &'n str>, ext: &str) -> Vec<String> {
    let (mut seen, mut candidates): (Vec<SplitName>, Vec<String>) = (Vec::new(), Vec::new());
    for name in names {
        if let Some(part) = SplitName::parse(name, ext) {
            if seen.iter().any(|other| other.same_model(&part)) {
                continue;
            }
            seen.push(part);
        }
        candidates.push(name.into());
    }
    candidates
}

/// The GGUF model that `file` in `dir` is or belongs to.
pub(super) fn gguf(path: &Path, dir: &Path, file: &Path) -> Result<ModelSource> {
    sidecar::refuse(file)?;
    let files = match SplitName::parse(&file_name(file), "gguf") {
        Some(part) => parts(&Folder::read(path, dir)?, &part, "gguf")?,
        None => vec![SourceFile::at(file)?],
    };
    let (path, folder) = (path.into(), dir.into());
    Ok(ModelSource { path, format: Format::Gguf, folder, files, index: None, projector: None, notes: Vec::new() })
}

/// The safetensors model that the file `name` in `dir` is or belongs to.
pub(super) fn safetensors(path: &Path, dir: &Path, name: &str) -> Result<ModelSource> {
    let folder = Folder::read(path, dir)?;
    if name.starts_with("adapter_model") {
        return Err(sidecar::adapter(path));
    }
    if let Some(what) = names::other_weights(name).filter(|_| names::has_extension(name, "safetensors")) {
        let remedy = "download the model's other .safetensors files and its config.json";
        return Err(Error::format(path, FormatErrorKind::OtherWeights { what, name: name.into(), remedy }));
    }
    if folder.has(INDEX) {
        let is_part = SplitName::parse(name, "safetensors").is_some();
        match ShardIndex::read(&folder.join(INDEX)) {
            Ok(index) if index.files.iter().any(|file| file == name) => return from_index(&folder, index),
            // An index that does not name the file is for another model in this folder, unless the name says otherwise.
            Ok(index) if is_part => {
                let one = format!("{name} is named like a shard");
                let other = format!("{INDEX} does not name it; download both again");
                return Err(Error::contradiction(&index.path, one, other));
            }
            Err(error) if is_part => return Err(error),
            _ => {}
        }
    }
    shards(&folder, path)
}

/// The model that `file` in `folder` is or belongs to, without reading an index.
fn shards(folder: &Folder<'_>, file: &Path) -> Result<ModelSource> {
    let files = match SplitName::parse(&file_name(file), "safetensors") {
        Some(part) => parts(folder, &part, "safetensors")?,
        None => vec![SourceFile::at(file)?],
    };
    let notes = folder.strays(|name| files.iter().any(|file| file_name(&file.path) == name));
    Ok(folder.safetensors(files, None, notes))
}

/// The model whose shards the index file `index` names.
pub(super) fn indexed(path: &Path, dir: &Path, index: &Path) -> Result<ModelSource> {
    from_index(&Folder::read(path, dir)?, ShardIndex::read(index)?)
}

fn from_index(folder: &Folder<'_>, index: ShardIndex) -> Result<ModelSource> {
    let (mut files, mut missing) = (Vec::new(), Vec::new());
    for name in &index.files {
        let path = folder.join(name);
        match content::length_if_there(&path)? {
            Some(bytes) => files.push(SourceFile { path, bytes }),
            None => missing.push(name.clone()),
        }
    }
    if !missing.is_empty() {
        return Err(parts_missing(folder, &index.path, &missing, index.files.len()));
    }
    let notes = folder.strays(|name| index.files.iter().any(|file| file == name));
    Ok(folder.safetensors(files, Some(index.path), notes))
}

/// All parts of the model that `part` belongs to, in order.
fn parts(folder: &Folder<'_>, part: &SplitName, ext: &str) -> Result<Vec<SourceFile>> {
    let mut found = BTreeMap::new();
    for name in folder.with_extension(ext) {
        let Some(other) = SplitName::parse(name, ext).filter(|other| other.same_model(part)) else { continue };
        if let Some(twin) = found.insert(other.number, name) {
            let one = format!("{twin} is part {}", other.number);
            return Err(Error::contradiction(&folder.dir, one, format!("{name} is so too; remove one")));
        }
    }
    let missing: Vec<String> =
        (1..=part.total).filter(|number| !found.contains_key(number)).map(|number| part.name_of(number)).collect();
    if !missing.is_empty() {
        return Err(parts_missing(folder, &folder.dir, &missing, part.total as usize));
    }
    found.values().map(|name| SourceFile::at(&folder.join(name))).collect()
}

fn parts_missing(folder: &Folder<'_>, shown_by: &Path, missing: &[String], total: usize) -> Error {
    let present = total - missing.len();
    let remedy = match folder.files.iter().find(|name| names::is_unfinished(name)) {
        Some(name) => format!("{name} is an unfinished download: finish it"),
        None => "download the rest into this folder".into(),
    };
    let why = format!("{present} of {total} parts are present; {remedy}");
    Error::file_missing(shown_by, some_of(missing, 5), why)
}
