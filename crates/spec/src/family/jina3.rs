//! Jina's embeddings 3 without the adapters of its tasks: XLM-RoBERTa with rotated queries and keys.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,        gguf: "token_embd",               config: "roberta.embeddings.word_embeddings" },
    TensorName { role: Role::TokenTypes,       gguf: "token_types",              config: "roberta.embeddings.token_type_embeddings" },
    TensorName { role: Role::EmbeddingNorm,    gguf: "token_embd_norm",          config: "roberta.emb_ln" },
    TensorName { role: Role::Q,                gguf: "blk.{}.attn_q",            config: "roberta.encoder.layers.{}.mixer.q" },
    TensorName { role: Role::K,                gguf: "blk.{}.attn_k",            config: "roberta.encoder.layers.{}.mixer.k" },
    TensorName { role: Role::V,                gguf: "blk.{}.attn_v",            config: "roberta.encoder.layers.{}.mixer.v" },
    TensorName { role: Role::O,                gguf: "blk.{}.attn_output",       config: "roberta.encoder.layers.{}.mixer.out_proj" },
    TensorName { role: Role::AttentionSumNorm, gguf: "blk.{}.attn_output_norm",  config: "roberta.encoder.layers.{}.norm1" },
    TensorName { role: Role::Up,               gguf: "blk.{}.ffn_up",            config: "roberta.encoder.layers.{}.mlp.fc1" },
    TensorName { role: Role::Down,             gguf: "blk.{}.ffn_down",          config: "roberta.encoder.layers.{}.mlp.fc2" },
    TensorName { role: Role::MlpSumNorm,       gguf: "blk.{}.layer_output_norm", config: "roberta.encoder.layers.{}.norm2" },
    TensorName { role: Role::ClassifierDense,  gguf: "cls",                      config: "classifier.dense" },
    TensorName { role: Role::Classifier,       gguf: "cls.output",               config: "classifier.out_proj" },
];

const CONFIG: &str = "the default of transformers' JinaEmbeddingsV3Config";

pub(super) const FAMILY: Family = Family {
    id: "jina3",
    gguf_architectures: &["jina-bert-v3"],
    model_types: &[(
        "jina_embeddings_v3",
        &["JinaEmbeddingsV3Model", "JinaEmbeddingsV3ForMaskedLM", "JinaEmbeddingsV3ForSequenceClassification"],
    )],
    files: FileTable {
        defaults: &[&[("layer_norm_eps", 1e-5)]],
        defaults_source: CONFIG,
        unneeded: &["roberta.pooler.", "lm_head."],
        refused: &[],
        ..bert::FAMILY.files
    },
    tensors: &[TENSORS],
    fused: &[FusedName { config: "roberta.encoder.layers.{}.mixer.Wqkv", ..QKV }],
    rope: RopeTable { theta: Some((20_000.0, CONFIG)), ..ROPE },
    head: HeadTable {
        token_types: Some((Key { gguf: "tokenizer.ggml.token_type_count", config: "type_vocab_size" }, 1, CONFIG)),
        ..bert::FAMILY.head
    },
    variants: &[],
    name: "Jina Embeddings 3",
    ..bert::FAMILY
};
