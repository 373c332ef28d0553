//! EXAONE 3: Llama by another name. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family =
    Family { id: "exaone", gguf_architectures: &["exaone"], name: "EXAONE", ..LLAMA_LIKE };
