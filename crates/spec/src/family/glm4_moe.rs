//! GLM-4.5 and 4.5-Air: attention with partial rotation, the larger's with norms of queries and keys, and DeepSeek V3's experts.

use super::*;

const CONFIG: &str = "the default of transformers' Glm4MoeConfig";

#[rustfmt::skip]
const NORM: &[TensorName] = &[
    TensorName { role: Role::MlpNorm, gguf: "blk.{}.post_attention_norm", config: "model.layers.{}.post_attention_layernorm" },
];

pub(super) const FAMILY: Family = Family {
    id: "glm4moe",
    gguf_architectures: &["glm4moe"],
    model_types: &[("glm4_moe", &["Glm4MoeForCausalLM"])],
    files: FileTable {
        defaults: &[&[
            ("max_position_embeddings", 131_072.0),
            ("moe_intermediate_size", 1408.0),
            ("n_shared_experts", 1.0),
            ("n_group", 1.0),
            ("topk_group", 1.0),
            ("num_experts_per_tok", 8.0),
            ("rms_norm_eps", 1e-5),
        ]],
        defaults_source: CONFIG,
        refused: &[
            Refusal::Unless(Key::config("scoring_func"), &["sigmoid"], "other scores of experts"),
            Refusal::Unless(Key::config("topk_method"), &["noaux_tc"], "another choice of experts"),
        ],
        ..FILES
    },
    tensors: &[NORM, LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS, deepseek2::EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[(&[Role::Q, Role::K, Role::V], Bias::Flag("attention_bias")), (&[Role::ChoiceBias], Bias::Always)],
    block: BlockTable {
        head_norm_flag: Some("use_qk_norm"),
        factors: &[Factor { config_default: Some((1.0, CONFIG)), ..ROUTED_SCALE }],
        ..BLOCK
    },
    experts: Some(ExpertTable {
        optional: false,
        dense_layers: Some(DenseLayers { first: FIRST_DENSE, config_first: (1, CONFIG), ..DENSE }),
        ..deepseek3::ROUTING
    }),
    rope: RopeTable { rotary_part: Some((0.5, CONFIG)), ..ROPE },
    head: HeadTable { tied: (false, CONFIG), ..deepseek2::PREDICTED },
    name: "GLM 4.5",
    ..LLAMA_LIKE
};
