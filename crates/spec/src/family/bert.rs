//! BERT: all-MiniLM, BGE, E5 and the like, which embed texts. Positions are rows of a matrix, and norms stand behind the sums.

use super::{
    Bias, ClassifierTable, Evidence, Family, FusedName, Key, Keys, LLAMA_LIKE, LLAMA_LIKE_KEYS, NormKind, Role,
    TensorName, Variant,
};
use crate::block::{Activation, DenseActivation, Pooling};

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,        gguf: "token_embd",                config: "bert.embeddings.word_embeddings" },
    TensorName { role: Role::Positions,        gguf: "position_embd",             config: "bert.embeddings.position_embeddings" },
    TensorName { role: Role::TokenTypes,       gguf: "token_types",               config: "bert.embeddings.token_type_embeddings" },
    TensorName { role: Role::EmbeddingNorm,    gguf: "token_embd_norm",           config: "bert.embeddings.LayerNorm" },
    TensorName { role: Role::Q,                gguf: "blk.{}.attn_q",             config: "bert.encoder.layer.{}.attention.self.query" },
    TensorName { role: Role::K,                gguf: "blk.{}.attn_k",             config: "bert.encoder.layer.{}.attention.self.key" },
    TensorName { role: Role::V,                gguf: "blk.{}.attn_v",             config: "bert.encoder.layer.{}.attention.self.value" },
    TensorName { role: Role::O,                gguf: "blk.{}.attn_output",        config: "bert.encoder.layer.{}.attention.output.dense" },
    TensorName { role: Role::AttentionSumNorm, gguf: "blk.{}.attn_output_norm",   config: "bert.encoder.layer.{}.attention.output.LayerNorm" },
    TensorName { role: Role::Up,               gguf: "blk.{}.ffn_up",             config: "bert.encoder.layer.{}.intermediate.dense" },
    TensorName { role: Role::Down,             gguf: "blk.{}.ffn_down",           config: "bert.encoder.layer.{}.output.dense" },
    TensorName { role: Role::ClassifierDense,  gguf: "cls",                       config: "bert.pooler.dense" },
    TensorName { role: Role::Classifier,       gguf: "cls.output",                config: "classifier" },
    TensorName { role: Role::MlpSumNorm,       gguf: "blk.{}.layer_output_norm",  config: "bert.encoder.layer.{}.output.LayerNorm" },
];

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "bert",
    gguf_architectures: &["bert"],
    model_types: &[("bert", &["BertModel", "BertForMaskedLM", "BertForSequenceClassification"])],
    keys: Keys { norm_eps: Key { gguf: ".attention.layer_norm_epsilon", config: "layer_norm_eps" }, ..LLAMA_LIKE_KEYS },
    config_defaults: &[("layer_norm_eps", 1e-12)],
    config_defaults_source: "the default of transformers' BertConfig",
    tensors: &[TENSORS],
    fused: &[FusedName { roles: &[Role::Q, Role::K, Role::V], gguf: Some("blk.{}.attn_qkv"), config: None }],
    // Positions as numbers, and what is behind the blocks for training.
    unneeded: &["bert.embeddings.position_ids", "bert.pooler.", "cls.predictions.", "cls.seq_relationship."],
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::Always),
        (&[Role::ClassifierDense, Role::Classifier], Bias::Always),
    ],
    classifier: Some(ClassifierTable {
        pooling: Pooling::Cls,
        pooling_key: None,
        activation_key: None,
        dense: Some(DenseActivation::Tanh),
    }),
    norm: NormKind::Layer,
    encoder: true,
    token_types: Some((
        Key { gguf: "tokenizer.ggml.token_type_count", config: "type_vocab_size" },
        2,
        "the default of transformers' BertConfig",
    )),
    activation: (Activation::Gelu, &["gelu"]),
    refused_flags: &[
        ("is_decoder", "attention to earlier positions alone"),
        ("add_cross_attention", "cross attention"),
    ],
    refused_texts: &[
        ("position_embedding_type", "relative_key", "relative positions"),
        ("position_embedding_type", "relative_key_query", "relative positions"),
    ],
    gguf_needed_flags: &[],
    default_tied: (false, "an encoder has no output head"),
    variants: &[Variant { name: "MiniLM", any: &[&[Evidence::Hidden(384), Evidence::Vocab(30522)]] }],
    name: "BERT",
    ..LLAMA_LIKE
};
