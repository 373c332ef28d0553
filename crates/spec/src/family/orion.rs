//! Orion: Llama with LayerNorm. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "orion",
    gguf_architectures: &["orion"],
    files: FileTable { keys: LAYER_NORM_KEYS, ..FILES },
    block: BlockTable { norm: NormKind::Layer, ..BLOCK },
    name: "Orion",
    ..LLAMA_LIKE
};
