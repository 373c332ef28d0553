//! Maincoder: norms of heads after the rotation of adjacent pairs. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "maincoder",
    gguf_architectures: &["maincoder"],
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS],
    block: BlockTable { norms_rotated: true, ..BLOCK },
    rope: PERMUTED,
    name: "Maincoder",
    ..LLAMA_LIKE
};
