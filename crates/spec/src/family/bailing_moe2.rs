//! Ling 2 and Ring 2 (mini, flash): norms of queries and keys, DeepSeek V3's experts in groups. A table of GGUF alone.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "bailingmoe2",
    gguf_architectures: &["bailingmoe2"],
    files: FileTable {
        refused: &[Refusal::Unless(Key::gguf(".expert_shared_count"), &["1"], "several shared experts")],
        ..FILES
    },
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS, deepseek2::EXPERTS],
    fused: &[QKV],
    biases: &[ATTENTION_BIAS],
    block: BlockTable { factors: &[ROUTED_SCALE], ..BLOCK },
    experts: Some(ExpertTable {
        optional: false,
        shared_feed_forward: Some(SHARED_WIDTH),
        shared_count: Some(SHARED_COUNT),
        scores: Some(("", SOFTMAX_OR_SIGMOID)),
        ..deepseek3::ROUTING
    }),
    rope: RopeTable { rotary_part: Some((0.5, "llama.cpp's converter")), ..ROPE },
    head: HeadTable { predictors: Some(Key::gguf(".nextn_predict_layers")), ..HEAD },
    name: "Ling 2",
    ..LLAMA_LIKE
};
