//! Qwen 1: Llama with biases of queries, keys and values, and a key of twice the feed-forward width. A table of GGUF alone:
//! transformers has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "qwen",
    gguf_architectures: &["qwen"],
    files: FileTable { width_is_double: true, ..FILES },
    fused: &[QKV],
    biases: &[(&[Role::Q, Role::K, Role::V], Bias::Always)],
    name: "Qwen",
    ..LLAMA_LIKE
};
