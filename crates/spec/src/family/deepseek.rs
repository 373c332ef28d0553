//! The first DeepSeek with experts: DeepSeekMoE 16B. A table of GGUF alone.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "deepseek",
    gguf_architectures: &["deepseek"],
    tensors: &[LLAMA_LIKE_TENSORS, QWEN_EXPERTS, deepseek2::SHARED_EXPERTS],
    biases: &[ATTENTION_BIAS],
    block: BlockTable { factors: &[ROUTED_SCALE], ..BLOCK },
    experts: Some(ExpertTable {
        feed_forward: Some(EXPERT_WIDTH),
        shared_count: Some(SHARED_COUNT),
        dense_layers: Some(DenseLayers { first: FIRST_DENSE, ..DENSE }),
        ..ROUTED
    }),
    rope: PERMUTED,
    name: "DeepSeekMoE",
    ..LLAMA_LIKE
};
