//! openPangu Embedded: Llama with biases. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "pangu",
    gguf_architectures: &["pangu-embedded"],
    biases: &[ATTENTION_BIAS],
    name: "openPangu",
    ..LLAMA_LIKE
};
