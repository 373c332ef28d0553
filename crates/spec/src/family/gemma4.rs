//! Gemma 4, its text: as Gemma 3, with larger heads in layers without a window, keys that are values there, or keys and values
//! of earlier layers, and embeddings of layers; or with experts beside the dense feed-forward layer.

use super::experts::{EXPERT_WIDTH, QWEN_COUNT, ROUTED};
use super::gemma2::NORMS;
use super::qwen3::HEAD_NORMS;
use super::{
    Bias, EmbeddingScale, ExpertTable, Factor, FactorOf, Family, FullAttention, FusedName, Key, LLAMA_LIKE,
    LLAMA_LIKE_TENSORS, LayerEmbedding, Normalized, Role, SharedLayers, TensorName, Window, WindowRope,
};
use crate::block::Activation;

#[rustfmt::skip]
const LAYERS: &[TensorName] = &[
    TensorName { role: Role::LayerScale,               gguf: "blk.{}.layer_output_scale.weight", config: "model.layers.{}.layer_scalar" },
    TensorName { role: Role::LayerEmbedding,           gguf: "per_layer_token_embd",             config: "model.embed_tokens_per_layer" },
    TensorName { role: Role::LayerEmbeddingProjection, gguf: "per_layer_model_proj",             config: "model.per_layer_model_projection" },
    TensorName { role: Role::LayerEmbeddingNorm,       gguf: "per_layer_proj_norm",              config: "model.per_layer_projection_norm" },
    TensorName { role: Role::LayerEmbeddingGate,       gguf: "blk.{}.inp_gate",                  config: "model.layers.{}.per_layer_input_gate" },
    TensorName { role: Role::LayerEmbeddingOutput,     gguf: "blk.{}.proj",                      config: "model.layers.{}.per_layer_projection" },
    TensorName { role: Role::LayerEmbeddingOutputNorm, gguf: "blk.{}.post_norm",                 config: "model.layers.{}.post_per_layer_input_norm" },
];

/// Of models with experts.
#[rustfmt::skip]
const EXPERTS: &[TensorName] = &[
    TensorName { role: Role::Router,            gguf: "blk.{}.ffn_gate_inp",        config: "model.layers.{}.router.proj" },
    TensorName { role: Role::RouterNorm,        gguf: "blk.{}.ffn_gate_inp.scale",  config: "model.layers.{}.router.scale" },
    TensorName { role: Role::ExpertScales,      gguf: "blk.{}.ffn_down_exps.scale", config: "model.layers.{}.router.per_expert_scale" },
    TensorName { role: Role::ExpertsNorm,       gguf: "blk.{}.pre_ffw_norm_2",      config: "model.layers.{}.pre_feedforward_layernorm_2" },
    TensorName { role: Role::ExpertGate,        gguf: "blk.{}.ffn_gate_exps",       config: "model.layers.{}.experts.gate_up_proj" },
    TensorName { role: Role::ExpertUp,          gguf: "blk.{}.ffn_up_exps",         config: "model.layers.{}.experts.gate_up_proj" },
    TensorName { role: Role::ExpertDown,        gguf: "blk.{}.ffn_down_exps",       config: "model.layers.{}.experts.down_proj" },
    TensorName { role: Role::ExpertsOutputNorm, gguf: "blk.{}.post_ffw_norm_2",     config: "model.layers.{}.post_feedforward_layernorm_2" },
    TensorName { role: Role::DenseOutputNorm,   gguf: "blk.{}.post_ffw_norm_1",     config: "model.layers.{}.post_feedforward_layernorm_1" },
];

#[rustfmt::skip]
const FUSED: &[FusedName] = &[
    FusedName { roles: &[Role::ExpertGate, Role::ExpertUp], gguf: Some("blk.{}.ffn_gate_up_exps"), config: Some("model.layers.{}.experts.gate_up_proj") },
    FusedName { roles: &[Role::ExpertDown],                 gguf: None,                            config: Some("model.layers.{}.experts.down_proj") },
];

const CONFIG: &str = "the default of transformers' Gemma4TextConfig";

/// No key says the first.
#[rustfmt::skip]
const FACTORS: &[Factor] = &[
    Factor { of: FactorOf::Scores, key: Key { gguf: "", config: "" }, gguf_default: Some((1.0, "llama.cpp")), config_default: Some((1.0, "transformers' Gemma4TextAttention")) },
    Factor { of: FactorOf::LogitCap, key: Key { gguf: ".final_logit_softcapping", config: "final_logit_softcapping" }, gguf_default: None, config_default: None },
];

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "gemma4",
    gguf_architectures: &["gemma4"],
    model_types: &[("gemma4_text", &["Gemma4ForCausalLM"])],
    wrappers: &[("Gemma4ForConditionalGeneration", "gemma4")],
    config_defaults: &[
        ("num_attention_heads", 8.0),
        ("num_key_value_heads", 4.0),
        ("head_dim", 256.0),
        ("vocab_size", 262_144.0),
        ("max_position_embeddings", 131_072.0),
        ("rms_norm_eps", 1e-6),
    ],
    config_defaults_source: CONFIG,
    tensors: &[NORMS, LLAMA_LIKE_TENSORS, HEAD_NORMS, LAYERS, EXPERTS],
    fused: FUSED,
    experts: Some(ExpertTable {
        flag: Some("enable_moe_block"),
        count: QWEN_COUNT,
        chosen: Key { gguf: ".expert_used_count", config: "top_k_experts" },
        feed_forward: Some(EXPERT_WIDTH),
        // transformers `Gemma4TextRouter`.
        normalized: Normalized::Fixed(true),
        by_root_of_width: true,
        ..ROUTED
    }),
    // One flag covers q, k, v and o.
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias"))],
    value_norm: true,
    full_attention: Some(FullAttention {
        head_dim: ("global_head_dim", 512, CONFIG),
        kv_heads: "num_global_key_value_heads",
        keys_are_values: "attention_k_eq_v",
    }),
    shared_layers: Some(SharedLayers {
        count: Key { gguf: ".attention.shared_kv_layers", config: "num_kv_shared_layers" },
        double_wide: "use_double_wide_mlp",
    }),
    layer_embedding: Some(LayerEmbedding {
        width: Key { gguf: ".embedding_length_per_layer_input", config: "hidden_size_per_layer_input" },
        default_width: (256, CONFIG),
    }),
    activation: (Activation::GeGlu { gate: () }, &["gelu_pytorch_tanh"]),
    factors: FACTORS,
    embedding_scale: EmbeddingScale::RootOfWidth,
    window: Window::Pattern {
        full_every: 6,
        config_key: "",
        config_default: 512,
        gguf_default: 0,
        source: CONFIG,
        model_types: &["gemma4_text"],
        last_is_full: true,
        first_is_full: false,
    },
    window_rope: Some(WindowRope {
        key: Key { gguf: ".rope.freq_base_swa", config: "" },
        default_theta: Some((10_000.0, CONFIG)),
    }),
    refused_texts: &[("use_bidirectional_attention", "all", "attention to later positions")],
    gguf_rope_freqs_needed: true,
    default_theta: None,
    default_tied: (true, CONFIG),
    name: "Gemma 4",
    ..LLAMA_LIKE
};
