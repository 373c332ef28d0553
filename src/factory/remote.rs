//! The id of a model on the Hub -> Report or Model, as for a path.

use super::{Draft, ModelBuilder};
use crate::error::{Error, Result};
#[cfg(feature = "hub")]
use crate::hub;
use crate::hub::HubId;
use crate::model::Model;
#[cfg(feature = "hub")]
use crate::tokenizer::Tokenizer;
use model_factory_diagnostics::{Hardware, Report};
use std::path::Path;
#[cfg(feature = "hub")]
use std::{
    borrow::Cow,
    cell::Cell,
    path::PathBuf,
    time::{Duration, Instant},
};
#[cfg(feature = "hub")]
use {
    crate::progress::Stage,
    model_factory_diagnostics::{Diagnosis, report::HubModel},
    model_factory_hub::{Diagnose, Fault, Mmproj, Repository},
};

impl ModelBuilder {
    /// The report on an id whose model could not be read.
    fn unread(
        &self,
        path: &Path,
        reason: impl Into<Box<dyn std::error::Error + Send + Sync>>,
        on: &Hardware,
    ) -> Report {
        let error = model_factory_diagnostics::Error::io(path, std::io::Error::other(reason));
        model_factory_diagnostics::unread(&error, path, on, &self.policy)
    }

    /// The report on an id in a build without the Hub.
    #[cfg(any(test, not(feature = "hub")))]
    fn without_hub(&self, path: &Path, hardware: &Hardware) -> Report {
        let reason = "no such file or folder; if this is a model of the Hugging Face Hub, build with --features hub";
        self.unread(path, reason, hardware)
    }
}

#[cfg(not(feature = "hub"))]
impl ModelBuilder {
    pub(super) fn diagnose_remote(&self, _id: &HubId, path: &Path, hardware: &Hardware) -> Report {
        self.without_hub(path, hardware)
    }

    pub(super) fn load_remote(&self, id: &HubId, path: &Path, _draft: Option<Draft>) -> Result<Model> {
        Err(Error::Refused(Box::new(self.diagnose_remote(id, path, &self.hardware()))))
    }
}

#[cfg(feature = "hub")]
impl ModelBuilder {
    pub(super) fn diagnose_remote(&self, id: &HubId, path: &Path, hardware: &Hardware) -> Report {
        let id = &id.or_revision(self.revision.as_deref());
        let repository = match self.repository(id) {
            Ok(repository) => repository,
            Err(fault) => return self.absent(id, fault, hardware),
        };
        let diagnose = |path: &Path, mmproj: Option<&Path>, model: &HubModel| {
            Found(self.seeing_by(mmproj).diagnosis(path, Some(model), hardware))
        };
        match repository.diagnose(diagnose) {
            Ok(Found(diagnosis)) => diagnosis.report,
            Err(error) => self.unread(path, error, hardware),
        }
    }

    /// Diagnoses before it downloads: nothing that is refused is fetched.
    pub(super) fn load_remote(&self, id: &HubId, _path: &Path, draft: Option<Draft>) -> Result<Model> {
        let id = &id.or_revision(self.revision.as_deref());
        let hardware = self.hardware();
        let repository = self.repository(id).map_err(|fault| match fault {
            Fault::Hub(error) => load_error(error),
            fault => Error::Refused(Box::new(self.absent(id, fault, &hardware))),
        })?;
        // The time of a load does not include the download, which comes after the diagnosis.
        let (took, refused) = (Cell::new(Duration::ZERO), Cell::new(None));
        let on_progress = |done, total| self.on_progress.tell(Stage::Download, done, total);
        let diagnosis = repository.fetch(&on_progress, |path, mmproj, model| {
            let start = Instant::now();
            let mut diagnosis = self.seeing_by(mmproj).read_header(path, Some(model), &hardware);
            if let (Some(draft), Some(ready)) = (&draft, &diagnosis.ready) {
                let tokenizer = Tokenizer::from_header(&ready.header, &ready.spec.tokenizer).map_err(Error::from);
                let path = PathBuf::from(id.to_string());
                let checked = tokenizer.and_then(|tokenizer| self.check_draft(draft, &path, ready, &tokenizer));
                if let Err(error) = checked {
                    refused.set(Some(error));
                    diagnosis.ready = None;
                }
            }
            took.set(start.elapsed());
            Found(diagnosis)
        });
        if let Some(error) = refused.take() {
            return Err(error);
        }
        let now = Instant::now();
        self.load_diagnosed(now.checked_sub(took.get()).unwrap_or(now), diagnosis.map_err(load_error)?.0, draft)
    }

    fn repository(&self, id: &HubId) -> Result<Repository, Fault> {
        let options = self.hub.clone().map_or_else(hub::HubOptions::from_env, Ok)?;
        let mmproj = match &self.policy.mmproj {
            // A file of this machine is taken as it is.
            Some(path) if path.exists() => Mmproj::Unused,
            Some(name) => name.to_str().map_or(Mmproj::Unused, Mmproj::Named),
            None if self.policy.vision => Mmproj::InFolder,
            None => Mmproj::Unused,
        };
        Repository::open(id, &options, mmproj, &self.cancel)
    }

    /// This builder, for a model whose vision tower is in the file `mmproj`.
    fn seeing_by(&self, mmproj: Option<&Path>) -> Cow<'_, ModelBuilder> {
        mmproj.map_or(Cow::Borrowed(self), |mmproj| Cow::Owned(self.clone().mmproj(mmproj)))
    }

    fn absent(&self, id: &HubId, fault: Fault, hardware: &Hardware) -> Report {
        let path = PathBuf::from(id.to_string());
        let paths = |names: Vec<String>| names.into_iter().map(PathBuf::from).collect();
        let error = match fault {
            Fault::Hub(error) => return self.unread(&path, error, hardware),
            Fault::Ambiguous(ids) => {
                model_factory_diagnostics::Error::Ambiguous { path: path.clone(), candidates: paths(ids) }
            }
            Fault::AmbiguousMmproj(names) => {
                model_factory_diagnostics::Error::AmbiguousProjector { path: path.clone(), candidates: paths(names) }
            }
        };
        model_factory_diagnostics::unread(&error, &path, hardware, &self.policy)
    }
}

/// A diagnosis of files of the Hub.
#[cfg(feature = "hub")]
struct Found(Diagnosis);

#[cfg(feature = "hub")]
impl Diagnose for Found {
    fn runs(&self) -> bool {
        self.0.ready.is_some()
    }

    fn relocate(&mut self, from: &Path, to: &Path) {
        self.0.relocate(from, to);
    }
}

/// The error that a load ends with.
#[cfg(feature = "hub")]
fn load_error(error: hub::HubError) -> Error {
    match error {
        hub::HubError::Cancelled => Error::Cancelled,
        error => Error::Hub(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A build without the Hub gives this answer, and it is the same in every build: tests run with the feature.
    #[test]
    fn an_id_of_the_hub_says_which_feature_it_needs() {
        let builder = crate::UnifiedModelFactory::builder();
        let report = builder.without_hub(Path::new("org/name:Q4_K_M"), &builder.hardware());
        assert_eq!(report.exit_code, 1);
        assert!(report.reason.contains("build with --features hub"), "{}", report.reason);
        assert!(report.to_string().contains("org/name:Q4_K_M"), "{report}");
    }
}
