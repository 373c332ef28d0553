//! LFM2 with experts: LFM2-8B-A1B, LFM2-24B-A2B.

use super::experts::{EXPERT_WIDTH, QWEN_COUNT, ROUTED};
use super::{Bias, DenseLayers, ExpertTable, Factor, FactorOf, Family, Key, Normalized, Role, TensorName, lfm2};
use crate::block::RouterScore;

#[rustfmt::skip]
const EXPERTS: &[TensorName] = &[
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",     config: "model.layers.{}.feed_forward.gate" },
    TensorName { role: Role::ChoiceBias, gguf: "blk.{}.exp_probs_b.bias", config: "model.layers.{}.feed_forward.expert_bias" },
    TensorName { role: Role::ExpertGate, gguf: "blk.{}.ffn_gate_exps",    config: "model.layers.{}.feed_forward.experts.{expert}.w1" },
    TensorName { role: Role::ExpertUp,   gguf: "blk.{}.ffn_up_exps",      config: "model.layers.{}.feed_forward.experts.{expert}.w3" },
    TensorName { role: Role::ExpertDown, gguf: "blk.{}.ffn_down_exps",    config: "model.layers.{}.feed_forward.experts.{expert}.w2" },
];

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "lfm2moe",
    gguf_architectures: &["lfm2moe"],
    model_types: &[("lfm2_moe", &["Lfm2MoeForCausalLM"])],
    tensors: &[lfm2::TENSORS, EXPERTS],
    biases: &[lfm2::CONV_BIAS, (&[Role::ChoiceBias], Bias::UnlessFlag("use_expert_bias"))],
    factors: &[Factor {
        of: FactorOf::Experts,
        key: Key { gguf: ".expert_weights_scale", config: "routed_scaling_factor" },
        gguf_default: None,
        config_default: None,
    }],
    experts: Some(ExpertTable {
        count: QWEN_COUNT,
        feed_forward: Some(EXPERT_WIDTH),
        score: RouterScore::Sigmoid,
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: true, gguf: true },
        // transformers `Lfm2MoeTopKRouter`.
        added_to_sum: 1e-6,
        dense_layers: Some(DenseLayers::First {
            count: Key { gguf: ".leading_dense_block_count", config: "num_dense_layers" },
            config_default: (2, "the default of transformers' Lfm2MoeConfig"),
        }),
        ..ROUTED
    }),
    adjusted_width: None,
    needed_flags: &[],
    default_theta: Some((1_000_000.0, "the default of transformers' Lfm2MoeConfig")),
    default_tied: (true, "the default of transformers' Lfm2MoeConfig"),
    name: "LFM2 MoE",
    ..lfm2::FAMILY
};
