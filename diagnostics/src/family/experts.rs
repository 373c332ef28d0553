//! The shape of a table's part on routed experts, and the names that several families share.

use super::{FusedName, Key, Role, TensorName};
use crate::block::RouterScore;

/// How the feed-forward layers of a family are divided into experts.
#[derive(Clone, Copy, Debug)]
pub struct ExpertTable {
    /// The flag of `config.json` without which there are none; in GGUF there are where their number is stored.
    pub flag: Option<&'static str>,
    /// Experts of a layer; the first key that is there counts.
    pub count: &'static [Key],
    /// Experts that a token is given to.
    pub chosen: Key,
    /// Width of an expert; the family's own feed-forward width where this is `None`.
    pub feed_forward: Option<Key>,
    /// Width of the expert that every token is given to, where there is one.
    pub shared_feed_forward: Option<Key>,
    /// What the router's outputs become.
    pub score: RouterScore,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub normalized: Normalized,
    /// Whether safetensors files have all of a layer in one parameter, gate and up in turns: floats `[experts, inputs,
    /// outputs]`, or MXFP4 as blocks and scales.
    pub interleaved: bool,
    /// What is added to that sum.
    pub added_to_sum: f32,
    /// Whether the router's outputs are divided by the root of the width.
    pub by_root_of_width: bool,
    /// Keys that leave layers without experts.
    pub dense_layers: Option<DenseLayers>,
}

/// Whether the weights of the chosen experts are divided by their sum.
#[derive(Clone, Copy, Debug)]
pub enum Normalized {
    /// In every model of the family, or in none.
    Fixed(bool),
    /// As a flag of `config.json` says; in GGUF as llama.cpp computes the architecture.
    Flag {
        /// The flag.
        config: &'static str,
        /// What its absence means, by the default of transformers.
        absent: bool,
        /// What holds in GGUF.
        gguf: bool,
    },
}

/// Keys that leave layers without experts.
#[derive(Clone, Copy, Debug)]
pub enum DenseLayers {
    /// Keys of `config.json`; GGUF has none for them.
    Listed {
        /// Layer `i`, from 0, has experts where this divides `i + 1`.
        step: &'static str,
        /// A list of layers without.
        list: &'static str,
    },
    /// The first so many have none.
    First {
        /// How many; none where a GGUF file does not say it.
        count: Key,
        /// How many where `config.json` does not say it, with its source.
        config_default: (usize, &'static str),
    },
}

/// A table to start from: experts of the family's own width, all layers alike.
pub(super) const ROUTED: ExpertTable = ExpertTable {
    flag: None,
    count: LOCAL_COUNT,
    chosen: CHOSEN,
    feed_forward: None,
    shared_feed_forward: None,
    score: RouterScore::Softmax,
    normalized: Normalized::Fixed(false),
    interleaved: false,
    added_to_sum: 0.0,
    by_root_of_width: false,
    dense_layers: None,
};

/// Experts of a layer: transformers 5 writes the second name, published files have the first.
pub(super) const QWEN_COUNT: &[Key] =
    &[Key { gguf: ".expert_count", config: "num_experts" }, Key { gguf: ".expert_count", config: "num_local_experts" }];

/// Experts of a layer in the other families.
pub(super) const LOCAL_COUNT: &[Key] = &[Key { gguf: ".expert_count", config: "num_local_experts" }];

/// Experts that a token is given to.
pub(super) const CHOSEN: Key = Key { gguf: ".expert_used_count", config: "num_experts_per_tok" };

/// Width of an expert, where it is not the family's own.
pub(super) const EXPERT_WIDTH: Key = Key { gguf: ".expert_feed_forward_length", config: "moe_intermediate_size" };

/// The layers of Qwen's families that have no experts.
pub(super) const QWEN_DENSE_LAYERS: DenseLayers =
    DenseLayers::Listed { step: "decoder_sparse_step", list: "mlp_only_layers" };

/// Tensors of the experts as Qwen's families and OLMoE name them: one each in `config.json`'s checkpoints, all of a layer in
/// one in GGUF.
#[rustfmt::skip]
pub(super) const QWEN_EXPERTS: &[TensorName] = &[
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",  config: "model.layers.{}.mlp.gate" },
    TensorName { role: Role::ExpertGate, gguf: "blk.{}.ffn_gate_exps", config: "model.layers.{}.mlp.experts.{expert}.gate_proj" },
    TensorName { role: Role::ExpertUp,   gguf: "blk.{}.ffn_up_exps",   config: "model.layers.{}.mlp.experts.{expert}.up_proj" },
    TensorName { role: Role::ExpertDown, gguf: "blk.{}.ffn_down_exps", config: "model.layers.{}.mlp.experts.{expert}.down_proj" },
];

/// The same in one tensor for all experts of a layer.
pub(super) const FUSED_EXPERTS: &[FusedName] = &[
    FusedName {
        roles: &[Role::ExpertGate, Role::ExpertUp],
        gguf: Some("blk.{}.ffn_gate_up_exps"),
        config: Some("model.layers.{}.mlp.experts.gate_up_proj"),
    },
    FusedName { roles: &[Role::ExpertDown], gguf: None, config: Some("model.layers.{}.mlp.experts.down_proj") },
];

/// Tensors of the experts as Mixtral and Phi-3.5-MoE name them.
#[rustfmt::skip]
pub(super) const MIXTRAL_EXPERTS: &[TensorName] = &[
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",  config: "model.layers.{}.block_sparse_moe.gate" },
    TensorName { role: Role::ExpertGate, gguf: "blk.{}.ffn_gate_exps", config: "model.layers.{}.block_sparse_moe.experts.{expert}.w1" },
    TensorName { role: Role::ExpertUp,   gguf: "blk.{}.ffn_up_exps",   config: "model.layers.{}.block_sparse_moe.experts.{expert}.w3" },
    TensorName { role: Role::ExpertDown, gguf: "blk.{}.ffn_down_exps", config: "model.layers.{}.block_sparse_moe.experts.{expert}.w2" },
];
