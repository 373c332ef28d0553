//! Trinity (AFMoE): gates of attention's output, norms around the sub-layers and of heads, windows in three of four layers, which
//! alone rotate, and experts by sigmoids.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::AttentionGate,       gguf: "blk.{}.attn_gate",           config: "model.layers.{}.self_attn.gate_proj" },
    TensorName { role: Role::AttentionOutputNorm, gguf: "blk.{}.post_attention_norm", config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::MlpNorm,             gguf: "blk.{}.ffn_norm",            config: "model.layers.{}.pre_mlp_layernorm" },
    TensorName { role: Role::MlpOutputNorm,       gguf: "blk.{}.post_ffw_norm",       config: "model.layers.{}.post_mlp_layernorm" },
    TensorName { role: Role::Router,              gguf: "blk.{}.ffn_gate_inp",        config: "model.layers.{}.mlp.router.gate" },
    TensorName { role: Role::ChoiceBias,          gguf: "blk.{}.exp_probs_b.bias",    config: "model.layers.{}.mlp.expert_bias" },
];

const CONFIG: &str = "the default of transformers' AfmoeConfig";

pub(super) const FAMILY: Family = Family {
    id: "afmoe",
    gguf_architectures: &["afmoe"],
    model_types: &[("afmoe", &["AfmoeForCausalLM"])],
    files: FileTable {
        defaults: &[&[
            ("head_dim", 128.0),
            ("moe_intermediate_size", 1408.0),
            ("num_experts_per_tok", 6.0),
            ("num_shared_experts", 2.0),
        ]],
        defaults_source: CONFIG,
        // transformers reads none of them, and computes what is allowed here.
        refused: &[
            Refusal::Unset(Key::config("route_norm"), "weights of experts as they are"),
            Refusal::Unless(Key::config("score_func"), &["sigmoid"], "other scores of experts"),
            Refusal::Unless(Key::config("n_group"), &["1"], "experts in groups"),
        ],
        ..FILES
    },
    tensors: &[TENSORS, LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS, deepseek2::EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[ATTENTION_BIAS, (&[Role::ChoiceBias], Bias::Always)],
    window: Window::Pattern(WindowPattern {
        full_every: 4,
        config_key: "global_attn_every_n_layers",
        config_default: 1024,
        source: "the default of transformers' AfmoeConfig and of llama.cpp",
        model_types: &["afmoe"],
        ..PATTERN
    }),
    block: BlockTable {
        attention_gate: Some(GateWidth::Element),
        factors: &[Factor {
            key: Key { config: "route_scale", ..ROUTED_SCALE.key },
            config_default: Some((1.0, CONFIG)),
            ..ROUTED_SCALE
        }],
        ..BLOCK
    },
    experts: Some(ExpertTable {
        shared_count: Some(Key { gguf: ".expert_shared_count", config: "num_shared_experts" }),
        score: RouterScore::Sigmoid,
        normalized: Normalized::Flag { config: "route_norm", absent: true, gguf: false },
        added_to_sum: 1e-20,
        dense_layers: Some(DenseLayers {
            first: Key { config: "num_dense_layers", ..FIRST_DENSE },
            config_first: (1, CONFIG),
            ..DENSE
        }),
        ..QWEN_ROUTED
    }),
    rope: RopeTable {
        theta: Some((10_000.0, CONFIG)),
        unrotated: Some(Unrotated::WithoutWindow { unless_all: false, but_dense: false }),
        ..ROPE
    },
    head: HeadTable {
        tied: (false, CONFIG),
        embedding_by_root_of_width: true,
        embedding_root_flag: Some("mup_enabled"),
        ..HEAD
    },
    name: "Trinity",
    ..LLAMA_LIKE
};
