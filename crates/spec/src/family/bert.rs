//! BERT: all-MiniLM, BGE, E5 and the like, which embed texts. Positions are rows of a matrix, and norms come after the sums.

use super::*;

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

const CONFIG: &str = "the default of transformers' BertConfig";

pub(super) const FAMILY: Family = Family {
    id: "bert",
    gguf_architectures: &["bert"],
    model_types: &[("bert", &["BertModel", "BertForMaskedLM", "BertForSequenceClassification"])],
    files: FileTable {
        keys: LAYER_NORM_KEYS,
        defaults: &[&[("layer_norm_eps", 1e-12)]],
        defaults_source: CONFIG,
        // Position numbers, and the layers after the blocks that only training uses.
        unneeded: &["bert.embeddings.position_ids", "bert.pooler.", "cls.predictions.", "cls.seq_relationship."],
        refused: &[
            Refusal::Text("position_embedding_type", "relative_key", "relative positions"),
            Refusal::Text("position_embedding_type", "relative_key_query", "relative positions"),
            Refusal::Set("is_decoder", "attention only to earlier positions"),
            Refusal::Set("add_cross_attention", "cross attention"),
            Refusal::Set("lora_adaptations", "adapters of its tasks (Jina Embeddings 3)"),
        ],
        ..FILES
    },
    tensors: &[TENSORS],
    fused: &[QKV],
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::Always),
        (&[Role::ClassifierDense, Role::Classifier], Bias::Always),
    ],
    block: BlockTable { norm: NormKind::Layer, activation: (Activation::Gelu, &["gelu"]), ..BLOCK },
    head: HeadTable {
        tied: (false, "an encoder has no output head"),
        encoder: Encoder::Yes { by_name: false },
        token_types: Some((Key { gguf: "tokenizer.ggml.token_type_count", config: "type_vocab_size" }, 2, CONFIG)),
        classifier: Some(ClassifierTable { pooling: Some(Pooling::Cls), dense: Some(DenseActivation::Tanh), ..SCORE }),
        ..HEAD
    },
    variants: &[Variant { name: "MiniLM", any: &[&[Hidden(384), Vocab(30522)]] }],
    name: "BERT",
    ..LLAMA_LIKE
};
