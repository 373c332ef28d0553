//! Mellum 2: Qwen3 with experts and windows in most layers, which have their own rotary base.

use super::*;

const CONFIG: &str = "the default of transformers' MellumConfig";

pub(super) const FAMILY: Family = Family {
    id: "mellum",
    gguf_architectures: &["mellum"],
    model_types: &[("mellum", &["MellumForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[ATTENTION_BIAS],
    window: Window::Pattern(WindowPattern {
        // No layer has one unless the files say so.
        full_every: 1,
        config_default: 1024,
        source: CONFIG,
        model_types: &["mellum"],
        ..PATTERN
    }),
    experts: Some(ExpertTable {
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: true, gguf: true },
        ..QWEN_ROUTED
    }),
    rope: RopeTable {
        window: Some(WindowRope { key: Key { gguf: ".rope.freq_base_swa", config: "" }, default_theta: None }),
        ..ROPE
    },
    head: HeadTable { tied: (false, CONFIG), predictors: None, ..HEAD },
    name: "Mellum",
    ..LLAMA_LIKE
};
