//! Gemma 4, text only: like Gemma 3, but layers without a window have larger heads and use keys as values, layers may
//! reuse keys and values of earlier ones or have per-layer embeddings, or experts next to the dense feed-forward layer.

use super::gemma2::{LOGIT_CAP, NORMS};
use super::*;

#[rustfmt::skip]
pub(super) const LAYERS: &[TensorName] = &[
    TensorName { role: Role::LayerScale,               gguf: "blk.{}.layer_output_scale.weight", config: "model.layers.{}.layer_scalar" },
    TensorName { role: Role::LayerEmbedding,           gguf: "per_layer_token_embd",             config: "model.embed_tokens_per_layer" },
    TensorName { role: Role::LayerEmbeddingProjection, gguf: "per_layer_model_proj",             config: "model.per_layer_model_projection" },
    TensorName { role: Role::LayerEmbeddingNorm,       gguf: "per_layer_proj_norm",              config: "model.per_layer_projection_norm" },
    TensorName { role: Role::LayerEmbeddingGate,       gguf: "blk.{}.inp_gate",                  config: "model.layers.{}.per_layer_input_gate" },
    TensorName { role: Role::LayerEmbeddingOutput,     gguf: "blk.{}.proj",                      config: "model.layers.{}.per_layer_projection" },
    TensorName { role: Role::LayerEmbeddingOutputNorm, gguf: "blk.{}.post_norm",                 config: "model.layers.{}.post_per_layer_input_norm" },
];

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

const CONFIG: &str = "the default of transformers' Gemma4TextConfig";

pub(super) const BIDIRECTIONAL: Refusal =
    Refusal::Text("use_bidirectional_attention", "all", "attention to later positions");

/// No key gives the first factor.
#[rustfmt::skip]
const FACTORS: &[Factor] = &[
    Factor { of: FactorOf::Scores, key: Key::gguf(""), gguf_default: Some((1.0, "llama.cpp")), config_default: Some((1.0, "transformers' Gemma4TextAttention")) },
    LOGIT_CAP,
];

pub(super) const FAMILY: Family = Family {
    id: "gemma4",
    gguf_architectures: &["gemma4"],
    model_types: &[("gemma4_text", &["Gemma4ForCausalLM"])],
    wrappers: &[("Gemma4ForConditionalGeneration", "gemma4")],
    files: FileTable {
        defaults: &[&[("vocab_size", 262_144.0)], gemma3::SIZES],
        defaults_source: CONFIG,
        refused: &[BIDIRECTIONAL],
        ..FILES
    },
    tensors: &[NORMS, LLAMA_LIKE_TENSORS, HEAD_NORMS, LAYERS, EXPERTS],
    fused: &[
        FusedName::new(EXPERT_GATE_UP, "blk.{}.ffn_gate_up_exps", "model.layers.{}.experts.gate_up_proj"),
        FusedName::new(&[Role::ExpertDown], "", "model.layers.{}.experts.down_proj"),
    ],
    biases: &[ATTENTION_BIAS],
    window: Window::Pattern(WindowPattern {
        full_every: 6,
        config_default: 512,
        source: CONFIG,
        model_types: &["gemma4_text"],
        last_is_full: true,
        ..PATTERN
    }),
    block: BlockTable {
        activation: (Activation::GeGlu { gate: () }, &["gelu_pytorch_tanh"]),
        factors: FACTORS,
        value_norm: true,
        full_attention: Some(FullAttention {
            head_dim: ("global_head_dim", 512, CONFIG),
            kv_heads: "num_global_key_value_heads",
            keys_are_values: "attention_k_eq_v",
        }),
        shared_layers: Some((
            Key { gguf: ".attention.shared_kv_layers", config: "num_kv_shared_layers" },
            "use_double_wide_mlp",
        )),
        layer_embedding: Some((
            Key { gguf: ".embedding_length_per_layer_input", config: "hidden_size_per_layer_input" },
            256,
            CONFIG,
        )),
        ..BLOCK
    },
    experts: Some(ExpertTable {
        flag: Some("enable_moe_block"),
        chosen: Key { gguf: ".expert_used_count", config: "top_k_experts" },
        // As in transformers' `Gemma4TextRouter`.
        normalized: Normalized::Fixed(true),
        by_root_of_width: true,
        ..QWEN_ROUTED
    }),
    rope: RopeTable {
        theta: None,
        window: Some(WindowRope { key: Key::gguf(".rope.freq_base_swa"), default_theta: Some((10_000.0, CONFIG)) }),
        gguf_freqs_needed: true,
        ..ROPE
    },
    head: HeadTable { tied: (true, CONFIG), embedding_by_root_of_width: true, ..HEAD },
    name: "Gemma 4",
    ..LLAMA_LIKE
};
