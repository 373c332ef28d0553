//! The table of inputs: a folder is made, diagnosed and judged at once; all failures are reported together.

use crate::build::Tree;
use model_factory_diagnostics::hardware::profiles::Profile;
use model_factory_diagnostics::{Policy, Report, diagnose};
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest that one input may take: many times what the slowest takes, so that a busy machine passes and a loop does not.
pub const MOST: Duration = Duration::from_secs(60);

/// Diagnoses `path` on a described machine, so that no result depends on the machine of the test.
pub fn judge(path: &Path) -> Report {
    judge_by(path, &Policy::default())
}

fn judge_by(path: &Path, policy: &Policy) -> Report {
    diagnose(path, &Profile::find("cpu-8gb").unwrap().hardware(), policy)
}

/// What was judged so far.
#[derive(Default)]
pub struct Table {
    names: HashSet<String>,
    refused: usize,
    failures: Vec<String>,
    /// Whether the tower of what is judged is asked for.
    pub vision: bool,
}

impl Table {
    /// `name` in `tree` must be refused with `code` and an error that has all of `says` in it.
    pub fn refuses(&mut self, case: &str, tree: &Tree, name: &str, code: u8, says: &[&str]) {
        self.refused += 1;
        let report = self.judge(case, tree, name);
        let (found, line) = (report.exit_code, report.first_line());
        let silent: Vec<_> = says.iter().filter(|part| !line.contains(**part)).collect();
        if found != code || !silent.is_empty() || line.contains('\n') {
            self.failures.push(format!("{case}: expected {code} with {silent:?}, found {found}: {line}"));
        }
    }

    /// `name` in `tree` must run: what the cases around it damage is sound.
    pub fn accepts(&mut self, case: &str, tree: &Tree, name: &str) {
        let report = self.judge(case, tree, name);
        if !report.verdict.runs() {
            self.failures.push(format!("{case}: expected to run, found {}", report.first_line()));
        }
    }

    fn judge(&mut self, case: &str, tree: &Tree, name: &str) -> Report {
        let start = Instant::now();
        let report = judge_by(&tree.path(name), &Policy { vision: self.vision, ..Policy::default() });
        if start.elapsed() > MOST {
            self.failures.push(format!("{case}: took {:?}", start.elapsed()));
        }
        if !self.names.insert(case.to_owned()) {
            self.failures.push(format!("{case}: the name appears twice"));
        }
        report
    }

    /// The number of inputs that were refused as expected; panics with every one that was not.
    pub fn finish(self) -> usize {
        assert!(self.failures.is_empty(), "{} inputs failed:\n{}", self.failures.len(), self.failures.join("\n"));
        self.refused
    }
}
