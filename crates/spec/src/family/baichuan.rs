//! Baichuan: Llama with ALiBi in the models of 13B. A table of GGUF alone: its safetensors have code of their own.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "baichuan",
    gguf_architectures: &["baichuan"],
    block: BlockTable { factors: &[ALIBI], ..BLOCK },
    rope: RopeTable { by_layers: Some((32, 40)), ..PERMUTED },
    name: "Baichuan",
    ..LLAMA_LIKE
};
