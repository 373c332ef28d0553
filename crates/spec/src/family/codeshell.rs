//! CodeShell: LayerNorm, biases, GELU without a gate. A table of GGUF alone: transformers has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "codeshell",
    gguf_architectures: &["codeshell"],
    files: FileTable { keys: LAYER_NORM_KEYS, ..FILES },
    fused: &[QKV],
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::Always)],
    block: BlockTable { norm: NormKind::Layer, activation: (Activation::GeluTanh, &[]), ..BLOCK },
    name: "CodeShell",
    ..LLAMA_LIKE
};
