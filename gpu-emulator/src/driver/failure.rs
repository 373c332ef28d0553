//! Failures on demand: the n-th call of a function, or of any, returns a code.

use super::code::Code;
use super::settings::setting;
use std::collections::BTreeMap;

pub(super) const ANY: &str = "*";

#[derive(Debug, Default)]
pub(super) struct Failures {
    calls: BTreeMap<&'static str, u64>,
    total: u64,
    /// A function, the calls before the one that fails, and its code.
    pub(super) planned: Option<(String, u64, Code)>,
}

impl Failures {
    /// The plan of `GPU_EMULATOR_FAIL`: `FUNCTION:CALLS:CODE`, as in [`plan`](Self::plan).
    pub(super) fn of_environment() -> Result<Failures, String> {
        let expected = "FUNCTION:CALLS:CODE, like cuMemAlloc_v2:3:2";
        setting("GPU_EMULATOR_FAIL", Failures::default(), expected, |value| {
            let [function, calls, code] = value.split(':').collect::<Vec<_>>()[..] else { return None };
            let mut failures = Failures::default();
            failures.plan(function, calls.parse().ok()?, Code(code.parse().ok()?));
            Some(failures)
        })
    }

    /// After `calls` more calls of `function`, or of all for [`ANY`], the next returns `code`, once. Replaces an earlier
    /// plan; the code 0 plans nothing.
    pub(super) fn plan(&mut self, function: &str, calls: u64, code: Code) {
        self.planned = (code.0 != 0).then(|| (function.to_owned(), calls, code));
    }

    pub(super) fn calls(&self, function: &str) -> u64 {
        if function == ANY { self.total } else { self.calls.get(function).copied().unwrap_or(0) }
    }

    /// Counts a call, and returns its code if it is to fail.
    pub(super) fn count(&mut self, function: &'static str) -> Option<Code> {
        *self.calls.entry(function).or_default() += 1;
        self.total += 1;
        let (_, left, _) = self.planned.as_mut().filter(|(planned, ..)| [function, ANY].contains(&planned.as_str()))?;
        match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                None
            }
            None => self.planned.take().map(|(.., code)| code),
        }
    }
}
