//! Which value a layer has, where a key of PEFT gives some layers other ones.

use super::shortened;
use crate::error::{Error, FormatErrorKind, Result};
use crate::header::config::Section;
use regex::{Regex, RegexBuilder};
use serde_json::Value;
use std::path::Path;

/// The most patterns of one key: a model has fewer linear layers of one kind.
const MOST: usize = 1 << 12;

/// Bytes of a compiled pattern: a name takes some hundred, and what matches numbers some thousand.
const COMPILED: usize = 1 << 16;

/// A key's values by the names of layers, which are regular expressions that match a name's end.
pub(super) struct Patterns<T>(Vec<(Regex, T)>);

impl<T: Copy> Patterns<T> {
    /// The values of `section`; none where it is absent.
    pub(super) fn read(
        file: &Path,
        key: &'static str,
        section: Option<Section<'_>>,
        value: impl Fn(&Value) -> Option<T>,
        expected: &'static str,
    ) -> Result<Patterns<T>> {
        let Some(section) = section else { return Ok(Patterns(Vec::new())) };
        let found = section.object().len();
        if found > MOST {
            let kind =
                FormatErrorKind::TooMany { what: "the patterns of this key", found: found as u64, limit: MOST as u64 };
            return Err(Error::format(file, kind));
        }
        let each = section.object().iter().map(|(name, found)| {
            let place = format!("{key}.{}", shortened(name));
            let found = value(found).ok_or_else(|| crate::header::config::wrong_type(file, &place, found, expected))?;
            // PEFT's get_pattern_key.
            let pattern = RegexBuilder::new(&format!(r"^(?:.*\.)?(?:{name})$")).size_limit(COMPILED).build();
            let pattern = pattern.map_err(|_| {
                let expected = "a layer's name, or a regular expression without look-around and references";
                Error::key_value(file, key, shortened(name), expected)
            })?;
            Ok((pattern, found))
        });
        each.collect::<Result<_>>().map(Patterns)
    }

    /// The value of the first pattern that matches the name of a layer.
    pub(super) fn of(&self, module: &str) -> Option<T> {
        self.0.iter().find(|(pattern, _)| pattern.is_match(module)).map(|(_, value)| *value)
    }
}
