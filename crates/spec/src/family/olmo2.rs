//! OLMo 2 and OLMo 3: norms after the sub-layers, and norms of queries and keys over all heads; OLMo 3 has windows.

use super::*;

#[rustfmt::skip]
pub(super) const NORMS: &[TensorName] = &[
    TensorName { role: Role::AttentionOutputNorm, gguf: "blk.{}.post_attention_norm",  config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "blk.{}.post_ffw_norm",        config: "model.layers.{}.post_feedforward_layernorm" },
];

pub(super) const FAMILY: Family = Family {
    id: "olmo2",
    gguf_architectures: &["olmo2"],
    model_types: &[("olmo2", &["Olmo2ForCausalLM"]), ("olmo3", &["Olmo3ForCausalLM"])],
    tensors: &[WITHOUT_INPUT_NORMS, NORMS, HEAD_NORMS],
    biases: &[ATTENTION_BIAS],
    window: Window::Pattern(WindowPattern {
        full_every: 4,
        source: "the default of transformers' Olmo3Config and of llama.cpp",
        model_types: &["olmo3"],
        ..PATTERN
    }),
    block: BlockTable { head_norms: HeadNorms::OfAllHeads, ..BLOCK },
    rope: RopeTable {
        // The defaults of transformers' Olmo2Config and Olmo3Config differ.
        theta: None,
        window: Some(WindowRope { key: Key { gguf: ".rope.freq_base_swa", config: "" }, default_theta: None }),
        ..ROPE
    },
    head: HeadTable { tied: (false, "the default of transformers' Olmo2Config and Olmo3Config"), ..HEAD },
    variants: &[Variant { name: "OLMo 3", any: &[&[Windowed]] }],
    name: "OLMo 2",
    ..LLAMA_LIKE
};
