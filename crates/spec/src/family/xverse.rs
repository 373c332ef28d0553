//! XVERSE: Llama by another name. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family =
    Family { id: "xverse", gguf_architectures: &["xverse"], rope: PERMUTED, name: "XVERSE", ..LLAMA_LIKE };
