//! What the report's text is made of: labels, folded lines, and colours where `{:#}` asks for them.

use super::{Status, Verdict, plain};
use anstyle::{AnsiColor, Style};
use std::fmt::{self, Display, Formatter};

/// Columns of the text; a longer line is folded at its spaces.
pub(super) const WIDTH: usize = 100;

/// Width of the column of labels.
pub(super) const LABEL: usize = 11;

pub(super) const LABELS: Style = Style::new().bold();
pub(super) const COMMAND: Style = colour(AnsiColor::Cyan);
pub(super) const FAINT: Style = Style::new().dimmed();

pub(super) const fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(colour)))
}

/// `text` in `style` where the formatter is one for a terminal.
pub(super) fn paint(f: &Formatter<'_>, style: Style, text: impl Display) -> String {
    if f.alternate() { format!("{style}{text}{style:#}") } else { text.to_string() }
}

impl Verdict {
    pub(super) fn style(self) -> Style {
        let shade = match self {
            Verdict::Compatible => AnsiColor::Green,
            Verdict::CompatibleWithWarnings | Verdict::AmbiguousInput => AnsiColor::Yellow,
            _ => AnsiColor::Red,
        };
        colour(shade).bold()
    }
}

impl Status {
    pub(super) fn style(self) -> Style {
        match self {
            Status::Pass => colour(AnsiColor::Green),
            Status::Warn => colour(AnsiColor::Yellow).bold(),
            Status::Fail => colour(AnsiColor::Red).bold(),
            Status::Skipped => FAINT,
        }
    }
}

/// A value with its label in front, folded.
pub(super) fn row(f: &mut Formatter<'_>, label: &str, value: fmt::Arguments<'_>) -> fmt::Result {
    styled_row(f, LABELS, label, value)
}

/// The same with a label in `style`.
pub(super) fn styled_row(f: &mut Formatter<'_>, style: Style, label: &str, value: fmt::Arguments<'_>) -> fmt::Result {
    let value = plain(value.to_string());
    for (index, line) in fold(&value, WIDTH - LABEL).into_iter().enumerate() {
        painted_row(f, style, if index == 0 { label } else { "" }, line)?;
    }
    Ok(())
}

/// One line as it is, which may be painted and is never folded.
pub(super) fn painted_row(f: &mut Formatter<'_>, style: Style, label: &str, line: &str) -> fmt::Result {
    let padding = LABEL.saturating_sub(label.chars().count());
    let label = if label.is_empty() { String::new() } else { paint(f, style, label) };
    writeln!(f, "{label}{:padding$}{line}", "")
}

/// A row for each of `lines` under one label.
pub(super) fn list(f: &mut Formatter<'_>, label: &str, lines: &[String]) -> fmt::Result {
    for (index, line) in lines.iter().enumerate() {
        row(f, if index == 0 { label } else { "" }, format_args!("{line}"))?;
    }
    Ok(())
}

/// A note that shares its line with a figure.
pub(super) fn plain_note(note: &str, width: usize) -> String {
    shortened(&plain(note.into()), width)
}

/// `text` in lines of at most `width` characters, broken at single spaces; a longer word has a line of its own.
fn fold(text: &str, width: usize) -> Vec<&str> {
    let (mut lines, mut rest) = (Vec::new(), text);
    while rest.chars().count() > width {
        let end = rest.char_indices().nth(width).map_or(rest.len(), |(index, _)| index);
        // A space right behind the last column ends the line as well.
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

/// `text` in at most `width` characters, with its middle left out where it is longer: ends tell names apart.
pub(super) fn shortened(text: &str, width: usize) -> String {
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
