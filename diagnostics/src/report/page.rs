//! The parts of the report's text: labels, folded lines, and the tones and words of the program that shows it.

use super::{Remedy, Report, Status, Verdict, one_line};
use crate::hardware::Memory;
use std::fmt::{self, Display, Formatter, Write};

/// Columns of the text; a longer line is folded at its spaces.
pub(super) const WIDTH: usize = 100;

/// Width of the column of labels.
const LABEL: usize = 11;

/// A number of bytes in readable form: `4.58 GiB`, `12.0 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        let text = match self.0 {
            0..1024 => format!("{} B", self.0),
            1024..0x10_0000 => format!("{:.1} KiB", bytes / 1024.0),
            0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes / 1048576.0),
            _ => format!("{:.2} GiB", bytes / 1073741824.0),
        };
        f.pad(&text)
    }
}

/// A count with its noun: `1 file`, `3 files`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// The available memory in readable form: [`Bytes`], or that it is [not known](Memory::UNKNOWN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available(pub u64);

impl Display for Available {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Memory::UNKNOWN => f.pad("an unknown amount"),
            bytes => Bytes(bytes).fmt(f),
        }
    }
}

/// The meaning of a piece of text, for a program that shows colors; from `Weights` on they are parts of the memory bar. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of names that say it
pub enum Tone {
    Label,
    Command,
    /// Text of less importance.
    Faint,
    /// The model runs.
    Good,
    Warning,
    /// The model does not run.
    Bad,
    Weights,
    Cache,
    Activations,
    Rest,
    Missing,
}

/// How a program shows a report. The defaults are plain text without the options of any program.
pub trait Presentation {
    /// Returns `text` as it is shown in this tone.
    fn paint(&self, _tone: Tone, text: &str) -> String {
        text.to_owned()
    }

    /// Returns a remedy in the program's words.
    fn remedy(&self, remedy: &Remedy) -> String {
        remedy.to_string()
    }

    /// Returns command lines for the next steps.
    fn commands(&self, _report: &Report) -> Vec<String> {
        Vec::new()
    }

    /// Returns command lines that run the model by [`Report::distribution`].
    fn serving_commands(&self, _report: &Report) -> Vec<String> {
        Vec::new()
    }
}

/// Plain text, as `Display` writes it.
pub(super) struct Plain;

impl Presentation for Plain {}

impl Verdict {
    pub(super) fn tone(self) -> Tone {
        match self {
            Verdict::Compatible => Tone::Good,
            Verdict::CompatibleWithWarnings | Verdict::AmbiguousInput => Tone::Warning,
            _ => Tone::Bad,
        }
    }
}

impl Status {
    pub(super) fn tone(self) -> Tone {
        match self {
            Status::Pass => Tone::Good,
            Status::Warn => Tone::Warning,
            Status::Fail => Tone::Bad,
            Status::Skipped => Tone::Faint,
        }
    }
}

pub(super) struct Page<'a> {
    pub(super) text: String,
    pub(super) presentation: &'a dyn Presentation,
}

impl<'a> Page<'a> {
    pub(super) fn new(presentation: &'a dyn Presentation) -> Page<'a> {
        Page { text: String::new(), presentation }
    }

    pub(super) fn paint(&self, tone: Tone, text: impl Display) -> String {
        self.presentation.paint(tone, &text.to_string())
    }

    /// Writes one line unchanged.
    pub(super) fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// Writes a value after its label, folded.
    pub(super) fn row(&mut self, label: &str, value: impl Display) {
        self.toned_row(Tone::Label, label, value);
    }

    /// Writes a value after its label, which is shown in `tone`, folded.
    pub(super) fn toned_row(&mut self, tone: Tone, label: &str, value: impl Display) {
        let value = one_line(value.to_string());
        for (index, line) in fold(&value, WIDTH - LABEL).into_iter().enumerate() {
            self.painted_row(tone, if index == 0 { label } else { "" }, line);
        }
    }

    /// Writes one line unchanged, which may be painted and is never folded.
    pub(super) fn painted_row(&mut self, tone: Tone, label: &str, line: &str) {
        let padding = LABEL.saturating_sub(label.chars().count());
        let label = if label.is_empty() { String::new() } else { self.paint(tone, label) };
        self.line(format_args!("{label}{:padding$}{line}", ""));
    }

    /// Writes a row for each of `values` under one label.
    pub(super) fn rows(&mut self, label: &str, values: impl IntoIterator<Item = impl Display>) {
        for (index, value) in values.into_iter().enumerate() {
            self.row(if index == 0 { label } else { "" }, value);
        }
    }

    /// Writes command lines under one label, which are never folded.
    pub(super) fn commands(&mut self, label: &str, lines: Vec<String>) {
        for (index, line) in lines.into_iter().enumerate() {
            let line = self.paint(Tone::Command, one_line(line));
            self.painted_row(Tone::Label, if index == 0 { label } else { "" }, &line);
        }
    }
}

/// Splits `text` into lines of at most `width` characters at single spaces; a longer word has a line of its own.
fn fold(text: &str, width: usize) -> Vec<&str> {
    let (mut lines, mut rest) = (Vec::new(), text);
    while rest.chars().count() > width {
        let end = rest.char_indices().nth(width).map_or(rest.len(), |(index, _)| index);
        // A space right after the last column ends the line as well.
        let limit = (end + 1).min(rest.len());
        let within = rest.get(..limit).unwrap_or(&rest[..end]);
        let Some(cut) = within.rfind(' ').filter(|&cut| cut > 0).or_else(|| rest[end..].find(' ').map(|at| end + at))
        else {
            break;
        };
        lines.push(rest[..cut].trim_end());
        rest = rest[cut..].trim_start();
    }
    lines.push(rest);
    lines
}

/// `text` in at most `width` characters; longer text loses its middle, as the ends distinguish names.
pub fn shortened(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.into();
    }
    let (front, back) = ((width - 1) / 2, width / 2);
    text.chars().take(front).chain(['…']).chain(text.chars().skip(count - back)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_folded_at_spaces_and_lose_nothing() {
        for (text, lines) in [
            ("", vec![""]),
            ("one two", vec!["one two"]),
            ("one two three", vec!["one two", "three"]),
            ("one twoo three", vec!["one twoo", "three"]),
            ("unbreakable word", vec!["unbreakable", "word"]),
            ("a unbreakable", vec!["a", "unbreakable"]),
            ("größer als zwei", vec!["größer", "als zwei"]),
            ("unbreakable", vec!["unbreakable"]),
        ] {
            assert_eq!(fold(text, 8), lines, "{text}");
        }
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shortened("abcdefgh", 8), "abcdefgh");
        assert_eq!(shortened("abcdefghi", 8), "abc…fghi");
    }
}
