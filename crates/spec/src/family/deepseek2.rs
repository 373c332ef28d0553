//! DeepSeek V2: V2-Lite, Coder-V2-Lite. In GGUF also what is DeepSeek V3 or GLM-4.7-Flash in safetensors.

use super::*;

#[rustfmt::skip]
pub(super) const LATENTS: &[TensorName] = &[
    TensorName { role: Role::QDown,        gguf: "blk.{}.attn_q_a",       config: "model.layers.{}.self_attn.q_a_proj" },
    TensorName { role: Role::QDownNorm,    gguf: "blk.{}.attn_q_a_norm",  config: "model.layers.{}.self_attn.q_a_layernorm" },
    TensorName { role: Role::QUp,          gguf: "blk.{}.attn_q_b",       config: "model.layers.{}.self_attn.q_b_proj" },
    TensorName { role: Role::KvDown,       gguf: "blk.{}.attn_kv_a_mqa",  config: "model.layers.{}.self_attn.kv_a_proj_with_mqa" },
    TensorName { role: Role::KvDownNorm,   gguf: "blk.{}.attn_kv_a_norm", config: "model.layers.{}.self_attn.kv_a_layernorm" },
    TensorName { role: Role::KvUp,         gguf: "blk.{}.attn_kv_b",      config: "model.layers.{}.self_attn.kv_b_proj" },
    TensorName { role: Role::LatentKeys,   gguf: "blk.{}.attn_k_b",       config: "" },
    TensorName { role: Role::LatentValues, gguf: "blk.{}.attn_v_b",       config: "" },
];

#[rustfmt::skip]
pub(super) const EXPERTS: &[TensorName] = &[
    TensorName { role: Role::ChoiceBias, gguf: "blk.{}.exp_probs_b.bias", config: "model.layers.{}.mlp.gate.e_score_correction_bias" },
    TensorName { role: Role::SharedGate, gguf: "blk.{}.ffn_gate_shexp",   config: "model.layers.{}.mlp.shared_experts.gate_proj" },
    TensorName { role: Role::SharedUp,   gguf: "blk.{}.ffn_up_shexp",     config: "model.layers.{}.mlp.shared_experts.up_proj" },
    TensorName { role: Role::SharedDown, gguf: "blk.{}.ffn_down_shexp",   config: "model.layers.{}.mlp.shared_experts.down_proj" },
];

/// Those of the shared expert alone.
pub(super) const SHARED_EXPERTS: &[TensorName] = EXPERTS.split_at(1).1;

const CONFIG: &str = "the default of transformers' DeepseekV2Config";

pub(super) const ROUTING: ExpertTable = ExpertTable {
    count: &[Key { gguf: ".expert_count", config: "n_routed_experts" }],
    optional: true,
    feed_forward: Some(EXPERT_WIDTH),
    shared_count: Some(Key { config: "n_shared_experts", ..SHARED_COUNT }),
    scores: Some(("", SOFTMAX_OR_SIGMOID)),
    groups: Some(GroupTable { best: 1, method: Some(("topk_method", ["greedy", "group_limited_greedy"])), ..GROUPS }),
    normalized: Normalized::Flag { config: "norm_topk_prob", absent: false, gguf: false },
    // As in transformers' `DeepseekV3TopkRouter`.
    added_to_sum: 1e-20,
    dense_layers: Some(DenseLayers { first: FIRST_DENSE, config_first: (0, CONFIG), ..DENSE }),
    ..ROUTED
};

pub(super) const MOONLIGHT: Variant =
    Variant { name: "Moonlight", any: &[&[Layers(27), Hidden(2048), Vocab(163_840)]] };

pub(super) const BIAS: Biases = (&[Role::QDown, Role::KvDown, Role::O], Bias::Flag("attention_bias"));

/// The layers that predict further tokens come after the others in both formats.
pub(super) const PREDICTED: HeadTable = HeadTable {
    predictors: Some(Key { gguf: ".nextn_predict_layers", config: "num_nextn_predict_layers" }),
    predictors_after: true,
    ..HEAD
};

pub(super) const FAMILY: Family = Family {
    id: "deepseek2",
    gguf_architectures: &["deepseek2"],
    model_types: &[("deepseek_v2", &["DeepseekV2ForCausalLM"])],
    files: FileTable {
        defaults: &[&[
            ("max_position_embeddings", 2048.0),
            ("q_lora_rank", 1536.0),
            ("kv_lora_rank", 512.0),
            ("qk_nope_head_dim", 128.0),
            ("qk_rope_head_dim", 64.0),
            ("v_head_dim", 128.0),
            ("moe_intermediate_size", 1407.0),
            ("n_shared_experts", 2.0),
            ("rms_norm_eps", 1e-6),
        ]],
        defaults_source: CONFIG,
        refused: &[
            Refusal::Unless(Key::config("moe_layer_freq"), &["1"], "experts in some layers"),
            Refusal::Unless(Key::config("scoring_func"), &["softmax"], "other scores of experts"),
            // transformers does not read it, and the model's own code then leaves out the factor of the weights.
            Refusal::Set("norm_topk_prob", "weights of experts divided by their sum"),
        ],
        ..FILES
    },
    tensors: &[LLAMA_LIKE_TENSORS, LATENTS, QWEN_EXPERTS, EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[BIAS, MLP_BIAS, (&[Role::SharedGate, Role::SharedUp, Role::SharedDown], Bias::Flag("mlp_bias"))],
    block: BlockTable {
        // As transformers and the model's own code have it, whatever `rms_norm_eps` says.
        latent_eps: Some(1e-6),
        factors: &[Factor { config_default: Some((1.0, CONFIG)), ..ROUTED_SCALE }],
        ..BLOCK
    },
    experts: Some(ROUTING),
    rope: RopeTable {
        gguf_layout: RopeLayout::Interleaved,
        config_layout: RopeLayout::Interleaved,
        scores_by_magnitude: true,
        // Of Mistral Large 3.
        query_scale: Some(QueryScaling::Rotated(Key::gguf(".attention.temperature_scale"))),
        ..ROPE
    },
    head: HeadTable { tied: (false, CONFIG), ..PREDICTED },
    variants: &[
        Variant { name: "DeepSeek V2 Lite", any: &[&[Layers(27), Hidden(2048), Vocab(102_400)]] },
        MOONLIGHT,
        Variant { name: "GLM 4.7 Flash", any: &[&[Layers(47), Hidden(2048), Vocab(154_880)]] },
        Variant { name: "DeepSeek V3", any: &[&[SigmoidScores]] },
    ],
    name: "DeepSeek V2",
    ..LLAMA_LIKE
};
