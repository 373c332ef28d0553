//! K-EXAONE: windows, rotation and norms of heads as in EXAONE 4, norms before sub-layers, and DeepSeek V3's experts.

use super::*;

#[rustfmt::skip]
const BIAS: &[TensorName] = &[
    TensorName { role: Role::ChoiceBias, gguf: "blk.{}.exp_probs_b.bias", config: "model.layers.{}.mlp.e_score_correction_bias" },
];

const CONFIG: &str = "the default of transformers' ExaoneMoeConfig";

pub(super) const FAMILY: Family = Family {
    id: "exaonemoe",
    gguf_architectures: &["exaone-moe"],
    model_types: &[("exaone_moe", &["ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"])],
    wrappers: &[],
    files: FileTable {
        aliases: &[("first_k_dense_replace", "first_last_k_dense_replace")],
        defaults: &[&[
            ("max_position_embeddings", 2048.0),
            ("moe_intermediate_size", 1024.0),
            ("num_experts_per_tok", 8.0),
            ("num_shared_experts", 1.0),
            ("n_group", 1.0),
            ("topk_group", 1.0),
            ("rms_norm_eps", 1e-5),
        ]],
        defaults_source: CONFIG,
        refused: &[Refusal::Unless(Key::config("scoring_func"), &["sigmoid"], "other scores of experts")],
        ..FILES
    },
    tensors: &[BIAS, LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS, deepseek2::EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[(&[Role::ChoiceBias], Bias::Always)],
    window: Window::Pattern(WindowPattern {
        full_every: 4,
        config_key: "sliding_window_pattern",
        source: CONFIG,
        model_types: &["exaone_moe"],
        ..PATTERN
    }),
    block: BlockTable { factors: &[Factor { config_default: Some((2.5, CONFIG)), ..ROUTED_SCALE }], ..BLOCK },
    experts: Some(ExpertTable {
        count: QWEN_COUNT,
        optional: false,
        shared_feed_forward: Some(Key { config: "", ..SHARED_WIDTH }),
        shared_count: Some(SHARED_COUNT),
        scores: Some(("", SOFTMAX_OR_SIGMOID)),
        dense_layers: Some(DenseLayers { first: FIRST_DENSE, config_first: (1, CONFIG), kinds: MLP_KINDS, ..DENSE }),
        ..deepseek3::ROUTING
    }),
    name: "K-EXAONE",
    ..exaone4::FAMILY
};
