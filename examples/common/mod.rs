//! Code that the examples share: the bundled model, parsing of options, output, and exit on errors.
#![allow(dead_code)] // each example uses only a part

pub(crate) mod shell;

use model_factory::diagnostics::hardware::profiles::Profile;
use model_factory::diagnostics::report::escaped;
use model_factory::error::ChatError;
use model_factory::kernels::Isa;
use model_factory::load::Stage;
use model_factory::{DeviceChoice, Error, Message, Progress, Verdict};
use shell::Shell;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// The model in this repository, used without a path; the published crate has it in one format.
pub(crate) fn bundled() -> PathBuf {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = fixtures.join("demo");
    if folder.exists() { folder } else { fixtures.join("demo-q4_k_m.gguf") }
}

/// The encoder in this repository, as the demo model makes no vectors.
#[allow(dead_code)] // only used by examples that embed
pub(crate) fn encoder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/embeddings/bert")
}

/// The lines of the file at `path` that are not blank.
#[allow(dead_code)] // only used by examples that read texts
pub(crate) fn lines(path: &Path) -> Result<Vec<String>, Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source: Arc::new(source) };
    let file = std::fs::read_to_string(path).map_err(failed)?;
    Ok(file.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
}

/// Parses the name of instruction sets, for an option.
pub(crate) fn isa(name: &str) -> Result<Isa, String> {
    Isa::named(name).ok_or_else(|| {
        let here: Vec<_> = Isa::available().into_iter().map(Isa::name).collect();
        format!("this machine has {}", here.join(", "))
    })
}

/// Parses a device of this machine, for an option.
pub(crate) fn device(text: &str) -> Result<DeviceChoice, String> {
    text.parse().map_err(|error| match Profile::find(&text.to_ascii_lowercase()) {
        Some(profile) => format!("{error}; {} is a described machine, for diagnose only", profile.name),
        None => format!("{error}"),
    })
}

/// Parses an adapter `PATH[:SCALE]`, for an option: a colon is the path's own unless a number follows it.
pub(crate) fn lora(text: &str) -> Result<(PathBuf, f64), String> {
    let scaled = text.rsplit_once(':').and_then(|(path, scale)| Some((path, scale.parse::<f64>().ok()?)));
    match scaled {
        Some((_, scale)) if !scale.is_finite() => Err(format!("the factor is {scale}, expected a finite number")),
        Some((path, scale)) => Ok((path.into(), scale)),
        None => Ok((text.into(), 1.0)),
    }
}

/// Parses a count of at least 1, for an option.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&count| count > 0).ok_or_else(|| "expected a number from 1 up".into())
}

/// Parses a number that may be 0, for an option.
pub(crate) fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a number from 0 up".into())
}

/// The messages of a file.
#[derive(Clone)]
pub(crate) struct Messages(pub(crate) Vec<Message>);

/// Reads the messages of the file at `path`, for an option.
pub(crate) fn messages(path: &str) -> Result<Messages, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map(Messages).map_err(|error| format!("expected a JSON list of messages: {error}"))
}

/// Writes `text` to standard output at once.
///
/// # Errors
/// `Io`, which [`fail`] takes for the normal end if nobody reads on.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let io = |source| Error::Io { path: "standard output".into(), source: Arc::new(source) };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).map_err(io)?;
    out.flush().map_err(io)
}

/// Writes `text` and a line end to standard error; failing to write is ignored. The text may quote strings of a
/// file, so control characters are escaped.
pub(crate) fn tell(text: impl Display) {
    let lines: Vec<String> = text.to_string().trim_end().lines().map(escaped).collect();
    let _ = std::io::stderr().write_all(format!("{}\n", lines.join("\n")).as_bytes());
}

/// Shows the progress of a download, or of an upload to a GPU, on one line of a terminal; a log gets none.
pub(crate) fn show(progress: Progress) {
    let mut out = std::io::stderr().lock();
    if matches!(progress.stage, Stage::Download | Stage::Reading | Stage::Upload) && out.is_terminal() {
        let percent = u128::from(progress.bytes_done) * 100 / u128::from(progress.bytes_total.max(1));
        let megabytes = progress.bytes_total.div_ceil(1_000_000);
        let end = if progress.bytes_done == progress.bytes_total { "\n" } else { "" };
        let _ = out.write_all(format!("\r{} {percent} % of {megabytes} MB{end}", progress.stage).as_bytes());
    }
}

/// Reports why a program ends and returns its exit code. A refusal shows its whole report, unless the path cannot be read:
/// then there is nothing to report.
pub(crate) fn fail(error: &Error) -> ExitCode {
    match error {
        // The reader of our output has seen enough.
        Error::Io { source, .. } if source.kind() == ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Error::Refused(report) if report.verdict == Verdict::Unreadable => {
            tell(format_args!("error: {}", report.reason));
        }
        Error::Refused(report) => tell(report.text(&Shell { colours: false })),
        Error::Option { option, value, expected } => {
            let option = match *option {
                "repetition_penalty" => "repeat-penalty".into(),
                "context_length" => "context".into(),
                option => option.replace('_', "-"),
            };
            tell(format_args!("error: --{option} is {value}, expected {expected}"));
        }
        Error::Chat(ChatError::NoTemplate | ChatError::Template { .. } | ChatError::Limit { .. }) => {
            tell(format_args!("error: {error} (--prompt)"));
        }
        error => tell(format_args!("error: {error}")),
    }
    ExitCode::from(error.code())
}

/// A line of `/proc/self/status` in bytes: `VmHWM` is the peak resident size, `RssAnon` the anonymous part. `None`
/// where the system has no such file.
pub(crate) fn process_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
