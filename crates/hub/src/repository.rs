//! An id -> one model of one commit of a repository, in the cache or on the Hub.

use super::cache::RepoCache;
use super::client::Client;
use super::download::Download;
use super::mirror::Mirror;
use super::options::HubOptions;
use super::selection::{Selection, select};
use crate::error::HubError;
use model_factory_format::CancellationToken;
use model_factory_format::header::repository::is_gguf;
use model_factory_format::hub::{HubId, HubModel, is_revision};
use std::path::{Path, PathBuf};

const MAIN: &str = "main";

/// The most GGUF files of a repository that are compared; collections of every quantization have some hundreds.
const GGUF_FILES: usize = 2_000;

/// The result of diagnosing the headers of a model before its weights are downloaded.
pub trait Diagnose {
    /// Whether the model runs, so that its weights are worth a download.
    fn runs(&self) -> bool;

    /// Changes paths in the diagnosis from the folder `from` to the folder `to`.
    fn relocate(&mut self, from: &Path, to: &Path);
}

/// Which file of a GGUF model's vision tower is wanted with it.
#[derive(Clone, Copy, Debug)]
pub enum Mmproj<'n> {
    /// None.
    Unused,
    /// The one in the model's folder whose name has `mmproj` in it, if there is one.
    InFolder,
    /// The file of this name in the repository.
    Named(&'n str),
}

/// One model of one commit.
pub struct Repository {
    id: HubId,
    revision: String,
    commit: String,
    names: Vec<String>,
    selection: Selection,
    cache: RepoCache,
    /// The client; `None` when only the cache may be used.
    client: Option<Client>,
}

/// Why there is no model to diagnose.
#[derive(Debug)]
pub enum Fault {
    /// An error of the Hub or the cache.
    Hub(HubError),
    /// The repository holds several models, with these ids.
    Ambiguous(Vec<String>),
    /// Several files are named like the model's vision tower.
    AmbiguousMmproj(Vec<String>),
}

impl From<HubError> for Fault {
    fn from(error: HubError) -> Fault {
        Fault::Hub(error)
    }
}

impl Repository {
    /// Finds the model that `id` names, with the file of its vision tower as `mmproj` says. Asks the Hub unless `options` forbid it;
    /// `cancel` ends that, now and later.
    ///
    /// # Errors
    /// There is no model with that id, or no such file, or there are several.
    pub fn open(
        id: &HubId,
        options: &HubOptions,
        mmproj: Mmproj<'_>,
        cancel: &CancellationToken,
    ) -> Result<Repository, Fault> {
        let revision = id.revision().unwrap_or(MAIN).to_owned();
        if !is_revision(&revision) {
            return Err(Fault::Hub(HubError::NotFound { id: format!("{}@{revision}", id.repo()) }));
        }
        let cache = RepoCache::new(&options.cache, id.repo());
        let absent = || HubError::Offline { id: id.to_string(), cache: options.cache.clone() };
        let (client, commit, names) = if options.offline {
            let commit = cache.commit(&revision)?.ok_or_else(absent)?;
            let names = cache.names(&commit)?;
            (None, commit, names)
        } else {
            let client = Client::new(options, id.repo(), cancel);
            let (commit, names) = client.describe(&revision)?;
            (Some(client), commit, names)
        };
        let found = names.iter().filter(|name| is_gguf(name)).count();
        if found > GGUF_FILES {
            let id = id.to_string();
            return Err(Fault::Hub(HubError::TooManyFiles { id, what: "GGUF files", found, limit: GGUF_FILES }));
        }
        let selection = select(&names, id).map_err(|fault| match fault {
            Fault::Hub(HubError::NoSuchModel { .. }) if options.offline => Fault::Hub(absent()),
            fault => fault,
        })?;
        let selection = selection.with_mmproj(&names, id, mmproj)?;
        Ok(Repository { id: id.clone(), revision, commit, names, selection, cache, client })
    }

    /// Diagnoses the model by `diagnose`, which is given its path, that of its vision tower's file, and its name: its files in the cache, else its headers on the Hub, where paths in the
    /// diagnosis are those of the repository.
    ///
    /// # Errors
    /// An error of the Hub or the cache.
    pub fn diagnose<D: Diagnose>(
        &self,
        diagnose: impl Fn(&Path, Option<&Path>, &HubModel) -> D,
    ) -> Result<D, HubError> {
        let Some((_, mirror)) = self.mirror()? else { return Ok(self.diagnosed(&self.folder(), diagnose)) };
        let mut diagnosis = self.diagnosed(mirror.path(), diagnose);
        diagnosis.relocate(mirror.path(), self.id.repo().as_ref());
        Ok(diagnosis)
    }

    /// Diagnoses the model, and where it runs downloads its missing files into the cache, weights last: the diagnosis
    /// is then of these files. `on_progress` is called with the bytes that are done, and the bytes in total.
    ///
    /// # Errors
    /// An error of the Hub or the cache.
    pub fn fetch<D: Diagnose>(
        &self,
        on_progress: &dyn Fn(u64, u64),
        diagnose: impl Fn(&Path, Option<&Path>, &HubModel) -> D,
    ) -> Result<D, HubError> {
        let (mirror, folder) = (self.mirror()?, self.folder());
        let Some((client, mirror)) = mirror else {
            if self.client.is_some() {
                self.cache.set_commit(&self.revision, &self.commit)?;
            }
            return Ok(self.diagnosed(&folder, diagnose));
        };
        let mut diagnosis = self.diagnosed(mirror.path(), &diagnose);
        if !diagnosis.runs() {
            diagnosis.relocate(mirror.path(), self.id.repo().as_ref());
            return Ok(diagnosis);
        }
        let download = Download { client, cache: &self.cache, commit: &self.commit, mirror: &mirror, on_progress };
        let companions = self.selection.companions(&self.names).into_iter().cloned();
        download.all(&companions.chain(self.selection.weights(&self.names, mirror.path())).collect::<Vec<_>>())?;
        self.cache.set_commit(&self.revision, &self.commit)?;
        match mirror.is_of(&folder).map_err(HubError::io(&folder))? {
            true => diagnosis.relocate(mirror.path(), &folder),
            // The headers read before differ from the downloaded weights, which have the right digest.
            false => diagnosis = self.diagnosed(&folder, diagnose),
        }
        Ok(diagnosis)
    }

    /// The headers of a model of which a file is only on the Hub, with the client to download that file.
    fn mirror(&self) -> Result<Option<(&Client, Mirror)>, HubError> {
        let Some(client) = &self.client else { return Ok(None) };
        let folder = self.folder();
        let weights = self.selection.weights(&self.names, &folder);
        let mut files = self.selection.companions(&self.names).into_iter().chain(&weights);
        if !weights.is_empty() && files.all(|file| folder.join(file).is_file()) {
            return Ok(None);
        }
        let mirror = Mirror::fetch(client, &self.commit, self.id.repo(), &self.names, &self.selection)?;
        Ok(Some((client, mirror)))
    }

    /// The folder of the files in the cache.
    fn folder(&self) -> PathBuf {
        self.cache.snapshot(&self.commit)
    }

    fn diagnosed<D>(&self, folder: &Path, diagnose: impl Fn(&Path, Option<&Path>, &HubModel) -> D) -> D {
        let (files, mmproj) = match &self.selection {
            Selection::Gguf { parts, mmproj } => (parts.clone(), mmproj.as_ref().map(|name| folder.join(name))),
            Selection::Safetensors | Selection::Nothing => (Vec::new(), None),
        };
        diagnose(&self.selection.path(folder), mmproj.as_deref(), &self.id.model(files))
    }
}
