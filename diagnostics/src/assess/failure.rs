//! An error before the ModelSpec is known -> the same report, with what is known by then.

use super::conclude;
use crate::error::{Error, IncompleteKind};
use crate::hardware::Hardware;
use crate::policy::Policy;
use crate::report::{Check, FileStatus, InputFile, InputSummary, Report, Status, of_error};
use std::mem::take;

/// The checks in the order of the pipeline.
const CHECKS: &str = "input format integrity architecture tensors hardware environment dtype rope tokenizer template \
                      context memory";

/// Reports the error that ended the diagnosis of `input`.
pub(crate) fn assess_error(error: &Error, mut input: InputSummary, hardware: &Hardware, policy: &Policy) -> Report {
    match error {
        Error::Ambiguous { candidates, .. } => {
            input.candidates = candidates.iter().map(|path| path.display().to_string()).collect();
        }
        Error::Incomplete { kind: IncompleteKind::FileMissing { name, .. }, .. } => {
            let part = input.files.len() + 1;
            input.files.push(InputFile { name: name.clone(), bytes: 0, part, status: FileStatus::Missing });
        }
        _ => {}
    }
    let (verdict, failed) = of_error(error);
    let mut summary = match error {
        // The candidates are listed on lines of their own.
        Error::Ambiguous { path, candidates } => {
            format!("{} holds {} models; name one of them", path.display(), candidates.len())
        }
        other => other.to_string(),
    };
    let mut reached = true;
    let checks = CHECKS.split(' ').map(|id| {
        reached &= id != failed;
        // The stages run in this order, except that a quantization is recognized before tensors are looked at.
        match id {
            // A message may quote a hundred megabytes of a file, so it is moved and not copied.
            _ if id == failed => Check::fail(id, verdict, take(&mut summary)).remedies(error.remedy()),
            "input" if reached => Check::pass(id, "readable"),
            "format" if reached && input.kind.is_some() => Check::pass(id, input.format_name()),
            _ => Check::new(id, Status::Skipped, "not reached"),
        }
    });
    let checks = checks.collect();
    conclude(input, hardware, policy, checks, String::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ArchitectureErrorKind, FormatErrorKind};
    use crate::hardware::profiles::PROFILES;
    use crate::report::{Candidate, Remedy, Verdict};
    use std::path::{Path, PathBuf};

    fn report(error: &Error, kind: Option<&'static str>) -> Report {
        let input = InputSummary { kind, ..InputSummary::unknown(Path::new("models/x")) };
        assess_error(error, input, &PROFILES[0].hardware(), &Policy::default())
    }

    #[test]
    fn every_error_has_its_verdict_and_its_failed_check() {
        let file = PathBuf::from("models/x");
        let missing = FormatErrorKind::KeyMissing { key: "k".into(), needed_for: "the size is unknown without it" };
        let unknown = ArchitectureErrorKind::Unknown { found: "mamba".into(), supported: "llama".into(), hint: None };
        let part = IncompleteKind::FileMissing { name: "part-2".into(), why: "the index names it".into() };
        let tensor = IncompleteKind::TensorMissing { name: "lm_head".into(), nearest: Vec::new() };
        let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
        let cases = [
            (Error::io(&file, gone), Verdict::Unreadable, 1, "input"),
            (Error::format(&file, missing), Verdict::UnsupportedFormat, 10, "format"),
            (
                Error::Architecture { file: file.clone(), kind: unknown },
                Verdict::UnsupportedArchitecture,
                11,
                "architecture",
            ),
            (
                Error::Quantization { file: file.clone(), scheme: "AWQ".into(), why: "it would be cast".into() },
                Verdict::UnsupportedDtype,
                12,
                "dtype",
            ),
            (
                Error::UnknownTensors { file: file.clone(), family: "llama", names: vec!["output.scale".into()] },
                Verdict::UnsupportedDtype,
                12,
                "tensors",
            ),
            (Error::incomplete(&file, part), Verdict::IncompleteOrCorrupt, 15, "integrity"),
            (Error::incomplete(&file, tensor), Verdict::IncompleteOrCorrupt, 15, "tensors"),
            (
                Error::Ambiguous { path: file.clone(), candidates: vec!["a".into(), "b".into()] },
                Verdict::AmbiguousInput,
                16,
                "input",
            ),
        ];
        for (error, verdict, code, failed) in &cases {
            let report = report(error, Some("gguf"));
            assert_eq!((report.verdict, report.exit_code, error.exit_code()), (*verdict, *code, *code), "{error}");
            let ids: Vec<_> = report.checks.iter().map(|check| check.id).collect();
            assert_eq!(ids.join(" "), CHECKS);
            let fails = report.checks.iter().filter(|check| check.status == Status::Fail).map(|check| check.id);
            assert_eq!(fails.collect::<Vec<_>>(), [*failed], "{error}");
            assert!(report.model.is_none() && report.plan.is_none());
        }
    }

    #[test]
    fn a_malformed_file_has_the_remedy_of_its_fault() {
        use FormatErrorKind as Kind;
        let key = || "rope_theta".to_owned();
        let cases: [(Kind, &[&str]); 9] = [
            (
                Kind::KeyType { key: key(), found: "a text".into(), expected: "a number" },
                &["correct the key rope_theta in config.json, or get another copy of the file"],
            ),
            (
                Kind::KeyValue { key: key(), found: "-1".into(), expected: "a number above 0".into() },
                &["correct the key rope_theta in config.json, or get another copy of the file"],
            ),
            (Kind::KeyValue { key: key(), found: "x".into(), expected: "y; save z for another".into() }, &[]),
            (
                Kind::KeyMissing { key: key(), needed_for: "it cannot be derived" },
                &["add the key rope_theta to config.json, or get another copy of the file"],
            ),
            (Kind::KeyMissing { key: key(), needed_for: "x is not told; save y" }, &[]),
            (
                Kind::Json { message: "a comma is missing".into() },
                &["correct the JSON of config.json, or get another copy of the file"],
            ),
            (Kind::OtherTokenizer { what: "a tiktoken vocabulary", remedy: "get tokenizer.json" }, &[]),
            (Kind::EmptyFile, &[]),
            (
                Kind::Unrecognised { found: "00 01".into() },
                &["if this is meant to be a model, fetch the file again and compare its size with the source's"],
            ),
        ];
        for (kind, remedies) in cases {
            let error = Error::format(Path::new("models/x/config.json"), kind);
            let found: Vec<_> = report(&error, Some("safetensors")).remedies.iter().map(Remedy::to_string).collect();
            assert_eq!(found, remedies, "{error}");
        }
    }

    /// All parts have to be from one revision.
    #[test]
    fn a_truncated_file_is_fetched_again_and_parts_of_one_revision() {
        let kind = || IncompleteKind::DataTruncated { name: "output.weight".into(), have: 1, need: 2 };
        let remedies = |file: &str| {
            let report = report(&Error::incomplete(Path::new(file), kind()), Some("gguf"));
            report.remedies.iter().map(Remedy::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            remedies("models/x.gguf"),
            ["fetch x.gguf again, or continue its download: 1 of 2 bytes are missing"]
        );
        let parts = ["fetch the model's files again, all from one revision"];
        assert_eq!(remedies("models/x-00001-of-00002.gguf"), parts);
    }

    #[test]
    fn several_models_are_listed_one_a_line() {
        let candidates = vec!["models/a.gguf".into(), "models/long-name.gguf".into()];
        let error = Error::Ambiguous { path: "models".into(), candidates };
        let mut report = report(&error, None);
        let model = Candidate {
            path: "models/a.gguf".into(),
            verdict: Verdict::Compatible,
            exit_code: 0,
            reason: "A runs".into(),
            bytes: Some(5 << 20),
            stored_as: Some("GGUF Q8_0".into()),
            context: Some(512),
            context_trained: Some(2048),
        };
        let refused = Candidate {
            path: "models/long-name.gguf".into(),
            verdict: Verdict::UnsupportedFormat,
            exit_code: 10,
            reason: "models/long-name.gguf: not recognised".into(),
            bytes: None,
            stored_as: None,
            context: None,
            context_trained: None,
        };
        report.input.models = vec![model, refused];
        insta::assert_snapshot!(report, @r"
        ambiguous_input: models holds 2 models; name one of them

        model                  verdict                size  stored as  context
        models/a.gguf          compatible          5.0 MiB  GGUF Q8_0  512 of 2048
        models/long-name.gguf  unsupported_format                      not recognised
        remedies   give the path of one model, such as models/a.gguf
        ");
    }

    #[test]
    fn a_missing_part_is_listed_as_missing() {
        let part = IncompleteKind::FileMissing { name: "model-2.safetensors".into(), why: "the index names it".into() };
        let report = report(&Error::incomplete(Path::new("models/x"), part), Some("safetensors"));
        assert_eq!(report.input.files.last().map(|file| file.status), Some(FileStatus::Missing));
        insta::assert_snapshot!(report, @r"
        incomplete_or_corrupt: models/x: model-2.safetensors is missing: the index names it

        input      models/x (safetensors)
                   missing: model-2.safetensors
        remedies   put model-2.safetensors into the model's folder
        ");
    }
}
