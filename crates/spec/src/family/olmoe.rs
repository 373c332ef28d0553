//! OLMoE: OLMoE-1B-7B. Norms over all heads of queries and keys, as OLMo 2 has, and the order of Llama's block.

use super::experts::{FUSED_EXPERTS, QWEN_COUNT, QWEN_EXPERTS, ROUTED};
use super::qwen3::HEAD_NORMS;
use super::{Bias, ExpertTable, Family, LLAMA_LIKE, LLAMA_LIKE_TENSORS, Normalized, Role};

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "olmoe",
    gguf_architectures: &["olmoe"],
    model_types: &[("olmoe", &["OlmoeForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS],
    fused: FUSED_EXPERTS,
    // transformers `OlmoeAttention`: one flag covers q, k, v and o.
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias"))],
    whole_head_norms: true,
    refused_flags: &[("clip_qkv", "a limit to queries, keys and values")],
    experts: Some(ExpertTable {
        count: QWEN_COUNT,
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: false, gguf: false },
        ..ROUTED
    }),
    default_tied: (false, "the default of transformers' OlmoeConfig"),
    name: "OLMoE",
    ..LLAMA_LIKE
};
