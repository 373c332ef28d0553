//! The date and time that a template sees.

use crate::error::ChatError;
use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A date and a time of day where the caller is. Its text, also in JSON, is ISO 8601 without a time zone:
/// `2026-01-31T12:00:00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LocalTime(DateTime);

impl LocalTime {
    /// The machine's local date and time.
    pub fn now() -> LocalTime {
        LocalTime(jiff::Zoned::now().datetime())
    }

    /// The text by `format`, as in `strftime`.
    pub(super) fn format(self, format: &str) -> Result<String, jiff::Error> {
        jiff::fmt::strtime::format(format, self.0)
    }
}

impl FromStr for LocalTime {
    type Err = ChatError;

    fn from_str(text: &str) -> Result<LocalTime, ChatError> {
        text.parse().map(LocalTime).map_err(|_| ChatError::Time { text: text.to_owned() })
    }
}

impl TryFrom<String> for LocalTime {
    type Error = ChatError;

    fn try_from(text: String) -> Result<LocalTime, ChatError> {
        text.parse()
    }
}

impl From<LocalTime> for String {
    fn from(time: LocalTime) -> String {
        time.to_string()
    }
}

impl fmt::Display for LocalTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
