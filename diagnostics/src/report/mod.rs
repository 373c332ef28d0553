//! The results of a diagnosis, for people (`Display`) and for tools (JSON, `schema_version` "1").

mod adapter;
mod candidate;
mod devices;
mod distribution;
mod memory;
mod model;
mod page;
mod remedy;
mod text;
mod verdict;

pub use adapter::AdapterSummary;
pub use candidate::Candidate;
pub use devices::{DeviceList, DeviceTiers};
pub use distribution::{Distribution, ServingEngine, Share};
pub use model::{
    DtypeSummary, EmbedsSummary, ExpertSummary, LayerBytes, MixerSummary, ModelSummary, RopeSummary, TokenizerSummary,
    VisionSummary, WindowSummary,
};
pub use model_factory_format::HubModel;
pub use model_factory_format::error::escaped;
pub use page::{Available, Bytes, Presentation, Tone, shortened};
pub use remedy::{NextStep, Remedy};
pub use verdict::Verdict;
pub(crate) use verdict::of_error;

pub(crate) use model::{roles, tower_roles};
pub(crate) use page::counted;

use crate::hardware::Hardware;
use crate::header::Header;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::source::{Format, ModelSource};
use crate::speed::Speed;
use serde::{Serialize, Serializer};
use std::path::Path;

/// The stable version of the JSON report.
pub const SCHEMA_VERSION: &str = "1";

/// The results of a diagnosis. Every field is a key of the JSON report, unless it says otherwise.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The value of [`SCHEMA_VERSION`].
    pub schema_version: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict's exit code.
    pub exit_code: u8,
    /// The reason for the verdict, in one line.
    pub reason: String,
    /// What the user can do, the best first.
    pub remedies: Vec<Remedy>,
    /// The next steps; not in the JSON report.
    #[serde(skip)]
    pub next: Vec<NextStep>,
    /// The user's options; not in the JSON report.
    #[serde(skip)]
    pub policy: Policy,
    /// How several machines of the kind run a model that is too large for one.
    pub distribution: Option<Distribution>,
    /// The path and its files.
    pub input: InputSummary,
    /// The model; `None` when it could not be understood.
    pub model: Option<ModelSummary>,
    /// The adapters that were diagnosed with the model and belong to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<AdapterSummary>,
    /// The device that the model was judged for: `cpu`, `cuda:0`.
    pub device: String,
    /// Why this device was chosen.
    pub device_reason: String,
    /// The machine.
    pub hardware: Hardware,
    /// Every check, in the order they were made.
    pub checks: Vec<Check>,
    /// The memory plan; `None` if the model could not be understood, or the GPU does not exist.
    pub plan: Option<Plan>,
    /// An estimate of the decoding speed; `None` if the model does not run or no bandwidth is known, as for this machine.
    pub speed: Option<Speed>,
    /// Why sequences are computed in separate steps, without shared prefixes and speculation; `None` if they share
    /// steps, and if the model does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batching: Option<&'static str>,
    /// Number of tensors that would be stored in another dtype than the file's, which is always 0.
    pub casts: u64,
}

/// The path and the files there.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InputSummary {
    /// The path as the user gave it.
    pub path: String,
    /// The model of the Hub whose files these are.
    pub hub: Option<HubModel>,
    /// `gguf` or `safetensors`; `None` if not recognized.
    pub kind: Option<&'static str>,
    /// The weight files.
    pub files: Vec<InputFile>,
    /// The paths of the models, each of which names one, if there are several.
    pub candidates: Vec<String>,
    /// The diagnosis of each of them. A folder of several models is listed model by model; a subfolder that again holds
    /// several is a row with the verdict `ambiguous_input`, and not a candidate.
    pub models: Vec<Candidate>,
    /// Harmless oddities that the readers of the files found: a stray file, bytes after the last tensor.
    pub warnings: Vec<String>,
    /// Bytes read from the files for all of this; `None` if reading stopped early.
    pub header_bytes_read: Option<u64>,
}

/// One weight file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputFile {
    /// The name of the file in the model's folder.
    pub name: String,
    /// The length of the file.
    pub bytes: u64,
    /// The number of the part, from 1.
    pub part: usize,
    /// Whether the file exists.
    pub status: FileStatus,
}

/// Whether a file exists. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileStatus {
    /// The file exists.
    Present,
    /// The file is named or needed, and does not exist.
    Missing,
}

/// One check of the diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// A stable id: `dtype`, `memory`.
    pub id: &'static str,
    /// The outcome of the check.
    pub status: Status,
    /// The result in one line.
    pub summary: String,
    /// The evidence for the summary; empty if the summary says everything.
    pub evidence: String,
    /// What the user can do about it, the best first, which is the key `remedy` of the JSON report.
    #[serde(rename = "remedy", serialize_with = "first")]
    pub remedies: Vec<Remedy>,
    /// The verdict of the diagnosis if this check fails.
    #[serde(skip)]
    pub(crate) verdict: Option<Verdict>,
}

