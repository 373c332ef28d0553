//! Nanbeige 4: Llama's layers, which are passed several times. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "nanbeige",
    gguf_architectures: &["nanbeige"],
    block: BlockTable { passes: Some((Key::gguf(".num_loops"), Key::gguf(".skip_loop_final_norm"))), ..BLOCK },
    rope: PERMUTED,
    name: "Nanbeige",
    ..LLAMA_LIKE
};
