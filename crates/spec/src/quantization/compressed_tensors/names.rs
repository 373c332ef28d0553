//! `targets` and `ignore`: lists of module names, class names and `re:` patterns.

use super::refusal;
use crate::error::Result;
use crate::header::config::Section;
use regex::{Regex, RegexBuilder};

/// Bytes a compiled pattern may take; real ones take a few thousand.
const PATTERN_BYTES: usize = 1 << 20;

/// What two dialects read differently inside of brackets: sets of sets.
const OTHER_DIALECT: &[&str] = &["[[", "&&", "--", "~~"];

/// One list.
#[derive(Debug)]
pub(in super::super) struct Names(Vec<Name>);

#[derive(Debug)]
struct Name {
    text: String,
    /// Of an entry that begins with `re:`.
    pattern: Option<Regex>,
}

impl Names {
    /// The list under `key`; absent is empty.
    ///
    /// # Errors
    /// `Format` when it is no list of strings, `Quantization` for a pattern that cannot be evaluated here.
    pub(super) fn read(section: &Section<'_>, key: &str) -> Result<Names> {
        let name = |text: Result<&str>| {
            let text = text?.to_owned();
            let expected = "one without look-around or references";
            let read = |body: &str| {
                Names::pattern(body).ok_or_else(|| refusal(section, key, &format!("the pattern {body:?}"), expected))
            };
            let pattern = text.strip_prefix("re:").map(read).transpose()?;
            Ok(Name { text, pattern })
        };
        section.strings(key)?.into_iter().flatten().map(name).collect::<Result<_>>().map(Names)
    }

    /// Only this class.
    pub(in super::super) fn class(name: &str) -> Names {
        Names(vec![Name { text: name.into(), pattern: None }])
    }

    /// Entries of this text, each with the pattern that it stands for.
    pub(in super::super) fn matching_patterns(names: Vec<(String, Regex)>) -> Names {
        Names(names.into_iter().map(|(text, pattern)| Name { text, pattern: Some(pattern) }).collect())
    }

    /// A pattern that matches from the start of a name, not necessarily to its end: Python's `re.match`. `None` where it cannot be
    /// evaluated here.
    pub(in super::super) fn pattern(body: &str) -> Option<Regex> {
        if OTHER_DIALECT.iter().any(|part| body.contains(part)) {
            return None;
        }
        // Once by itself, so that no parenthesis of it closes the group around it.
        let build = |text: &str| RegexBuilder::new(text).size_limit(PATTERN_BYTES).build();
        build(body).and_then(|_| build(&format!(r"\A(?:{body})"))).ok()
    }

    /// The first entry that names `module` or its `class`.
    pub(super) fn matching(&self, module: &str, class: &str) -> Option<&str> {
        self.0.iter().find(|name| name.rank(module, class).is_some()).map(|name| name.text.as_str())
    }

    /// How closely the closest entry names `module`: 0 by name, 1 by a pattern, 2 by class.
    pub(super) fn rank(&self, module: &str, class: &str) -> Option<u8> {
        self.0.iter().filter_map(|name| name.rank(module, class)).min()
    }
}

impl Name {
    fn rank(&self, module: &str, class: &str) -> Option<u8> {
        match &self.pattern {
            Some(pattern) => pattern.is_match(module).then_some(1),
            None if self.text == module => Some(0),
            None => (self.text == class).then_some(2),
        }
    }
}
