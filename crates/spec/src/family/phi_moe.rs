//! Phi-3.5-MoE: norms of mean and variance, biases, and a router that chooses one expert after the other.

use super::experts::{MIXTRAL_EXPERTS, ROUTED};
use super::{Bias, ExpertTable, Family, LLAMA_LIKE, LLAMA_LIKE_TENSORS, NormKind, Role, Window};
use crate::block::RouterScore;

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "phimoe",
    gguf_architectures: &["phimoe"],
    model_types: &[("phimoe", &["PhiMoEForCausalLM", "PhimoeForCausalLM"])],
    tensors: &[LLAMA_LIKE_TENSORS, MIXTRAL_EXPERTS],
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias")),
        (&[Role::Head], Bias::Flag("lm_head_bias")),
    ],
    norm: NormKind::Layer,
    experts: Some(ExpertTable {
        // No key of GGUF; `router_jitter_noise` in config.json. llama.cpp weighs by a softmax over all experts.
        score: RouterScore::SparseMixer { jitter: 0.01 },
        ..ROUTED
    }),
    window: Window::Honoured,
    // transformers `PhimoeRotaryEmbedding`.
    longrope_magnitudes: Some(["short_mscale", "long_mscale"]),
    default_theta: Some((1_000_000.0, "the default of transformers' PhimoeConfig")),
    default_tied: (false, "the default of transformers' PhimoeConfig"),
    name: "Phi-3.5-MoE",
    ..LLAMA_LIKE
};
