//! GTE: gte-multilingual, gte-en-v1.5, snowflake-arctic-embed-m-v2.0. BERT with rotated queries and keys and a gate.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,        gguf: "", config: "gte.embeddings.word_embeddings" },
    TensorName { role: Role::TokenTypes,       gguf: "", config: "gte.embeddings.token_type_embeddings" },
    TensorName { role: Role::EmbeddingNorm,    gguf: "", config: "gte.embeddings.LayerNorm" },
    TensorName { role: Role::Q,                gguf: "", config: "gte.encoder.layer.{}.attention.q_proj" },
    TensorName { role: Role::K,                gguf: "", config: "gte.encoder.layer.{}.attention.k_proj" },
    TensorName { role: Role::V,                gguf: "", config: "gte.encoder.layer.{}.attention.v_proj" },
    TensorName { role: Role::O,                gguf: "", config: "gte.encoder.layer.{}.attention.o_proj" },
    TensorName { role: Role::AttentionSumNorm, gguf: "", config: "gte.encoder.layer.{}.attn_ln" },
    TensorName { role: Role::Up,               gguf: "", config: "gte.encoder.layer.{}.mlp.up_proj" },
    TensorName { role: Role::Gate,             gguf: "", config: "gte.encoder.layer.{}.mlp.gate_proj" },
    TensorName { role: Role::Down,             gguf: "", config: "gte.encoder.layer.{}.mlp.down_proj" },
    TensorName { role: Role::MlpSumNorm,       gguf: "", config: "gte.encoder.layer.{}.mlp_ln" },
    TensorName { role: Role::ClassifierDense,  gguf: "", config: "gte.pooler.dense" },
    TensorName { role: Role::Classifier,       gguf: "", config: "classifier" },
];

const CONFIG: &str = "the default of transformers' GteConfig";

pub(super) const FAMILY: Family = Family {
    id: "gte",
    gguf_architectures: &[],
    model_types: &[
        ("gte", &["GteModel", "GteForMaskedLM", "GteForSequenceClassification"]),
        ("new", &["NewModel", "NewForMaskedLM", "NewForSequenceClassification"]),
    ],
    files: FileTable {
        defaults_source: CONFIG,
        unneeded: &["gte.pooler.", "lm_head."],
        refused: &[
            Refusal::Unless(Key::config("position_embedding_type"), &["rope"], "positions"),
            Refusal::Unless(Key::config("layer_norm_type"), &["layer_norm"], "norms"),
            Refusal::Set("logn_attention_scale", "scores by the length of a text"),
        ],
        ..bert::FAMILY.files
    },
    tensors: &[TENSORS],
    fused: &[
        FusedName { config: "gte.encoder.layer.{}.attention.qkv_proj", ..QKV },
        FusedName::new(&[Role::Up, Role::Gate], "", "gte.encoder.layer.{}.mlp.up_gate_proj"),
    ],
    biases: &[
        (&[Role::Q, Role::K, Role::V, Role::O, Role::Down], Bias::Always),
        (&[Role::ClassifierDense, Role::Classifier], Bias::Always),
    ],
    block: BlockTable { activation: (Activation::GeGluErf { gate: () }, &["gelu"]), ..bert::FAMILY.block },
    rope: RopeTable { theta: Some((160_000.0, CONFIG)), ntk: true, ..ROPE },
    head: HeadTable { token_types: Some((Key::config("type_vocab_size"), 1, CONFIG)), ..bert::FAMILY.head },
    variants: &[],
    name: "GTE",
    ..bert::FAMILY
};
