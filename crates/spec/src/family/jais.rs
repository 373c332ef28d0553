//! Jais: ALiBi, LayerNorm, gates and biases everywhere, scores divided by the size of a head. A table of GGUF alone: transformers
//! has no such model.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "jais",
    gguf_architectures: &["jais"],
    files: FileTable { keys: LAYER_NORM_KEYS, ..FILES },
    fused: &[QKV],
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O, Role::Gate, Role::Up, Role::Down], Bias::Always)],
    block: BlockTable {
        norm: NormKind::Layer,
        factors: &[Factor { key: Key::gguf(".attention.max_alibi_bias"), gguf_default: None, ..ALIBI }],
        scores_by_head: true,
        ..BLOCK
    },
    name: "Jais",
    ..LLAMA_LIKE
};
