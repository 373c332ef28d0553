//! Jina's embeddings 2 by its own code: BERT with ALiBi in place of positions and a gate.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,        gguf: "token_embd",               config: "bert.embeddings.word_embeddings" },
    TensorName { role: Role::TokenTypes,       gguf: "token_types",              config: "bert.embeddings.token_type_embeddings" },
    TensorName { role: Role::EmbeddingNorm,    gguf: "token_embd_norm",          config: "bert.embeddings.LayerNorm" },
    TensorName { role: Role::Q,                gguf: "blk.{}.attn_q",            config: "bert.encoder.layer.{}.attention.self.query" },
    TensorName { role: Role::K,                gguf: "blk.{}.attn_k",            config: "bert.encoder.layer.{}.attention.self.key" },
    TensorName { role: Role::V,                gguf: "blk.{}.attn_v",            config: "bert.encoder.layer.{}.attention.self.value" },
    TensorName { role: Role::O,                gguf: "blk.{}.attn_output",       config: "bert.encoder.layer.{}.attention.output.dense" },
    TensorName { role: Role::AttentionSumNorm, gguf: "blk.{}.attn_output_norm",  config: "bert.encoder.layer.{}.attention.output.LayerNorm" },
    TensorName { role: Role::Gate,             gguf: "blk.{}.ffn_gate",          config: "" },
    TensorName { role: Role::Up,               gguf: "blk.{}.ffn_up",            config: "" },
    TensorName { role: Role::Down,             gguf: "blk.{}.ffn_down",          config: "bert.encoder.layer.{}.mlp.wo" },
    TensorName { role: Role::MlpSumNorm,       gguf: "blk.{}.layer_output_norm", config: "bert.encoder.layer.{}.mlp.layernorm" },
];

pub(super) const FAMILY: Family = Family {
    id: "jina-bert",
    gguf_architectures: &["jina-bert-v2"],
    model_types: &[("bert", &["JinaBertModel", "JinaBertForMaskedLM"])],
    files: FileTable {
        refused: &[
            Refusal::Unless(Key::config("position_embedding_type"), &["alibi"], "positions"),
            Refusal::Unless(Key::config("feed_forward_type"), &["geglu"], "feed-forward layers"),
            Refusal::Set("is_decoder", "attention only to earlier positions"),
            Refusal::Set("add_cross_attention", "cross attention"),
        ],
        ..bert::FAMILY.files
    },
    tensors: &[TENSORS],
    fused: &[QKV, FusedName { config: "bert.encoder.layer.{}.mlp.gated_layers", ..GATE_UP }],
    biases: &[(&[Role::Q, Role::K, Role::V, Role::O, Role::Down], Bias::Always)],
    block: BlockTable {
        activation: (Activation::GeGluErf { gate: () }, &["gelu"]),
        factors: &[ALIBI],
        ..bert::FAMILY.block
    },
    head: HeadTable { classifier: None, ..bert::FAMILY.head },
    variants: &[],
    name: "Jina Embeddings 2",
    ..bert::FAMILY
};
