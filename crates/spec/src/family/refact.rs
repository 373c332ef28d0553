//! Refact: Llama with ALiBi. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "refact",
    gguf_architectures: &["refact"],
    block: BlockTable { factors: &[ALIBI], ..BLOCK },
    name: "Refact",
    ..LLAMA_LIKE
};
