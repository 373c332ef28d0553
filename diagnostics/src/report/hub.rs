//! A model of the Hugging Face Hub, as programs name it.

use serde::Serialize;
use std::fmt;

/// A model of the Hugging Face Hub: `org/name`, and where it was asked for `:quantization` and `@revision`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct HubModel {
    /// `org/name`.
    pub repo: String,
    /// The quantization or the file that was asked for.
    pub wanted: Option<String>,
    /// The branch, tag or commit that was asked for.
    pub revision: Option<String>,
    /// The GGUF file, or all parts of a split one, by their names in the repository; empty of other models.
    pub files: Vec<String>,
}

impl fmt::Display for HubModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repo)?;
        if let Some(wanted) = &self.wanted {
            write!(f, ":{wanted}")?;
        }
        self.revision.as_ref().map_or(Ok(()), |revision| write!(f, "@{revision}"))
    }
}
