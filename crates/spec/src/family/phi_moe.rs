//! Phi-3.5-MoE: norms of mean and variance, biases, and a router that chooses experts one after the other.

use super::*;

pub(super) const FAMILY: Family = Family {
    id: "phimoe",
    gguf_architectures: &["phimoe"],
    model_types: &[("phimoe", &["PhiMoEForCausalLM", "PhimoeForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, MIXTRAL_EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[ATTENTION_BIAS, (&[Role::Head], Bias::Flag("lm_head_bias"))],
    window: Window::Honoured,
    block: BlockTable { norm: NormKind::Layer, ..BLOCK },
    experts: Some(ExpertTable {
        // GGUF has no key for it; config.json has `router_jitter_noise`. llama.cpp weights by a softmax over all experts.
        score: RouterScore::SparseMixer { jitter: 0.01 },
        ..ROUTED
    }),
    rope: RopeTable {
        theta: Some((1_000_000.0, "the default of transformers' PhimoeConfig")),
        // As in transformers' `PhimoeRotaryEmbedding`.
        longrope_magnitudes: Some(["short_mscale", "long_mscale"]),
        ..ROPE
    },
    head: HeadTable { tied: (false, "the default of transformers' PhimoeConfig"), ..HEAD },
    name: "Phi-3.5-MoE",
    ..LLAMA_LIKE
};
