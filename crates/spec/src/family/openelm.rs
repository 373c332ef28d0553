//! OpenELM: heads and widths that grow from layer to layer, and norms of heads. A table of GGUF alone: transformers has no such
//! model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "openelm",
    gguf_architectures: &["openelm"],
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS],
    fused: &[QKV],
    block: BlockTable { sizes_by_layer: Some(""), ..BLOCK },
    name: "OpenELM",
    ..LLAMA_LIKE
};
