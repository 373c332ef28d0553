//! The file that holds the vision tower of a GGUF model, which llama.cpp calls `mmproj`.

use super::content::{self, Content};
use super::folder::{Folder, file_name};
use super::{Format, ModelSource, SourceFile, names};
use crate::error::{ArchitectureErrorKind, Error, IncompleteKind, Result};
use std::path::{Path, PathBuf};

/// What the names of such files have in them.
const MARK: &str = "mmproj";

impl ModelSource {
    /// Adds the file of a GGUF model's vision tower: `given`, or the one in the model's folder whose name has `mmproj` in it.
    /// Without such a file the source stays as it is, and so does one of safetensors, which have their tower in their own files.
    ///
    /// # Errors
    /// `AmbiguousProjector` for several files where none is given; `Architecture` where one is given for safetensors; those of
    /// [`probe`](super::probe) for the file.
    pub fn with_projector(mut self, given: Option<&Path>) -> Result<ModelSource> {
        let path = match (self.format, given) {
            (Format::Gguf, Some(given)) => given.to_owned(),
            (Format::Gguf, None) => match self.projectors()?.as_slice() {
                [] => return Ok(self),
                [one] => one.clone(),
                several => return Err(Error::AmbiguousProjector { path: self.path, candidates: several.into() }),
            },
            (Format::Safetensors, None) => return Ok(self),
            (Format::Safetensors, Some(given)) => {
                let missing =
                    "a file of its own has the tower of a GGUF model, and this model is of safetensors".into();
                let kind = ArchitectureErrorKind::NoTower { missing };
                return Err(Error::Architecture { file: given.into(), kind });
            }
        };
        if names::is_unfinished(&file_name(&path)) {
            return Err(Error::incomplete(&path, IncompleteKind::Unfinished));
        }
        let file = SourceFile::at(&path)?;
        match content::identify(&path)? {
            (Content::Gguf, ..) => {}
            (_, prefix, len) => return Err(content::refuse(&path, &prefix, len)),
        }
        self.projector = Some(self.files.len());
        self.files.push(file);
        Ok(self)
    }

    /// The files in the model's folder that are named like one, but for the model's own.
    fn projectors(&self) -> Result<Vec<PathBuf>> {
        let folder = Folder::read(&self.path, &self.folder)?;
        let own = |name: &str| self.files.iter().any(|file| file_name(&file.path) == name);
        let named = |name: &&str| name.to_ascii_lowercase().contains(MARK) && !own(name);
        Ok(folder.with_extension("gguf").filter(named).map(|name| folder.join(name)).collect())
    }
}
