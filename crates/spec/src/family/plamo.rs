//! PLaMo: a parallel block. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "plamo",
    gguf_architectures: &["plamo"],
    tensors: &[WITHOUT_MLP_NORM],
    block: BlockTable { parallel: Parallel::Yes, ..BLOCK },
    name: "PLaMo",
    ..LLAMA_LIKE
};
