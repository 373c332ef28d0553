//! OLMo Hybrid: three of four layers are gated delta nets with norms before the sub-layers, the fourth is OLMo 3's attention with
//! norms after them.

use super::*;

/// Published files have the first name of a norm; transformers also reads the other.
#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::AttentionNorm,       gguf: "", config: "model.layers.{}.attention_layer_norm" },
    TensorName { role: Role::AttentionNorm,       gguf: "", config: "model.layers.{}.input_layernorm" },
    TensorName { role: Role::MlpNorm,             gguf: "", config: "model.layers.{}.feedforward_layer_norm" },
    TensorName { role: Role::MlpNorm,             gguf: "", config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::AttentionOutputNorm, gguf: "", config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::AttentionOutputNorm, gguf: "", config: "model.layers.{}.feedforward_layer_norm" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "", config: "model.layers.{}.post_feedforward_layernorm" },
    TensorName { role: Role::DeltaQ,              gguf: "", config: "model.layers.{}.linear_attn.q_proj" },
    TensorName { role: Role::DeltaK,              gguf: "", config: "model.layers.{}.linear_attn.k_proj" },
    TensorName { role: Role::DeltaV,              gguf: "", config: "model.layers.{}.linear_attn.v_proj" },
    TensorName { role: Role::StateGate,           gguf: "", config: "model.layers.{}.linear_attn.g_proj" },
    TensorName { role: Role::DeltaBeta,           gguf: "", config: "model.layers.{}.linear_attn.b_proj" },
    TensorName { role: Role::DeltaAlpha,          gguf: "", config: "model.layers.{}.linear_attn.a_proj" },
    TensorName { role: Role::ConvQ,               gguf: "", config: "model.layers.{}.linear_attn.q_conv1d" },
    TensorName { role: Role::ConvK,               gguf: "", config: "model.layers.{}.linear_attn.k_conv1d" },
    TensorName { role: Role::ConvV,               gguf: "", config: "model.layers.{}.linear_attn.v_conv1d" },
    TensorName { role: Role::StateStepBias,       gguf: "", config: "model.layers.{}.linear_attn.dt_bias" },
    TensorName { role: Role::StateDecay,          gguf: "", config: "model.layers.{}.linear_attn.A_log" },
    TensorName { role: Role::StateNorm,           gguf: "", config: "model.layers.{}.linear_attn.o_norm" },
    TensorName { role: Role::StateOut,            gguf: "", config: "model.layers.{}.linear_attn.o_proj" },
];

const CONFIG: &str = "the default of transformers' OlmoHybridConfig";

pub(super) const FAMILY: Family = Family {
    id: "olmo_hybrid",
    model_types: &[("olmo_hybrid", &["OlmoHybridForCausalLM"])],
    tensors: &[TENSORS, WITHOUT_INPUT_NORMS, HEAD_NORMS],
    biases: &[ATTENTION_BIAS],
    block: BlockTable {
        head_norms: HeadNorms::OfAllHeads,
        states: Some(StateTable {
            mixer: StateMixer::DeltaNet(DeltaNetKeys {
                key_heads: Key::config("linear_num_key_heads"),
                value_heads: Key::config("linear_num_value_heads"),
                key_dim: Key::config("linear_key_head_dim"),
                values: Key::config("linear_value_head_dim"),
                gguf_sharing: KeySharing::Neighbours,
                doubled: Some(("linear_allow_neg_eigval", true, CONFIG)),
                // As in transformers' `OlmoHybridGatedDeltaNet`.
                norm_eps: Some(1e-5),
                by_channel: false,
            }),
            layer_types: &["linear_attention"],
            attention: &["full_attention"],
            layers: StateLayers::AllButEvery { every: Key::config(""), list: "", default: (4, CONFIG) },
            kernel: Key::config("linear_conv_kernel_dim"),
            own_norms: &[Role::AttentionNorm, Role::MlpNorm],
            other_norms: &[Role::AttentionOutputNorm, Role::MlpOutputNorm],
        }),
        ..BLOCK
    },
    rope: RopeTable { theta: Some((10_000.0, CONFIG)), unrotated_by_null: true, ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "OLMo Hybrid",
    ..LLAMA_LIKE
};
