//! The models of a folder -> a table, one line a model.

use super::page::{Page, Tone, WIDTH, counted, shortened};
use super::{Bytes, InputSummary, NextStep, Report, Verdict, one_line};
use serde::Serialize;

/// One of several models at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Candidate {
    /// The path of the model.
    pub path: String,
    /// The verdict of its own diagnosis.
    pub verdict: Verdict,
    /// The verdict's exit code.
    pub exit_code: u8,
    /// The verdict's reason.
    pub reason: String,
    /// The total size of its weight files in bytes; `None` if it is not known.
    pub bytes: Option<u64>,
    /// Format and dtype: `GGUF Q4_K_M`; `None` if they are not known.
    pub stored_as: Option<String>,
    /// Tokens of context that fit; `None` if the model does not run.
    pub context: Option<usize>,
    /// Tokens of context that it was trained for.
    pub context_trained: Option<usize>,
}

impl From<&Report> for Candidate {
    fn from(report: &Report) -> Candidate {
        let Report { verdict, exit_code, reason, input, model, plan, .. } = report;
        Candidate {
            path: input.path.clone(),
            verdict: *verdict,
            exit_code: *exit_code,
            reason: reason.clone(),
            bytes: Some(input.bytes()).filter(|&bytes| bytes > 0),
            stored_as: report.stored_as(),
            context: plan.as_ref().filter(|_| verdict.runs()).map(|plan| plan.context),
            context_trained: model.as_ref().map(|model| model.context_trained),
        }
    }
}

impl Report {
    /// Makes this the report of a path with these models. It counts the rows of its table, and names one model: the
    /// largest that runs, or else the first.
    pub(crate) fn hold(&mut self, models: Vec<Candidate>) {
        let (folders, ones): (Vec<_>, Vec<_>) =
            models.iter().partition(|model| model.verdict == Verdict::AmbiguousInput);
        let one_of = counted(ones.len(), "model");
        let more = match folders.len() {
            0 => String::new(),
            count => format!(" and {} of several", counted(count, "folder")),
        };
        let reason = format!("{} holds {one_of}{more}; name one of them", self.input.path);
        for check in self.checks.iter_mut().filter(|check| check.summary == self.reason) {
            check.summary.clone_from(&reason);
        }
        let runs = ones.iter().filter(|model| model.verdict.runs()).max_by_key(|model| model.bytes);
        let named = runs.or(ones.first());
        self.remedies = match (named, folders.first()) {
            (Some(model), _) => vec![format!("give the path of one model, such as {}", model.path).into()],
            (None, Some(folder)) => vec![format!("give the path of one model in {}", folder.path).into()],
            (None, None) => Vec::new(),
        };
        for check in self.checks.iter_mut().filter(|check| !check.remedies.is_empty()) {
            check.remedies.clone_from(&self.remedies);
        }
        let named = named.or(folders.first());
        let index = named.and_then(|named| models.iter().position(|model| std::ptr::eq(model, *named)));
        self.next = index.map(NextStep::OneOf).into_iter().collect();
        self.input.candidates = ones.iter().map(|model| model.path.clone()).collect();
        self.reason = reason;
        self.input.models = models;
    }
}

/// The most columns of a name and of a dtype, and the fewest of the description of a model.
const NAME: usize = 36;
const DTYPE: usize = 28;
const SAID: usize = 32;

pub(super) fn table(input: &InputSummary, page: &mut Page<'_>) {
    let rows: Vec<[String; 4]> = input.models.iter().map(|model| model.cells(&input.path)).collect();
    let width = |column: usize, head: &str| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head.len()]).max().unwrap_or(0)
    };
    let verdict = input.models.iter().map(|model| model.verdict.word().len()).max().unwrap_or(0);
    let widths = [width(0, "model"), width(1, "size"), width(2, "stored as")];
    let [name, size, dtype] = widths;
    let head =
        format!("{:<name$}  {:<verdict$}  {:>size$}  {:<dtype$}  context", "model", "verdict", "size", "stored as");
    page.line(page.paint(Tone::Faint, head));
    for (model, [path, bytes, stored, said]) in input.models.iter().zip(&rows) {
        let word = page.paint(model.verdict.tone(), format_args!("{:<verdict$}", model.verdict));
        let room = WIDTH.saturating_sub(name + verdict + size + dtype + 8).max(SAID);
        let said = beginning(said, room);
        let line = format!("{path:<name$}  {word}  {bytes:>size$}  {stored:<dtype$}  {said}");
        page.line(line.trim_end());
    }
}

impl Candidate {
    /// The cells: name, size, dtype, and the context or else the reason.
    fn cells(&self, folder: &str) -> [String; 4] {
        let name = self.path.strip_prefix(folder).map_or(self.path.as_str(), |name| name.trim_start_matches('/'));
        let said = match (self.context, self.context_trained) {
            (Some(context), Some(trained)) => format!("{context} of {trained}"),
            // The reason begins with the path, which is already in the line.
            _ => match self.reason.strip_prefix(&self.path) {
                Some(rest) => rest.split_once(": ").map_or(rest, |(_, reason)| reason).to_owned(),
                // The verdict already says that it would be a cast.
                None => self.reason.split_once(" would need a cast: ").map_or(&*self.reason, |(_, why)| why).to_owned(),
            },
        };
        // A scheme may continue with how it is applied; the format is shown if the line has room for it.
        let stored_as = self.stored_as.as_deref().unwrap_or_default();
        let scheme = stored_as.split(':').next().unwrap_or_default();
        let scheme = scheme.strip_prefix("safetensors ").filter(|_| scheme.len() > DTYPE).unwrap_or(scheme);
        [
            shortened(&one_line(name.to_owned()), NAME),
            self.bytes.map_or_else(String::new, |bytes| Bytes(bytes).to_string()),
            shortened(scheme, DTYPE),
            said,
        ]
    }
}

/// The first `width` characters of `text`, with a mark if there are more.
fn beginning(text: &str, width: usize) -> String {
    if text.chars().count() <= width { text.into() } else { text.chars().take(width - 1).chain(['…']).collect() }
}
