//! DeBERTa 2 and 3: rerankers (mxbai-rerank-v1), NLI, prompt guards. BERT whose scores have terms by relative positions.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,            gguf: "", config: "deberta.embeddings.word_embeddings" },
    TensorName { role: Role::Positions,            gguf: "", config: "deberta.embeddings.position_embeddings" },
    TensorName { role: Role::TokenTypes,           gguf: "", config: "deberta.embeddings.token_type_embeddings" },
    TensorName { role: Role::EmbeddingProjection,  gguf: "", config: "deberta.embeddings.embed_proj" },
    TensorName { role: Role::EmbeddingNorm,        gguf: "", config: "deberta.embeddings.LayerNorm" },
    TensorName { role: Role::RelativePositions,    gguf: "", config: "deberta.encoder.rel_embeddings" },
    TensorName { role: Role::RelativePositionNorm, gguf: "", config: "deberta.encoder.LayerNorm" },
    TensorName { role: Role::Q,                    gguf: "", config: "deberta.encoder.layer.{}.attention.self.query_proj" },
    TensorName { role: Role::K,                    gguf: "", config: "deberta.encoder.layer.{}.attention.self.key_proj" },
    TensorName { role: Role::V,                    gguf: "", config: "deberta.encoder.layer.{}.attention.self.value_proj" },
    TensorName { role: Role::PositionKey,          gguf: "", config: "deberta.encoder.layer.{}.attention.self.pos_key_proj" },
    TensorName { role: Role::PositionQuery,        gguf: "", config: "deberta.encoder.layer.{}.attention.self.pos_query_proj" },
    TensorName { role: Role::O,                    gguf: "", config: "deberta.encoder.layer.{}.attention.output.dense" },
    TensorName { role: Role::AttentionSumNorm,     gguf: "", config: "deberta.encoder.layer.{}.attention.output.LayerNorm" },
    TensorName { role: Role::Up,                   gguf: "", config: "deberta.encoder.layer.{}.intermediate.dense" },
    TensorName { role: Role::Down,                 gguf: "", config: "deberta.encoder.layer.{}.output.dense" },
    TensorName { role: Role::MlpSumNorm,           gguf: "", config: "deberta.encoder.layer.{}.output.LayerNorm" },
    TensorName { role: Role::ClassifierDense,      gguf: "", config: "pooler.dense" },
    TensorName { role: Role::Classifier,           gguf: "", config: "classifier" },
];

const CONFIG: &str = "the default of transformers' DebertaV2Config";

pub(super) const FAMILY: Family = Family {
    id: "deberta-v2",
    gguf_architectures: &[],
    model_types: &[("deberta-v2", &["DebertaV2Model", "DebertaV2ForMaskedLM", "DebertaV2ForSequenceClassification"])],
    files: FileTable {
        keys: Keys { head_dim: Key { config: "attention_head_size", ..KEYS.head_dim }, ..HEADS_ALIKE_KEYS },
        defaults: &[&[("layer_norm_eps", 1e-7), ("max_position_embeddings", 512.0)]],
        defaults_source: CONFIG,
        unneeded: &[
            "deberta.embeddings.position_ids",
            "deberta.embeddings.position_embeddings.",
            "cls.predictions.",
            "lm_predictions.",
            "mask_predictions.",
        ],
        refused: &[Refusal::Set("conv_kernel_size", "a convolution beside the first layer")],
        ..bert::FAMILY.files
    },
    tensors: &[TENSORS],
    fused: &[],
    biases: &[
        (&[Role::PositionKey, Role::PositionQuery], Bias::Always),
        bert::FAMILY.biases[0],
        bert::FAMILY.biases[1],
    ],
    block: BlockTable { disentangled: true, ..bert::FAMILY.block },
    head: HeadTable {
        embedding_width: Some("embedding_size"),
        positions_flag: Some("position_biased_input"),
        token_types: Some((Key::config("type_vocab_size"), 0, CONFIG)),
        classifier: Some(ClassifierTable {
            pooling: Some(Pooling::Cls),
            activation_key: Some("pooler_hidden_act"),
            dense: Some(DenseActivation::Gelu),
            ..SCORE
        }),
        ..bert::FAMILY.head
    },
    variants: &[],
    name: "DeBERTa 2",
    ..bert::FAMILY
};
