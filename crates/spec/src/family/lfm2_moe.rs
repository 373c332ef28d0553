//! LFM2 with experts: LFM2-8B-A1B, LFM2-24B-A2B.

use super::*;

#[rustfmt::skip]
const EXPERTS: &[TensorName] = &[
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",     config: "model.layers.{}.feed_forward.gate" },
    TensorName { role: Role::ChoiceBias, gguf: "blk.{}.exp_probs_b.bias", config: "model.layers.{}.feed_forward.expert_bias" },
    TensorName { role: Role::ExpertGate, gguf: "blk.{}.ffn_gate_exps",    config: "model.layers.{}.feed_forward.experts.{expert}.w1" },
    TensorName { role: Role::ExpertUp,   gguf: "blk.{}.ffn_up_exps",      config: "model.layers.{}.feed_forward.experts.{expert}.w3" },
    TensorName { role: Role::ExpertDown, gguf: "blk.{}.ffn_down_exps",    config: "model.layers.{}.feed_forward.experts.{expert}.w2" },
];

const CONFIG: &str = "the default of transformers' Lfm2MoeConfig";

pub(super) const FAMILY: Family = Family {
    id: "lfm2moe",
    gguf_architectures: &["lfm2moe"],
    model_types: &[("lfm2_moe", &["Lfm2MoeForCausalLM"])],
    wrappers: &[],
    files: FileTable { adjusted_width: None, refused: &[], ..lfm2::FAMILY.files },
    tensors: &[EMBEDDING_TO_VALUES, lfm2::TENSORS, EXPERTS],
    fused: &[
        FusedName::new(EXPERT_GATE_UP, "blk.{}.ffn_gate_up_exps", "model.layers.{}.feed_forward.experts.gate_up_proj"),
        FusedName::new(&[Role::ExpertDown], "", "model.layers.{}.feed_forward.experts.down_proj"),
    ],
    biases: &[lfm2::CONV_BIAS, (&[Role::ChoiceBias], Bias::UnlessFlag("use_expert_bias"))],
    block: BlockTable { factors: &[ROUTED_SCALE], ..lfm2::FAMILY.block },
    experts: Some(ExpertTable {
        score: RouterScore::Sigmoid,
        normalized: Normalized::Flag { config: "norm_topk_prob", absent: true, gguf: true },
        // As in transformers' `Lfm2MoeTopKRouter`.
        added_to_sum: 1e-6,
        dense_layers: Some(DenseLayers {
            first: Key { config: "num_dense_layers", ..FIRST_DENSE },
            config_first: (2, CONFIG),
            ..DENSE
        }),
        ..QWEN_ROUTED
    }),
    rope: RopeTable { theta: Some((1_000_000.0, CONFIG)), ..lfm2::FAMILY.rope },
    head: HeadTable { tied: (true, CONFIG), images: None, ..lfm2::FAMILY.head },
    name: "LFM2 MoE",
    ..lfm2::FAMILY
};
