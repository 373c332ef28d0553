//! An id -> one model of one commit of a repository, in the cache or on the Hub.

use super::HubId;
use super::cache::RepoCache;
use super::client::Client;
use super::download::Download;
use super::id::is_revision;
use super::mirror::Mirror;
use super::options::HubOptions;
use super::selection::{Selection, Unselected, select};
use crate::cancel::CancellationToken;
use crate::error::HubError;
use crate::progress::OnProgress;
use model_diagnostics::Diagnosis;
use model_diagnostics::report::HubModel;
use model_diagnostics::source::repository::is_gguf;
use std::path::{Path, PathBuf};

/// The branch that counts where none is named.
const MAIN: &str = "main";

/// GGUF files of a repository that are compared with each other; collections of every quantization have some hundreds.
const GGUF_FILES: usize = 2_000;

/// One model of one commit.
pub(crate) struct Repository {
    id: HubId,
    revision: String,
    commit: String,
    names: Vec<String>,
    selection: Selection,
    cache: RepoCache,
    /// `None` when the cache alone may answer.
    client: Option<Client>,
}

/// Where a model is.
enum Place<'r> {
    /// This is its path.
    Cache(PathBuf),
    /// This asks for it.
    Remote(&'r Client),
}

/// Why there is no model to look at.
pub(crate) enum Fault {
    /// The Hub or the cache is to blame.
    Hub(HubError),
    /// The repository holds several models; their ids.
    Ambiguous(Vec<String>),
}

impl From<HubError> for Fault {
    fn from(error: HubError) -> Fault {
        Fault::Hub(error)
    }
}

impl Repository {
    /// Finds what `id` means. Asks the Hub unless `options` forbid it; `cancel` ends that, now and later.
    pub(crate) fn open(id: &HubId, options: &HubOptions, cancel: &CancellationToken) -> Result<Repository, Fault> {
        let revision = id.revision().unwrap_or(MAIN).to_owned();
        if !is_revision(&revision) {
            return Err(Fault::Hub(HubError::NotFound { id: format!("{}@{revision}", id.repo()) }));
        }
        let cache = RepoCache::new(options.cache_folder(), id.repo());
        let (client, commit, names) = if options.is_offline() {
            let absent = || HubError::Offline { id: id.to_string(), cache: options.cache_folder().into() };
            let commit = cache.commit(&revision)?.ok_or_else(absent)?;
            let names = cache.names(&commit)?;
            (None, commit, names)
        } else {
            let client = Client::new(options, id.repo(), cancel);
            let description = client.describe(&revision).map_err(|error| match error {
                HubError::NotFound { .. } => HubError::NotFound { id: format!("{}@{revision}", id.repo()) },
                error => error,
            })?;
            (Some(client), description.commit, description.names)
        };
        let found = names.iter().filter(|name| is_gguf(name)).count();
        if found > GGUF_FILES {
            let id = id.to_string();
            return Err(Fault::Hub(HubError::TooManyFiles { id, what: "GGUF files", found, limit: GGUF_FILES }));
        }
        let selection = select(&names, id).map_err(|fault| match (fault, options.is_offline()) {
            (Unselected::Ambiguous(ids), _) => Fault::Ambiguous(ids),
            (Unselected::NoSuchModel(_), true) => {
                let cache = options.cache_folder().into();
                Fault::Hub(HubError::Offline { id: id.to_string(), cache })
            }
            (Unselected::NoSuchModel(choices), false) => {
                let (repo, wanted) = (id.repo().into(), id.wanted().unwrap_or_default().into());
                Fault::Hub(HubError::NoSuchModel { repo, wanted, choices })
            }
        })?;
        Ok(Repository { id: id.clone(), revision, commit, names, selection, cache, client })
    }

    /// Whether a file of the model is only on the Hub.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.place(), Place::Remote(_))
    }

    fn place(&self) -> Place<'_> {
        let folder = self.cache.snapshot(&self.commit);
        let here = |file: &String| folder.join(file).is_file();
        match &self.client {
            Some(client) => {
                let weights = self.selection.weights(&self.names, &folder);
                let companions = self.selection.companions(&self.names);
                let complete = !weights.is_empty() && companions.into_iter().chain(&weights).all(here);
                if complete { Place::Cache(self.selection.path(&folder)) } else { Place::Remote(client) }
            }
            None => Place::Cache(self.selection.path(&folder)),
        }
    }

    /// Diagnoses the model by `diagnose`: its files in the cache, or else its headers on the Hub, where paths in the report
    /// are the repository's.
    pub(crate) fn diagnose(&self, diagnose: impl FnOnce(&Path, &HubModel) -> Diagnosis) -> Result<Diagnosis, HubError> {
        let files = match &self.selection {
            Selection::Gguf(parts) => parts.clone(),
            Selection::Safetensors | Selection::Nothing => Vec::new(),
        };
        let own = |text: Option<&str>| text.map(str::to_owned);
        let (repo, wanted, revision) = (self.id.repo().into(), own(self.id.wanted()), own(self.id.revision()));
        let model = HubModel { repo, wanted, revision, files };
        let client = match self.place() {
            Place::Remote(client) => client,
            Place::Cache(path) => return Ok(diagnose(&path, &model)),
        };
        let mirror = Mirror::fetch(client, &self.commit, self.id.repo(), &self.names, &self.selection)?;
        let mut diagnosis = diagnose(&self.selection.path(mirror.path()), &model);
        let folder = mirror.path().display().to_string();
        diagnosis.report.rename(&folder, self.id.repo());
        Ok(diagnosis)
    }

    /// Brings what is missing of the model's files into the cache, weights last.
    pub(crate) fn download(&self, on_progress: &OnProgress) -> Result<(), HubError> {
        if let Place::Remote(client) = self.place() {
            let download = Download { client, cache: &self.cache, commit: &self.commit, on_progress };
            let companions: Vec<String> = self.selection.companions(&self.names).into_iter().cloned().collect();
            let (indexes, others): (Vec<String>, Vec<String>) =
                companions.into_iter().partition(|name| name.ends_with(".index.json"));
            // The index says which weights there are.
            download.all(&indexes)?;
            let weights = self.selection.weights(&self.names, &self.cache.snapshot(&self.commit));
            download.all(&[others, weights].concat())?;
        }
        match self.client {
            Some(_) => self.cache.set_commit(&self.revision, &self.commit),
            None => Ok(()),
        }
    }
}
