//! MPNet: all-mpnet-base. RoBERTa with other names, without token types, and with scores by the distance of positions.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,        gguf: "", config: "mpnet.embeddings.word_embeddings" },
    TensorName { role: Role::Positions,        gguf: "", config: "mpnet.embeddings.position_embeddings" },
    TensorName { role: Role::EmbeddingNorm,    gguf: "", config: "mpnet.embeddings.LayerNorm" },
    TensorName { role: Role::Distances,        gguf: "", config: "mpnet.encoder.relative_attention_bias" },
    TensorName { role: Role::Q,                gguf: "", config: "mpnet.encoder.layer.{}.attention.attn.q" },
    TensorName { role: Role::K,                gguf: "", config: "mpnet.encoder.layer.{}.attention.attn.k" },
    TensorName { role: Role::V,                gguf: "", config: "mpnet.encoder.layer.{}.attention.attn.v" },
    TensorName { role: Role::O,                gguf: "", config: "mpnet.encoder.layer.{}.attention.attn.o" },
    TensorName { role: Role::AttentionSumNorm, gguf: "", config: "mpnet.encoder.layer.{}.attention.LayerNorm" },
    TensorName { role: Role::Up,               gguf: "", config: "mpnet.encoder.layer.{}.intermediate.dense" },
    TensorName { role: Role::Down,             gguf: "", config: "mpnet.encoder.layer.{}.output.dense" },
    TensorName { role: Role::MlpSumNorm,       gguf: "", config: "mpnet.encoder.layer.{}.output.LayerNorm" },
    TensorName { role: Role::ClassifierDense,  gguf: "", config: "classifier.dense" },
    TensorName { role: Role::Classifier,       gguf: "", config: "classifier.out_proj" },
];

pub(super) const FAMILY: Family = Family {
    id: "mpnet",
    gguf_architectures: &[],
    model_types: &[("mpnet", &["MPNetModel", "MPNetForMaskedLM", "MPNetForSequenceClassification"])],
    files: FileTable {
        defaults_source: "the default of transformers' MPNetConfig",
        unneeded: &["mpnet.embeddings.position_ids", "mpnet.pooler.", "lm_head."],
        // transformers' MPNetEncoder computes with 32, whatever the key says.
        refused: &[Refusal::Unless(Key::config("relative_attention_num_buckets"), &["32"], "buckets of distances")],
        ..bert::FAMILY.files
    },
    tensors: &[TENSORS],
    fused: &[],
    head: HeadTable { padding: Some(("", 1, "transformers' MPNetEmbeddings")), token_types: None, ..bert::FAMILY.head },
    variants: &[],
    name: "MPNet",
    ..bert::FAMILY
};
