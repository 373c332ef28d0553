//! SmolLM3: Llama's block, of which every fourth layer does not rotate.

use super::{Bias, Family, LLAMA_LIKE, Role, Unrotated};
use crate::block::RopeLayout;

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "smollm3",
    gguf_architectures: &["smollm3"],
    model_types: &[("smollm3", &["SmolLM3ForCausalLM"])],
    // transformers `SmolLM3Attention` and `SmolLM3MLP`.
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias")),
        (&[Role::Gate, Role::Up, Role::Down], Bias::Flag("mlp_bias")),
    ],
    refused_flags: &[("use_sliding_window", "a sliding window in some layers")],
    unrotated: Some(Unrotated {
        list: "no_rope_layers",
        interval: "no_rope_layer_interval",
        default_interval: (4, "the default of transformers' SmolLM3Config, and always in llama.cpp"),
    }),
    // As in Llama, the converter permutes the rows of q and k.
    gguf_rope: RopeLayout::Interleaved,
    default_theta: Some((2_000_000.0, "the default of transformers' SmolLM3Config")),
    default_tied: (true, "the default of transformers' SmolLM3Config"),
    name: "SmolLM3",
    ..LLAMA_LIKE
};
