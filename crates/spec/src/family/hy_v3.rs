//! Hunyuan 3 (Hy3): norms of queries and keys, experts chosen by sigmoids with a bias, a shared one.

use super::*;

#[rustfmt::skip]
const EXPERTS: &[TensorName] = &[
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",     config: "model.layers.{}.mlp.router.gate" },
    TensorName { role: Role::ChoiceBias, gguf: "blk.{}.exp_probs_b",      config: "model.layers.{}.mlp.expert_bias" },
    TensorName { role: Role::ChoiceBias, gguf: "blk.{}.exp_probs_b.bias", config: "model.layers.{}.mlp.e_score_correction_bias" },
    TensorName { role: Role::SharedGate, gguf: "blk.{}.ffn_gate_shexp",   config: "model.layers.{}.mlp.shared_mlp.gate_proj" },
    TensorName { role: Role::SharedUp,   gguf: "blk.{}.ffn_up_shexp",     config: "model.layers.{}.mlp.shared_mlp.up_proj" },
    TensorName { role: Role::SharedDown, gguf: "blk.{}.ffn_down_shexp",   config: "model.layers.{}.mlp.shared_mlp.down_proj" },
];

const CONFIG: &str = "the default of transformers' HYV3Config";

pub(super) const FAMILY: Family = Family {
    id: "hy_v3",
    gguf_architectures: &["hy_v3"],
    model_types: &[("hy_v3", &["HYV3ForCausalLM"])],
    files: FileTable {
        defaults: &[&[
            ("max_position_embeddings", 131_072.0),
            ("head_dim", 128.0),
            ("moe_intermediate_size", 1536.0),
            ("num_experts_per_tok", 8.0),
            ("num_shared_experts", 1.0),
            ("rms_norm_eps", 1e-5),
        ]],
        defaults_source: CONFIG,
        // transformers reads none of these, and computes what they say.
        refused: &[
            Refusal::Unless(Key::config("first_k_dense_replace"), &["1"], "another number of dense layers"),
            Refusal::Unset(Key::config("qk_norm"), "no norms of queries and keys"),
            Refusal::Unset(Key::config("route_norm"), "weights of experts as they are"),
            Refusal::Unset(Key::config("moe_router_use_sigmoid"), "other scores of experts"),
            Refusal::Unset(Key::config("moe_router_enable_expert_bias"), "experts chosen without a bias"),
        ],
        ..FILES
    },
    tensors: &[EXPERTS, LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS, deepseek2::SHARED_EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[
        ATTENTION_BIAS,
        MLP_BIAS,
        (&[Role::SharedGate, Role::SharedUp, Role::SharedDown], Bias::Flag("mlp_bias")),
        (&[Role::ChoiceBias], Bias::Always),
    ],
    block: BlockTable {
        factors: &[Factor {
            key: Key { config: "router_scaling_factor", ..ROUTED_SCALE.key },
            config_default: Some((2.826, CONFIG)),
            ..ROUTED_SCALE
        }],
        ..BLOCK
    },
    experts: Some(ExpertTable {
        count: QWEN_COUNT,
        feed_forward: Some(EXPERT_WIDTH),
        shared_feed_forward: Some(Key { config: "", ..SHARED_WIDTH }),
        shared_count: Some(SHARED_COUNT),
        score: RouterScore::Sigmoid,
        scores: Some(("", SOFTMAX_OR_SIGMOID)),
        normalized: Normalized::Flag { config: "", absent: true, gguf: false },
        // As in transformers' `HYV3TopKRouter`.
        added_to_sum: 1e-20,
        dense_layers: Some(DenseLayers {
            config_first: (1, CONFIG),
            kinds: MLP_KINDS,
            gguf_without_router: true,
            ..DENSE
        }),
        ..ROUTED
    }),
    rope: RopeTable { theta: Some((11_158_840.0, CONFIG)), ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..deepseek2::PREDICTED },
    name: "Hunyuan 3",
    ..LLAMA_LIKE
};
