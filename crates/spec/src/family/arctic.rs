//! Arctic: experts that read what attention reads, next to a dense layer after it. A table of GGUF alone.

use super::*;

#[rustfmt::skip]
const NORM: &[TensorName] = &[
    TensorName { role: Role::ExpertsNorm, gguf: "blk.{}.ffn_norm_exps", config: "" },
];

pub(super) const FAMILY: Family = Family {
    id: "arctic",
    gguf_architectures: &["arctic"],
    // The dense layer is as wide as the residual stream.
    files: FileTable { keys: Keys { feed_forward: KEYS.hidden, ..KEYS }, ..FILES },
    tensors: &[NORM, LLAMA_LIKE_TENSORS, QWEN_EXPERTS],
    biases: &[ATTENTION_BIAS],
    experts: Some(ExpertTable {
        feed_forward: Some(KEYS.feed_forward),
        normalized: Normalized::Fixed(true),
        input: ExpertInput::Before,
        ..ROUTED
    }),
    rope: PERMUTED,
    name: "Arctic",
    ..LLAMA_LIKE
};
