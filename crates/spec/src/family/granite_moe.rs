//! Granite with experts: Granite 3.0 and 3.1 of 1B-A400M and 3B-A800M, with or without a shared expert.

use super::granite::{FACTORS, REFUSED};
use super::*;

#[rustfmt::skip]
pub(super) const EXPERTS: &[TensorName] = &[
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",   config: "model.layers.{}.block_sparse_moe.router.layer" },
    TensorName { role: Role::ExpertGate, gguf: "blk.{}.ffn_gate_exps",  config: "model.layers.{}.block_sparse_moe.input_linear" },
    TensorName { role: Role::ExpertUp,   gguf: "blk.{}.ffn_up_exps",    config: "model.layers.{}.block_sparse_moe.input_linear" },
    TensorName { role: Role::ExpertDown, gguf: "blk.{}.ffn_down_exps",  config: "model.layers.{}.block_sparse_moe.output_linear" },
    TensorName { role: Role::SharedGate, gguf: "blk.{}.ffn_gate_shexp", config: "model.layers.{}.shared_mlp.input_linear" },
    TensorName { role: Role::SharedUp,   gguf: "blk.{}.ffn_up_shexp",   config: "model.layers.{}.shared_mlp.input_linear" },
    TensorName { role: Role::SharedDown, gguf: "blk.{}.ffn_down_shexp", config: "model.layers.{}.shared_mlp.output_linear" },
];

pub(super) const FUSED_GATES: [FusedName; 2] = [
    FusedName::new(EXPERT_GATE_UP, "", "model.layers.{}.block_sparse_moe.input_linear"),
    FusedName::new(&[Role::SharedGate, Role::SharedUp], "", "model.layers.{}.shared_mlp.input_linear"),
];

pub(super) const SHARED_WIDTH: Key =
    Key { gguf: ".expert_shared_feed_forward_length", config: "shared_intermediate_size" };

pub(super) const FAMILY: Family = Family {
    id: "granitemoe",
    gguf_architectures: &["granitemoe"],
    model_types: &[("granitemoe", &["GraniteMoeForCausalLM"]), ("granitemoeshared", &["GraniteMoeSharedForCausalLM"])],
    files: FileTable { refused: REFUSED, ..FILES },
    tensors: &[LLAMA_LIKE_TENSORS, EXPERTS],
    fused: &FUSED_GATES,
    biases: &[ATTENTION_BIAS],
    block: BlockTable { factors: FACTORS, ..BLOCK },
    experts: Some(ExpertTable {
        shared_feed_forward: Some(SHARED_WIDTH),
        // llama.cpp divides the softmax over all experts by the sum over the chosen ones, which gives the same weights.
        score: RouterScore::SoftmaxOfChosen,
        ..ROUTED
    }),
    rope: RopeTable {
        theta: Some((10_000.0, "the default of transformers' GraniteMoeConfig and of llama.cpp")),
        ..PERMUTED
    },
    head: HeadTable { tied: (false, "the default of transformers' GraniteMoeConfig"), ..HEAD },
    name: "Granite MoE",
    ..LLAMA_LIKE
};
