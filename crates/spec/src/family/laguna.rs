//! Laguna: gates of attention's output by softplus, heads by layer, windows with a rotation of their own, and experts by sigmoids.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::AttentionGate, gguf: "blk.{}.attn_gate",        config: "model.layers.{}.self_attn.g_proj" },
    TensorName { role: Role::ChoiceBias,    gguf: "blk.{}.exp_probs_b.bias", config: "model.layers.{}.mlp.gate.e_score_correction_bias" },
    // In published files the bias lies next to the experts.
    TensorName { role: Role::ChoiceBias,    gguf: "",                        config: "model.layers.{}.mlp.experts.e_score_correction_bias" },
    TensorName { role: Role::SharedGate,    gguf: "blk.{}.ffn_gate_shexp",   config: "model.layers.{}.mlp.shared_expert.gate_proj" },
    TensorName { role: Role::SharedUp,      gguf: "blk.{}.ffn_up_shexp",     config: "model.layers.{}.mlp.shared_expert.up_proj" },
    TensorName { role: Role::SharedDown,    gguf: "blk.{}.ffn_down_shexp",   config: "model.layers.{}.mlp.shared_expert.down_proj" },
];

const CONFIG: &str = "the default of transformers' LagunaConfig";

pub(super) const FAMILY: Family = Family {
    id: "laguna",
    gguf_architectures: &["laguna"],
    model_types: &[("laguna", &["LagunaForCausalLM"])],
    files: FileTable {
        defaults: &[&[
            ("num_key_value_heads", 8.0),
            ("head_dim", 128.0),
            ("moe_intermediate_size", 512.0),
            ("shared_expert_intermediate_size", 512.0),
            ("num_experts_per_tok", 8.0),
            ("rms_norm_eps", 1e-6),
        ]],
        defaults_source: CONFIG,
        refused: &[
            Refusal::Set("moe_apply_router_weight_on_input", "weights of experts on their inputs"),
            Refusal::Set("moe_router_logit_softcapping", "a cap on the outputs of routers"),
        ],
        ..FILES
    },
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS, TENSORS, deepseek2::EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias")),
        (&[Role::ChoiceBias], Bias::Always),
    ],
    window: Window::Pattern(WindowPattern {
        full_every: 4,
        first_is_full: true,
        config_listed_only: true,
        config_default: 512,
        source: "the default of llama.cpp",
        model_types: &["laguna"],
        ..PATTERN
    }),
    block: BlockTable {
        attention_gate: Some(GateWidth::Keyed("gating")),
        softplus_gates: true,
        sizes_by_layer: Some("num_attention_heads_per_layer"),
        factors: &[Factor {
            key: Key { config: "moe_routed_scaling_factor", ..ROUTED_SCALE.key },
            config_default: Some((1.0, CONFIG)),
            ..ROUTED_SCALE
        }],
        ..BLOCK
    },
    experts: Some(ExpertTable {
        shared_feed_forward: Some(Key {
            gguf: ".expert_shared_feed_forward_length",
            config: "shared_expert_intermediate_size",
        }),
        score: RouterScore::Sigmoid,
        normalized: Normalized::Fixed(true),
        dense_layers: Some(DenseLayers { first: FIRST_DENSE, config_first: (1, CONFIG), kinds: MLP_KINDS, ..DENSE }),
        ..QWEN_ROUTED
    }),
    rope: RopeTable {
        theta: Some((500_000.0, CONFIG)),
        rotary_part: Some((1.0, "transformers' LagunaRotaryEmbedding")),
        window: Some(WindowRope { key: Key::gguf(".rope.freq_base_swa"), default_theta: Some((10_000.0, CONFIG)) }),
        unsaid_scaling: Some("transformers' LagunaConfig has a rotation of its own"),
        gguf_yarn_truncate: true,
        ..ROPE
    },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "Laguna",
    ..LLAMA_LIKE
};
