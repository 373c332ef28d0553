//! RoBERTa and XLM-RoBERTa: bge-m3, bge-reranker, multilingual E5. BERT with other names, whose positions begin behind the padding
//! token; llama.cpp's converter makes BERT of it.

use super::{Bias, Family, Role, TensorName, bert};

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,        gguf: "", config: "roberta.embeddings.word_embeddings" },
    TensorName { role: Role::Positions,        gguf: "", config: "roberta.embeddings.position_embeddings" },
    TensorName { role: Role::TokenTypes,       gguf: "", config: "roberta.embeddings.token_type_embeddings" },
    TensorName { role: Role::EmbeddingNorm,    gguf: "", config: "roberta.embeddings.LayerNorm" },
    TensorName { role: Role::Q,                gguf: "", config: "roberta.encoder.layer.{}.attention.self.query" },
    TensorName { role: Role::K,                gguf: "", config: "roberta.encoder.layer.{}.attention.self.key" },
    TensorName { role: Role::V,                gguf: "", config: "roberta.encoder.layer.{}.attention.self.value" },
    TensorName { role: Role::O,                gguf: "", config: "roberta.encoder.layer.{}.attention.output.dense" },
    TensorName { role: Role::AttentionSumNorm, gguf: "", config: "roberta.encoder.layer.{}.attention.output.LayerNorm" },
    TensorName { role: Role::Up,               gguf: "", config: "roberta.encoder.layer.{}.intermediate.dense" },
    TensorName { role: Role::Down,             gguf: "", config: "roberta.encoder.layer.{}.output.dense" },
    TensorName { role: Role::MlpSumNorm,       gguf: "", config: "roberta.encoder.layer.{}.output.LayerNorm" },
    TensorName { role: Role::ClassifierDense,  gguf: "", config: "classifier.dense" },
    TensorName { role: Role::Classifier,       gguf: "", config: "classifier.out_proj" },
];

/// The table.
pub(super) const FAMILY: Family = Family {
    id: "roberta",
    gguf_architectures: &[],
    model_types: &[
        ("roberta", &["RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification"]),
        ("xlm-roberta", &["XLMRobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"]),
        ("camembert", &["CamembertModel", "CamembertForMaskedLM", "CamembertForSequenceClassification"]),
    ],
    config_defaults_source: "the default of transformers' RobertaConfig",
    tensors: &[TENSORS],
    unneeded: &["roberta.embeddings.position_ids", "roberta.pooler.", "lm_head."],
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::Always),
        (&[Role::ClassifierDense, Role::Classifier], Bias::Always),
    ],
    padding: Some(("pad_token_id", 1, "the default of transformers' RobertaConfig")),
    variants: &[],
    name: "RoBERTa",
    ..bert::FAMILY
};
