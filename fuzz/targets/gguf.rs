//! Bytes as a GGUF file: parsed, and judged when they parse.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;
use model_factory_diagnostics::header::Metadata;
use model_factory_diagnostics::header::gguf::GgufFile;
use model_factory_diagnostics::source::Format;
use std::io::Cursor;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let parse = |len| GgufFile::parse(Path::new("x.gguf"), 0, len, Cursor::new(bytes));
    let Some((gguf, len)) = common::parsed(bytes.len(), parse) else { return };
    let metadata = Metadata::Gguf(gguf.metadata);
    common::judge(&common::header(Format::Gguf, "x.gguf", len, gguf.tensors, metadata));
});
