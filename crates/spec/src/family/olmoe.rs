//! OLMoE: OLMoE-1B-7B. Norms over all heads of queries and keys, like OLMo 2, and the order of Llama's block.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "olmoe",
    gguf_architectures: &["olmoe"],
    model_types: &[("olmoe", &["OlmoeForCausalLM"])],
    files: FileTable { refused: &[Refusal::Set("clip_qkv", "a limit to queries, keys and values")], ..FILES },
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[ATTENTION_BIAS],
    block: BlockTable { head_norms: HeadNorms::OfAllHeads, ..BLOCK },
    experts: Some(ExpertTable {
        count: QWEN_COUNT,
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: false, gguf: false },
        ..ROUTED
    }),
    head: HeadTable { tied: (false, "the default of transformers' OlmoeConfig"), ..HEAD },
    name: "OLMoE",
    ..LLAMA_LIKE
};