/// The outcome of a check. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The check found nothing to report.
    Pass,
    /// The model runs, and the user should know this.
    Warn,
    /// The model does not run.
    Fail,
    /// The check could not be made after an earlier failure.
    Skipped,
}

impl Report {
    /// The first line of the text: the verdict's word and the reason.
    pub fn first_line(&self) -> String {
        format!("{}: {}", self.verdict, self.reason)
    }

    /// The report as pretty JSON.
    pub fn to_json(&self) -> String {
        // Every key is a string and every number is finite or written as null, so this cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Format and dtype: `GGUF Q4_K_M`, `safetensors BF16`; `None` when the model could not be understood.
    pub fn stored_as(&self) -> Option<String> {
        self.model.as_ref().map(|model| stored_as(model, &self.input))
    }

    /// The check with this id.
    pub fn check(&self, id: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.id == id)
    }
}

impl InputSummary {
    /// A path about which nothing is known yet.
    pub fn unknown(path: &Path) -> InputSummary {
        InputSummary { path: path.display().to_string(), ..InputSummary::default() }
    }

    /// The total size of all files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    /// `GGUF` or `safetensors`, in its usual spelling.
    pub(crate) fn format_name(&self) -> &'static str {
        match self.kind {
            Some("gguf") => "GGUF",
            Some(kind) => kind,
            None => "unknown format",
        }
    }
}

impl From<&ModelSource> for InputSummary {
    fn from(source: &ModelSource) -> InputSummary {
        let kind = match source.format {
            Format::Gguf => "gguf",
            Format::Safetensors => "safetensors",
        };
        let files = source.files.iter().enumerate().map(|(index, file)| InputFile {
            name: file.path.strip_prefix(&source.folder).unwrap_or(&file.path).display().to_string(),
            bytes: file.bytes,
            part: index + 1,
            status: FileStatus::Present,
        });
        InputSummary { kind: Some(kind), files: files.collect(), ..InputSummary::unknown(&source.path) }
    }
}

impl From<&Header> for InputSummary {
    fn from(header: &Header) -> InputSummary {
        let warnings = header.warnings.clone();
        InputSummary { header_bytes_read: Some(header.bytes_read), warnings, ..InputSummary::from(&header.source) }
    }
}

/// `GGUF Q4_K_M`, `safetensors BF16`: the scheme if there is one, else the dtype that most bytes are stored in.
pub(crate) fn stored_as(model: &ModelSummary, input: &InputSummary) -> String {
    if model.quantization.starts_with(input.format_name()) {
        return model.quantization.clone();
    }
    let dtype = model.dtypes.first().map_or("empty", |summary| summary.dtype.name());
    match model.quantization.as_str() {
        "none" => format!("{} {dtype}", input.format_name()),
        scheme => format!("{} {scheme}", input.format_name()),
    }
}

/// The most characters of one line of the report; the longest of our own have a few hundred.
const LINE: usize = 2000;

/// `text` as one line that is safe to print in a terminal: it may quote names from a file, which may hold anything.
pub fn one_line(text: String) -> String {
    match text.char_indices().nth(LINE) {
        Some((end, _)) => escaped(&text[..end]) + " (shortened)",
        None => escaped(&text),
    }
}

fn first<S: Serializer>(remedies: &[Remedy], serializer: S) -> Result<S::Ok, S::Error> {
    remedies.first().serialize(serializer)
}

impl Check {
    pub(crate) fn new(id: &'static str, status: Status, summary: impl Into<String>) -> Check {
        let (summary, evidence) = (one_line(summary.into()), String::new());
        Check { id, status, summary, evidence, remedies: Vec::new(), verdict: None }
    }

    pub(crate) fn pass(id: &'static str, summary: impl Into<String>) -> Check {
        Check::new(id, Status::Pass, summary)
    }

    pub(crate) fn warn(id: &'static str, summary: impl Into<String>) -> Check {
        Check::new(id, Status::Warn, summary)
    }

    pub(crate) fn fail(id: &'static str, verdict: Verdict, summary: impl Into<String>) -> Check {
        Check { verdict: Some(verdict), ..Check::new(id, Status::Fail, summary) }
    }

    pub(crate) fn evidence(mut self, evidence: impl Into<String>) -> Check {
        self.evidence = one_line(evidence.into());
        self
    }

    /// Sets the remedies, the best first.
    pub(crate) fn remedies(mut self, remedies: impl IntoIterator<Item = impl Into<Remedy>>) -> Check {
        self.remedies = remedies.into_iter().map(Into::into).collect();
        self
    }
}
