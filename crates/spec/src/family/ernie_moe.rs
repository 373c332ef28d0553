//! ERNIE 4.5 with experts: 21B-A3B, 300B-A47B. A softmax with a bias that chooses; layers without experts in front and between.

use super::*;

#[rustfmt::skip]
const BIAS: &[TensorName] = &[
    TensorName { role: Role::ChoiceBias, gguf: "blk.{}.exp_probs_b.bias", config: "model.layers.{}.mlp.moe_statics.e_score_correction_bias" },
    TensorName { role: Role::ChoiceBias, gguf: "",                        config: "model.layers.{}.mlp.gate.moe_statics.e_score_correction_bias" },
];

const CONFIG: &str = "the default of transformers' Ernie4_5_MoeConfig";

pub(super) const FAMILY: Family = Family {
    id: "ernie45moe",
    gguf_architectures: &["ernie4_5-moe"],
    model_types: &[("ernie4_5_moe", &["Ernie4_5_MoeForCausalLM"])],
    files: FileTable {
        defaults: &[&[
            ("max_position_embeddings", 131_072.0),
            ("moe_intermediate_size", 1536.0),
            ("moe_k", 6.0),
            ("moe_num_shared_experts", 2.0),
            ("rms_norm_eps", 1e-5),
        ]],
        defaults_source: CONFIG,
        refused: &[
            Refusal::Unless(Key::config("moe_norm_min"), &["0.000000000001"], "another least sum of weights"),
            Refusal::Unless(Key::config("moe_gate"), &["topk"], "another choice of experts"),
        ],
        // Heads that predict further tokens.
        unneeded: &["model.mtp_"],
        ..FILES
    },
    tensors: &[BIAS, LLAMA_LIKE_TENSORS, QWEN_EXPERTS, deepseek2::EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[
        ernie::BIASES[0],
        (&[Role::SharedGate, Role::SharedUp, Role::SharedDown], Bias::Flag("use_bias")),
        (&[Role::ChoiceBias], Bias::Always),
    ],
    experts: Some(ExpertTable {
        count: &[Key { gguf: ".expert_count", config: "moe_num_experts" }],
        chosen: Key { gguf: ".expert_used_count", config: "moe_k" },
        feed_forward: Some(EXPERT_WIDTH),
        shared_feed_forward: Some(Key { config: "", ..SHARED_WIDTH }),
        shared_count: Some(Key { gguf: SHARED_COUNT.gguf, config: "moe_num_shared_experts" }),
        normalized: Normalized::Fixed(true),
        least_sum: 1e-12,
        dense_layers: Some(DenseLayers {
            first: Key { config: "moe_layer_start_index", ..FIRST_DENSE },
            config_first: (1, CONFIG),
            step: Key { gguf: ".interleave_moe_layer_step", config: "moe_layer_interval" },
            last: "moe_layer_end_index",
            ..DENSE
        }),
        ..ROUTED
    }),
    rope: RopeTable { theta: Some((500_000.0, CONFIG)), ..INTERLEAVED },
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    name: "ERNIE 4.5 MoE",
    ..LLAMA_LIKE
};
