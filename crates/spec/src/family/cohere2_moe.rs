//! Cohere 2 with experts: Command A Plus, North Mini Code. Dense layers in front have no window and rotate; experts are averaged
//! with a shared one.

use super::*;

const CONFIG: &str = "the default of transformers' Cohere2MoeConfig";

const SCORES: &[(&str, RouterScore)] = &[("softmax", RouterScore::SoftmaxOfChosen), ("sigmoid", RouterScore::Sigmoid)];

pub(super) const FAMILY: Family = Family {
    id: "cohere2moe",
    gguf_architectures: &["cohere2moe"],
    model_types: &[("cohere2_moe", &["Cohere2MoeForCausalLM"])],
    files: FileTable {
        keys: Keys {
            feed_forward: Key { config: "prefix_dense_intermediate_size", ..KEYS.feed_forward },
            ..LAYER_NORM_KEYS
        },
        aliases: &[("prefix_dense_intermediate_size", "intermediate_size")],
        defaults: &[&[
            ("max_position_embeddings", 8192.0),
            ("head_dim", 128.0),
            ("num_experts_per_tok", 2.0),
            ("num_shared_experts", 0.0),
            ("layer_norm_eps", 1e-5),
        ]],
        defaults_source: CONFIG,
        refused: &[
            Refusal::Unless(
                Key::config("shared_expert_combination_strategy"),
                &["average"],
                "another combination with the shared expert",
            ),
            Refusal::Unless(Key::config("prefix_dense_sliding_window_pattern"), &["1"], "windows of dense layers"),
            Refusal::Set("use_qk_norm", "norms of queries and keys"),
            Refusal::AbsentGguf(".attention.sliding_window"),
            Refusal::AbsentGguf(".logit_scale"),
        ],
        ..FILES
    },
    tensors: &[WITHOUT_MLP_NORM, QWEN_EXPERTS, deepseek2::SHARED_EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[ATTENTION_BIAS],
    window: Window::Pattern(WindowPattern {
        full_every: 4,
        after_dense: true,
        config_key: "sliding_window_pattern",
        source: CONFIG,
        model_types: &["cohere2_moe"],
        ..PATTERN
    }),
    block: BlockTable { rms_key: Some(KEYS.norm_eps), ..cohere2::FAMILY.block },
    experts: Some(ExpertTable {
        count: QWEN_COUNT,
        feed_forward: Some(Key { config: "intermediate_size", ..EXPERT_WIDTH }),
        shared_feed_forward: Some(Key { config: "", ..SHARED_WIDTH }),
        shared_count: Some(SHARED_COUNT),
        with_shared: 0.5,
        score: RouterScore::Sigmoid,
        scores: Some(("expert_selection_fn", SCORES)),
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: true, gguf: false },
        dense_layers: Some(DenseLayers { first: FIRST_DENSE, config_first: (0, CONFIG), kinds: MLP_KINDS, ..DENSE }),
        ..ROUTED
    }),
    rope: RopeTable {
        unrotated: Some(Unrotated::WithoutWindow { unless_all: false, but_dense: true }),
        ..cohere2::FAMILY.rope
    },
    head: HeadTable { tied: (true, CONFIG), ..deepseek2::PREDICTED },
    name: "Cohere 2 MoE",
    ..LLAMA_LIKE
};
