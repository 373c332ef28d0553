//! What the tables of several families with routed experts share.

use super::*;

/// A table to start from: experts of the family's own width, all layers alike.
pub(super) const ROUTED: ExpertTable = ExpertTable {
    flag: None,
    count: &[Key { gguf: ".expert_count", config: "num_local_experts" }],
    optional: false,
    chosen: Key { gguf: ".expert_used_count", config: "num_experts_per_tok" },
    feed_forward: None,
    shared_feed_forward: None,
    shared_count: None,
    with_shared: 1.0,
    score: RouterScore::Softmax,
    scores: None,
    groups: None,
    normalized: Normalized::Fixed(false),
    interleaved: false,
    by_inputs: ByInputs::No,
    added_to_sum: 0.0,
    least_sum: 0.0,
    by_root_of_width: false,
    input: ExpertInput::AfterMixer,
    dense_layers: None,
};

/// The default table with the keys of most families, whose experts have a width of their own.
pub(super) const QWEN_ROUTED: ExpertTable =
    ExpertTable { count: QWEN_COUNT, feed_forward: Some(EXPERT_WIDTH), ..ROUTED };

/// Number of experts of a layer: transformers 5 writes the second name, published files have the first.
pub(super) const QWEN_COUNT: &[Key] =
    &[Key { gguf: ".expert_count", config: "num_experts" }, Key { gguf: ".expert_count", config: "num_local_experts" }];

/// Width of an expert, where it is not the family's own.
pub(super) const EXPERT_WIDTH: Key = Key { gguf: ".expert_feed_forward_length", config: "moe_intermediate_size" };

/// The number of experts that every token uses.
pub(super) const SHARED_COUNT: Key = Key { gguf: ".expert_shared_count", config: "num_shared_experts" };

/// The layers of Qwen's families that have no experts.
pub(super) const QWEN_DENSE_LAYERS: DenseLayers =
    DenseLayers { step: Key::config("decoder_sparse_step"), list: "mlp_only_layers", ..DENSE };

/// Names of the expert tensors in Qwen's families and OLMoE: one tensor an expert in safetensors, one for all experts
/// of a layer in GGUF.
#[rustfmt::skip]
pub(super) const QWEN_EXPERTS: &[TensorName] = &[
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",  config: "model.layers.{}.mlp.gate" },
    TensorName { role: Role::ExpertGate, gguf: "blk.{}.ffn_gate_exps", config: "model.layers.{}.mlp.experts.{expert}.gate_proj" },
    TensorName { role: Role::ExpertUp,   gguf: "blk.{}.ffn_up_exps",   config: "model.layers.{}.mlp.experts.{expert}.up_proj" },
    TensorName { role: Role::ExpertDown, gguf: "blk.{}.ffn_down_exps", config: "model.layers.{}.mlp.experts.{expert}.down_proj" },
];

pub(super) const EXPERT_GATE_UP: &[Role] = &[Role::ExpertGate, Role::ExpertUp];

/// Names of the expert tensors where safetensors files too have one tensor for all experts of a layer.
pub(super) const FUSED_EXPERTS: &[FusedName] = &[
    FusedName::new(EXPERT_GATE_UP, "blk.{}.ffn_gate_up_exps", "model.layers.{}.mlp.experts.gate_up_proj"),
    FusedName::new(&[Role::ExpertDown], "", "model.layers.{}.mlp.experts.down_proj"),
];

/// Tensors of the experts as Mixtral and Phi-3.5-MoE name them; transformers 5 has other names of the router in memory.
#[rustfmt::skip]
pub(super) const MIXTRAL_EXPERTS: &[TensorName] = &[
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",  config: "model.layers.{}.block_sparse_moe.gate" },
    TensorName { role: Role::Router,     gguf: "",                     config: "model.layers.{}.mlp.gate" },
    TensorName { role: Role::Router,     gguf: "",                     config: "model.layers.{}.mlp.router" },
    TensorName { role: Role::ExpertGate, gguf: "blk.{}.ffn_gate_exps", config: "model.layers.{}.block_sparse_moe.experts.{expert}.w1" },
    TensorName { role: Role::ExpertUp,   gguf: "blk.{}.ffn_up_exps",   config: "model.layers.{}.block_sparse_moe.experts.{expert}.w3" },
    TensorName { role: Role::ExpertDown, gguf: "blk.{}.ffn_down_exps", config: "model.layers.{}.block_sparse_moe.experts.{expert}.w2" },
];

/// The factor of the weights of chosen experts.
pub(super) const ROUTED_SCALE: Factor =
    Factor::new(FactorOf::Experts, Key { gguf: ".expert_weights_scale", config: "routed_scaling_factor" });

/// The number of dense layers in front, by DeepSeek's keys.
pub(super) const FIRST_DENSE: Key = Key { gguf: ".leading_dense_block_count", config: "first_k_dense_replace" };

/// The key of a list of layers with and without experts.
pub(super) const MLP_KINDS: &str = "mlp_layer_types";

/// The scores that a GGUF file may say.
pub(super) const SOFTMAX_OR_SIGMOID: &[(&str, RouterScore)] =
    &[("softmax", RouterScore::Softmax), ("sigmoid", RouterScore::Sigmoid)];

/// Groups of experts as DeepSeek V3 has them.
pub(super) const GROUPS: GroupTable = GroupTable {
    count: Key { gguf: ".expert_group_count", config: "n_group" },
    chosen: Key { gguf: ".expert_group_used_count", config: "topk_group" },
    best: 2,
    method: None,
};
