//! DBRX: experts, LayerNorm without biases, a limit of queries, keys and values. A table of GGUF alone: its safetensors hold experts otherwise.

use super::*;

#[rustfmt::skip]
const NORM: &[TensorName] = &[
    TensorName { role: Role::MlpNorm, gguf: "blk.{}.attn_output_norm", config: "" },
];

pub(super) const FAMILY: Family = Family {
    id: "dbrx",
    gguf_architectures: &["dbrx"],
    files: FileTable { keys: LAYER_NORM_KEYS, refused: &[Refusal::AbsentGguf(".attention.clamp_kqv")], ..FILES },
    tensors: &[WITHOUT_MLP_NORM, NORM, QWEN_EXPERTS],
    fused: &[QKV],
    block: BlockTable {
        norm: NormKind::PlainLayer,
        factors: &[Factor::new(FactorOf::QkvLimit, Key::gguf(".attention.clamp_kqv"))],
        ..BLOCK
    },
    experts: Some(ExpertTable { normalized: Normalized::Fixed(true), ..ROUTED }),
    name: "DBRX",
    ..LLAMA_LIKE
};
