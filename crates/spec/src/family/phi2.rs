//! Phi: Phi-1, Phi-1.5 and Phi-2.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::FinalNorm,     gguf: "output_norm",         config: "model.final_layernorm" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",    config: "model.layers.{}.input_layernorm" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output",  config: "model.layers.{}.self_attn.dense" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",       config: "model.layers.{}.mlp.fc1" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",     config: "model.layers.{}.mlp.fc2" },
];

pub(super) const FAMILY: Family = Family {
    id: "phi2",
    gguf_architectures: &["phi2"],
    model_types: &[("phi", &["PhiForCausalLM"])],
    files: FileTable {
        keys: LAYER_NORM_KEYS,
        refused: &[Refusal::Set("qk_layernorm", "norms of queries and keys")],
        ..FILES
    },
    tensors: &[EMBEDDING_TO_VALUES, TENSORS],
    fused: &[QKV],
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down, Role::Head], Bias::Always)],
    block: BlockTable {
        norm: NormKind::Layer,
        activation: (Activation::GeluTanh, &["gelu_new", "gelu_pytorch_tanh"]),
        parallel: Parallel::Yes,
        ..BLOCK
    },
    rope: RopeTable { rotary_part: Some((0.5, "the default of transformers' PhiConfig")), ..ROPE },
    head: HeadTable { tied: (false, "the default of transformers' PhiConfig"), ..HEAD },
    variants: &[
        Variant { name: "Phi-2", any: &[&[Hidden(2560), Layers(32)], &[Name("phi-2")]] },
        // Phi-1 has the same sizes and tokenizer, so it is named Phi-1.5 too.
        Variant { name: "Phi-1.5", any: &[&[Hidden(2048), Layers(24)]] },
    ],
    name: "Phi",
    ..LLAMA_LIKE
};
