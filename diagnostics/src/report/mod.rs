//! What a diagnosis found, for people (`Display`) and for tools (JSON, `schema_version` "1").

mod candidate;
mod devices;
mod distribution;
mod memory;
mod model;
mod page;
mod remedy;
mod text;
mod verdict;

pub use candidate::Candidate;
pub use devices::{DeviceList, DeviceTiers};
pub use distribution::{Distribution, ServingEngine, Share};
pub use model::{
    DtypeSummary, EmbedsSummary, ExpertSummary, LayerBytes, MixerSummary, ModelSummary, RopeSummary, TokenizerSummary,
    WindowSummary,
};
pub use model_factory_format::HubModel;
pub use model_factory_format::error::escaped;
pub use page::{Available, Bytes, Presentation, Tone, shortened};
pub use remedy::{NextStep, Remedy};
pub use verdict::Verdict;
pub(crate) use verdict::of_error;

pub(crate) use model::roles;
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

/// What a diagnosis found. Every field is a key of the JSON report.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: &'static str,
    /// What it comes to.
    pub verdict: Verdict,
    /// The verdict's exit code.
    pub exit_code: u8,
    /// One line: why.
    pub reason: String,
    /// What the user can do, the best first.
    pub remedies: Vec<Remedy>,
    /// What goes on from here; not in the JSON report.
    #[serde(skip)]
    pub next: Vec<NextStep>,
    /// What was asked for; not in the JSON report.
    #[serde(skip)]
    pub policy: Policy,
    /// Where the model runs when it is too large for the machine: several of its kind.
    pub distribution: Option<Distribution>,
    /// The path and its files.
    pub input: InputSummary,
    /// The model; `None` when it could not be understood.
    pub model: Option<ModelSummary>,
    /// What the model was judged for: `cpu`, `cuda:0`.
    pub device: String,
    /// Why it was that one.
    pub device_reason: String,
    /// The machine.
    pub hardware: Hardware,
    /// Every check, in the order they were made.
    pub checks: Vec<Check>,
    /// The memory plan; `None` when the model could not be understood, or the GPU is not there.
    pub plan: Option<Plan>,
    /// How fast it decodes, about; `None` where it does not run or no bandwidth is known, as of this machine.
    pub speed: Option<Speed>,
    /// Why sequences are computed in steps of their own, without shared prefixes and speculation; `None` where they share
    /// steps, and where the model does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batching: Option<&'static str>,
    /// Number of tensors that would be stored in another dtype than the file's: 0, always.
    pub casts: u64,
}

/// The path and what lies there.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InputSummary {
    /// As the user gave it.
    pub path: String,
    /// The model of the Hub whose files these are.
    pub hub: Option<HubModel>,
    /// `gguf`, `safetensors`; `None` when not recognised.
    pub kind: Option<&'static str>,
    /// The weight files.
    pub files: Vec<InputFile>,
    /// Several models at the path: their paths, each of which names one.
    pub candidates: Vec<String>,
    /// What each of them comes to. A folder of several models is listed model by model; one within it that holds several
    /// again is a row with the verdict `ambiguous_input`, and no candidate.
    pub models: Vec<Candidate>,
    /// What the readers of the files found odd and harmless: a stray file, bytes after the last tensor.
    pub warnings: Vec<String>,
    /// Bytes read from the files to learn all of this; `None` when reading stopped early.
    pub header_bytes_read: Option<u64>,
}

/// One weight file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputFile {
    /// Its name in the model's folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its place among the parts, from 1.
    pub part: usize,
    /// Whether it is there.
    pub status: FileStatus,
}

/// Whether a file is there. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileStatus {
    /// It is.
    Present,
    /// It is named or needed, and not there.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// A stable word: `dtype`, `memory`.
    pub id: &'static str,
    /// How it went.
    pub status: Status,
    /// One line.
    pub summary: String,
    /// What the summary rests on; empty when it says all.
    pub evidence: String,
    /// What the user can do about it, the best first, which is the key `remedy` of the JSON report.
    #[serde(rename = "remedy", serialize_with = "first")]
    pub remedies: Vec<Remedy>,
    /// What the whole comes to when this check fails.
    #[serde(skip)]
    pub(crate) verdict: Option<Verdict>,
}

/// How a check went. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing to say.
    Pass,
    /// It runs; this is worth knowing.
    Warn,
    /// It does not run.
    Fail,
    /// An earlier check left nothing to look at.
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
    /// A path of which nothing is known yet.
    pub fn unknown(path: &Path) -> InputSummary {
        InputSummary { path: path.display().to_string(), ..InputSummary::default() }
    }

    /// The files of all parts together, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    /// `GGUF`, `safetensors` as people write it.
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

/// `GGUF Q4_K_M`, `safetensors BF16`: the scheme where there is one, else the dtype most bytes are stored in.
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

/// Characters of one line of the report; the longest of our own have a few hundred.
const LINE: usize = 2000;

/// `text` as one line that a terminal only shows: it may quote names from a file, and those may be anything.
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

    /// The best remedy first.
    pub(crate) fn remedies(mut self, remedies: impl IntoIterator<Item = impl Into<Remedy>>) -> Check {
        self.remedies = remedies.into_iter().map(Into::into).collect();
        self
    }
}
