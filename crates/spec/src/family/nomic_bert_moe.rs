//! Nomic BERT with experts in every other layer: nomic-embed-text-v2-moe. Its safetensors have code of their own.

use super::*;

#[rustfmt::skip]
const EXPERTS: &[TensorName] = &[
    TensorName { role: Role::Router,     gguf: "blk.{}.ffn_gate_inp",  config: "" },
    TensorName { role: Role::ExpertUp,   gguf: "blk.{}.ffn_up_exps",   config: "" },
    TensorName { role: Role::ExpertDown, gguf: "blk.{}.ffn_down_exps", config: "" },
];

pub(super) const FAMILY: Family = Family {
    id: "nomic-bert-moe",
    gguf_architectures: &["nomic-bert-moe"],
    model_types: &[],
    files: bert::FAMILY.files,
    tensors: &[nomic_bert::TENSORS, EXPERTS],
    fused: &[QKV],
    // llama.cpp's converter leaves the bias of experts out.
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::Always)],
    block: bert::FAMILY.block,
    experts: Some(ExpertTable { dense_layers: Some(DenseLayers { gguf_without_router: true, ..DENSE }), ..ROUTED }),
    name: "Nomic BERT MoE",
    ..nomic_bert::FAMILY
};
