//! InternLM2: Llama by another name. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "internlm2",
    gguf_architectures: &["internlm2"],
    biases: &[ATTENTION_BIAS],
    rope: PERMUTED,
    name: "InternLM2",
    ..LLAMA_LIKE
};
