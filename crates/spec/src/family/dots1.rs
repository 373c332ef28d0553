//! dots.llm1: norms of queries and keys as in Qwen3, and DeepSeek V3's experts.

use super::*;

const CONFIG: &str = "the default of transformers' Dots1Config";

pub(super) const FAMILY: Family = Family {
    id: "dots1",
    gguf_architectures: &["dots1"],
    model_types: &[("dots1", &["Dots1ForCausalLM"])],
    files: FileTable {
        defaults: &[&[
            ("max_position_embeddings", 2048.0),
            ("moe_intermediate_size", 1408.0),
            ("n_group", 1.0),
            ("topk_group", 1.0),
            ("rms_norm_eps", 1e-6),
        ]],
        defaults_source: CONFIG,
        // The published files have a name of the choice for the scores.
        refused: &[Refusal::Unless(Key::config("scoring_func"), &["sigmoid", "noaux_tc"], "other scores of experts")],
        ..FILES
    },
    tensors: &[LLAMA_LIKE_TENSORS, HEAD_NORMS, QWEN_EXPERTS, deepseek2::EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[ATTENTION_BIAS, (&[Role::ChoiceBias], Bias::Always)],
    window: Window::Flagged { flag: "", from: Some(62), source: CONFIG },
    block: BlockTable { factors: &[Factor { config_default: Some((1.0, CONFIG)), ..ROUTED_SCALE }], ..BLOCK },
    experts: Some(ExpertTable {
        optional: false,
        scores: Some(("", SOFTMAX_OR_SIGMOID)),
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: false, gguf: false },
        dense_layers: Some(DenseLayers { first: FIRST_DENSE, config_first: (0, CONFIG), ..DENSE }),
        ..deepseek3::ROUTING
    }),
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "dots.llm1",
    ..LLAMA_LIKE
};
