//! MiniMax-M2: experts chosen by sigmoids with a bias, norms over all heads of q and k.

use super::*;

#[rustfmt::skip]
const BIAS: &[TensorName] = &[
    TensorName { role: Role::ChoiceBias, gguf: "blk.{}.exp_probs_b.bias", config: "model.layers.{}.block_sparse_moe.e_score_correction_bias" },
    TensorName { role: Role::ChoiceBias, gguf: "",                        config: "model.layers.{}.mlp.e_score_correction_bias" },
];

const CONFIG: &str = "the default of transformers' MiniMaxM2Config";

pub(super) const FAMILY: Family = Family {
    id: "minimax_m2",
    gguf_architectures: &["minimax-m2"],
    model_types: &[("minimax_m2", &["MiniMaxM2ForCausalLM"])],
    files: FileTable {
        defaults: &[&[
            ("max_position_embeddings", 196_608.0),
            ("head_dim", 128.0),
            ("num_experts_per_tok", 8.0),
            ("rms_norm_eps", 1e-6),
        ]],
        defaults_source: CONFIG,
        // transformers reads none of these, and computes what they say.
        refused: &[
            Refusal::Unless(Key::config("scoring_func"), &["sigmoid"], "other scores of experts"),
            Refusal::Unset(Key::config("use_routing_bias"), "experts chosen without a bias"),
            Refusal::Unset(Key::config("use_qk_norm"), "no norms of queries and keys"),
            Refusal::Unless(Key::config("qk_norm_type"), &["per_layer"], "other norms of queries and keys"),
            Refusal::Set("shared_intermediate_size", "a shared expert"),
        ],
        ..FILES
    },
    tensors: &[BIAS, LLAMA_LIKE_TENSORS, HEAD_NORMS, MIXTRAL_EXPERTS],
    fused: FUSED_EXPERTS,
    biases: &[(&[Role::ChoiceBias], Bias::Always)],
    block: BlockTable { head_norms: HeadNorms::OfAllHeads, ..BLOCK },
    experts: Some(ExpertTable {
        score: RouterScore::Sigmoid,
        scores: Some(("", SOFTMAX_OR_SIGMOID)),
        normalized: Normalized::Fixed(true),
        ..ROUTED
    }),
    rope: RopeTable {
        theta: Some((5_000_000.0, CONFIG)),
        rotary_part: Some((1.0, CONFIG)),
        rotary_dim: Some(("rotary_dim", 0, "")),
        ..ROPE
    },
    head: HeadTable { tied: (false, CONFIG), ..HEAD },
    name: "MiniMax-M2",
    ..LLAMA_LIKE
};
