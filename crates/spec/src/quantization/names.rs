//! Lists of module names, class names and patterns: `targets`, `ignore`, `modules_to_not_convert`.

use super::foreign;
use crate::error::Result;
use crate::header::config::Section;
use regex::{Regex, RegexBuilder};
use std::collections::BTreeSet;

/// Bytes a compiled pattern may take; real ones take a few thousand.
const PATTERN_BYTES: usize = 1 << 20;

/// What two dialects read differently inside of brackets: sets of sets.
const OTHER_DIALECT: &[&str] = &["[[", "&&", "--", "~~"];

/// What patterns are evaluated.
const WITHOUT: &str = "one without look-around or references";

/// One list.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Names of modules and of classes.
    exact: BTreeSet<String>,
    /// The other entries, as they are written.
    patterns: Vec<(String, Regex)>,
}

impl Names {
    /// The lists under `keys`, each entry with the pattern whose `body` it has, if any; absent is empty.
    ///
    /// # Errors
    /// `Format` when one is no list of strings, `Quantization` for a pattern that cannot be evaluated here.
    pub(super) fn read(
        method: &str,
        section: &Section<'_>,
        keys: &[&str],
        body: impl Fn(&str) -> Option<String>,
    ) -> Result<Names> {
        let mut names = Names::none();
        for key in keys {
            for text in section.strings(key)?.into_iter().flatten() {
                let text = text?.to_owned();
                let found = format!("the pattern {text:?}");
                let refusal = || foreign::unsupported(method, section, key, &found, WITHOUT);
                let pattern = body(&text).map(|body| Names::pattern(&body).ok_or_else(refusal)).transpose()?;
                names.add(text, pattern);
            }
        }
        Ok(names)
    }

    /// No names.
    pub(super) fn none() -> Names {
        Names::default()
    }

    fn add(&mut self, text: String, pattern: Option<Regex>) {
        match pattern {
            Some(pattern) => self.patterns.push((text, pattern)),
            None => drop(self.exact.insert(text)),
        }
    }

    /// Only `text`, a key of `section`, or what its pattern `body` matches.
    ///
    /// # Errors
    /// `Quantization` for a pattern that cannot be evaluated here.
    pub(super) fn one(method: &str, section: &Section<'_>, text: &str, body: Option<&str>) -> Result<Names> {
        let refusal = || foreign::unsupported(method, section, text, "a pattern", WITHOUT);
        let pattern = body.map(|body| Names::pattern(body).ok_or_else(refusal)).transpose()?;
        let mut names = Names::none();
        names.add(text.to_owned(), pattern);
        Ok(names)
    }

    /// Only this class.
    pub(super) fn class(name: &str) -> Names {
        Names::of([name])
    }

    /// Only these classes and modules.
    pub(super) fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Names {
        Names { exact: names.into_iter().map(str::to_owned).collect(), patterns: Vec::new() }
    }

    /// A pattern that matches from the start of a name, not necessarily to its end: Python's `re.match`. `None` where it cannot be
    /// evaluated here.
    fn pattern(body: &str) -> Option<Regex> {
        if OTHER_DIALECT.iter().any(|part| body.contains(part)) {
            return None;
        }
        // Once by itself, so that no parenthesis of it closes the group around it.
        let build = |text: &str| RegexBuilder::new(text).size_limit(PATTERN_BYTES).build();
        build(body).and_then(|_| build(&format!(r"\A(?:{body})"))).ok()
    }

    /// The entry that names `module` or its `class` most closely.
    pub(super) fn matching(&self, module: &str, class: &str) -> Option<&str> {
        let (text, _) = self.closest(module, class)?;
        Some(text)
    }

    /// How closely the closest entry names `module`: 0 by name, 1 by a pattern, 2 by class.
    pub(super) fn rank(&self, module: &str, class: &str) -> Option<u8> {
        let (_, rank) = self.closest(module, class)?;
        Some(rank)
    }

    fn closest(&self, module: &str, class: &str) -> Option<(&str, u8)> {
        let exact = |name: &str, rank| self.exact.get(name).map(|text| (text.as_str(), rank));
        let pattern =
            || self.patterns.iter().find(|(_, pattern)| pattern.is_match(module)).map(|(text, _)| (text.as_str(), 1));
        exact(module, 0).or_else(pattern).or_else(|| exact(class, 2))
    }
}
