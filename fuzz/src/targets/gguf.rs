//! Bytes as a GGUF file: parsed, and judged when they parse.

use model_factory_diagnostics::header::Metadata;
use model_factory_diagnostics::header::gguf::GgufFile;
use model_factory_diagnostics::source::Format;
use std::io::Cursor;
use std::path::Path;

pub fn run(bytes: &[u8]) {
    let parse = |len| GgufFile::parse(Path::new("x.gguf"), 0, len, Cursor::new(bytes));
    let Some((gguf, len)) = crate::common::parsed(bytes.len(), parse) else { return };
    let metadata = Metadata::Gguf(gguf.metadata);
    crate::common::judge(&crate::common::header(Format::Gguf, "x.gguf", len, gguf.tensors, metadata));
}
