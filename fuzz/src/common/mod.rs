//! What the targets share: a header made in memory, and everything that comes after one.

pub mod json;
pub mod random;
pub mod sections;
pub mod steps;

use model_factory::tokenizer::Tokenizer;
use model_factory_diagnostics::error::{Error, IncompleteKind};
use model_factory_diagnostics::family::REGISTRY;
use model_factory_diagnostics::hardware::profiles::PROFILES;
use model_factory_diagnostics::header::{Header, Metadata, TensorTable};
use model_factory_diagnostics::report::InputSummary;
use model_factory_diagnostics::source::{Format, ModelSource, SourceFile};
use model_factory_diagnostics::{Policy, Report, assess, spec};
use random::Random;
use std::path::Path;
use std::sync::OnceLock;

/// A reader of files.
pub struct Target {
    pub name: &'static str,
    /// Ends by a panic where the reader is wrong.
    pub run: fn(&[u8]),
    /// Another input made of one, of at most as many bytes as the second argument says.
    pub mutate: fn(&[u8], usize, &mut Random, &mut Bytes) -> Vec<u8>,
    /// Bytes of its longest input.
    pub longest: usize,
}

/// What changes bytes, to at most as many as its second argument says.
pub type Bytes<'m> = dyn FnMut(&mut Vec<u8>, usize) + 'm;

/// Another input by its bytes, whatever they mean.
pub fn any_bytes(input: &[u8], longest: usize, _random: &mut Random, bytes: &mut Bytes) -> Vec<u8> {
    let mut input = input[..input.len().min(longest)].to_vec();
    bytes(&mut input, longest);
    input
}

/// The header of a model of one file `name` with `bytes` bytes.
pub fn header(format: Format, name: &str, bytes: u64, tensors: TensorTable, metadata: Metadata) -> Header {
    assert!(tensors.values().all(|tensor| tensor.offset + tensor.bytes <= bytes));
    let files = vec![SourceFile { path: name.into(), bytes }];
    let source = ModelSource {
        path: name.into(),
        format,
        folder: Path::new("").into(),
        files,
        index: None,
        projector: None,
        notes: Vec::new(),
    };
    Header {
        source,
        tensors,
        metadata,
        bytes_read: 0,
        warnings: Vec::new(),
        projector: None,
        tokenizer: OnceLock::new(),
    }
}

/// What `parse` makes of a file of `len` bytes, and how long the file is then: a header alone stands for the file that it
/// begins, so that inputs stay small. `None` where it is refused.
pub fn parsed<F>(len: usize, parse: impl Fn(u64) -> Result<F, Error>) -> Option<(F, u64)> {
    let mut len = len as u64;
    let mut parsed = parse(len);
    if let Err(Error::Incomplete { kind: IncompleteKind::DataTruncated { need, .. }, .. }) = &parsed {
        len = *need;
        parsed = parse(len);
    }
    parsed.inspect_err(|error| assert!(!error.to_string().is_empty())).ok().map(|file| (file, len))
}

/// Header -> report, as `diagnose` does it, without a file.
pub fn judge(header: &Header) {
    if let Ok(spec) = spec::inspect(header, REGISTRY) {
        let report = assess(&spec, &InputSummary::from(header), &PROFILES[0].hardware(), &Policy::default());
        render(&report);
    }
}

/// Every rendering of a report.
pub fn render(report: &Report) {
    assert_eq!(report.casts, 0);
    assert_eq!(report.exit_code, report.verdict.exit_code());
    assert!(!report.first_line().contains('\n'), "{:?}", report.first_line());
    let _ = (report.to_string(), report.to_json());
}

/// `prompt` to ids and back, in one piece and as a stream.
pub fn round_trip(tokenizer: &Tokenizer, prompt: &str) {
    let ids = match (tokenizer.encode(prompt, true), tokenizer.encode(prompt, false)) {
        (Ok(ids), Ok(_)) => ids,
        (Err(error), Err(_)) => return assert!(!error.to_string().is_empty()),
        (one, other) => panic!("with special tokens {one:?}, without {other:?}"),
    };
    assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_len()), "{ids:?} of {}", tokenizer.vocab_len());
    let (mut decoder, mut text) = (tokenizer.stream(), String::new());
    for id in &ids {
        decoder.push(tokenizer.token_bytes(*id).unwrap_or_default(), &mut text);
        let _ = (tokenizer.is_special(*id), tokenizer.token_text(*id).map(|text| tokenizer.token_id(&text)));
    }
    decoder.finish(&mut text);
    assert_eq!(text, tokenizer.decode(&ids));
    let _ = tokenizer.stream_after(&ids);
}
