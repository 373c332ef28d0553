//! Jais 2: Llama's block with LayerNorm, biases, and a squared ReLU without a gate.

use super::*;

const CONFIG: &str = "the default of transformers' Jais2Config";

pub(super) const FAMILY: Family = Family {
    id: "jais2",
    gguf_architectures: &["jais2"],
    model_types: &[("jais2", &["Jais2ForCausalLM"])],
    files: FileTable { keys: LAYER_NORM_KEYS, ..FILES },
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O], Bias::UnlessFlag("attention_bias")),
        (&[Role::Up, Role::Down], Bias::UnlessFlag("mlp_bias")),
    ],
    block: BlockTable { norm: NormKind::Layer, activation: (Activation::ReluSquared, &["relu2"]), ..BLOCK },
    rope: RopeTable { theta: Some((10_000.0, CONFIG)), ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Jais 2",
    ..LLAMA_LIKE
};
