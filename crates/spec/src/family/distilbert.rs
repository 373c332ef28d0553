//! DistilBERT: BERT with other names and without token types; llama.cpp's converter makes BERT of it.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,        gguf: "", config: "distilbert.embeddings.word_embeddings" },
    TensorName { role: Role::Positions,        gguf: "", config: "distilbert.embeddings.position_embeddings" },
    TensorName { role: Role::EmbeddingNorm,    gguf: "", config: "distilbert.embeddings.LayerNorm" },
    TensorName { role: Role::Q,                gguf: "", config: "distilbert.transformer.layer.{}.attention.q_lin" },
    TensorName { role: Role::K,                gguf: "", config: "distilbert.transformer.layer.{}.attention.k_lin" },
    TensorName { role: Role::V,                gguf: "", config: "distilbert.transformer.layer.{}.attention.v_lin" },
    TensorName { role: Role::O,                gguf: "", config: "distilbert.transformer.layer.{}.attention.out_lin" },
    TensorName { role: Role::AttentionSumNorm, gguf: "", config: "distilbert.transformer.layer.{}.sa_layer_norm" },
    TensorName { role: Role::Up,               gguf: "", config: "distilbert.transformer.layer.{}.ffn.lin1" },
    TensorName { role: Role::Down,             gguf: "", config: "distilbert.transformer.layer.{}.ffn.lin2" },
    TensorName { role: Role::MlpSumNorm,       gguf: "", config: "distilbert.transformer.layer.{}.output_layer_norm" },
    TensorName { role: Role::ClassifierDense,  gguf: "", config: "pre_classifier" },
    TensorName { role: Role::Classifier,       gguf: "", config: "classifier" },
];

const CONFIG: &str = "the default of transformers' DistilBertConfig";

pub(super) const FAMILY: Family = Family {
    id: "distilbert",
    gguf_architectures: &[],
    model_types: &[(
        "distilbert",
        &["DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification"],
    )],
    files: FileTable {
        keys: Keys {
            hidden: Key { config: "dim", ..KEYS.hidden },
            feed_forward: Key { config: "hidden_dim", ..KEYS.feed_forward },
            layers: Key { config: "n_layers", ..KEYS.layers },
            heads: Key { config: "n_heads", ..KEYS.heads },
            norm_eps: Key { config: "layer_norm_eps", ..LAYER_NORM_KEYS.norm_eps },
            ..HEADS_ALIKE_KEYS
        },
        aliases: &[("hidden_act", "activation")],
        defaults: &[&[("layer_norm_eps", 1e-12), ("max_position_embeddings", 512.0), ("vocab_size", 30_522.0)]],
        defaults_source: CONFIG,
        unneeded: &["vocab_transform.", "vocab_layer_norm.", "vocab_projector."],
        refused: &[],
        ..bert::FAMILY.files
    },
    tensors: &[TENSORS],
    fused: &[],
    block: BlockTable { other_activations: &[(Activation::Relu, &["relu"])], ..bert::FAMILY.block },
    head: HeadTable {
        token_types: None,
        classifier: Some(ClassifierTable { pooling: Some(Pooling::Cls), dense: Some(DenseActivation::Relu), ..SCORE }),
        ..bert::FAMILY.head
    },
    variants: &[],
    name: "DistilBERT",
    ..bert::FAMILY
};
