//! ModernBERT: gte-modernbert, modernbert-embed, and rerankers made of it. Norms before sub-layers, rotated queries and
//! keys, windows in two of three layers, and no biases.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,       gguf: "token_embd",         config: "model.embeddings.tok_embeddings" },
    TensorName { role: Role::EmbeddingNorm,   gguf: "token_embd_norm",    config: "model.embeddings.norm" },
    TensorName { role: Role::AttentionNorm,   gguf: "blk.{}.attn_norm",   config: "model.layers.{}.attn_norm" },
    TensorName { role: Role::Q,               gguf: "blk.{}.attn_q",      config: "model.layers.{}.attn.q" },
    TensorName { role: Role::K,               gguf: "blk.{}.attn_k",      config: "model.layers.{}.attn.k" },
    TensorName { role: Role::V,               gguf: "blk.{}.attn_v",      config: "model.layers.{}.attn.v" },
    TensorName { role: Role::O,               gguf: "blk.{}.attn_output", config: "model.layers.{}.attn.Wo" },
    TensorName { role: Role::MlpNorm,         gguf: "blk.{}.ffn_norm",    config: "model.layers.{}.mlp_norm" },
    TensorName { role: Role::Gate,            gguf: "blk.{}.ffn_gate",    config: "model.layers.{}.mlp.gate" },
    TensorName { role: Role::Up,              gguf: "blk.{}.ffn_up",      config: "model.layers.{}.mlp.up" },
    TensorName { role: Role::Down,            gguf: "blk.{}.ffn_down",    config: "model.layers.{}.mlp.Wo" },
    TensorName { role: Role::FinalNorm,       gguf: "output_norm",        config: "model.final_norm" },
    TensorName { role: Role::ClassifierDense, gguf: "cls",                config: "head.dense" },
    TensorName { role: Role::ClassifierNorm,  gguf: "cls.norm",           config: "head.norm" },
    TensorName { role: Role::Classifier,      gguf: "cls.output",         config: "classifier" },
];

const CONFIG: &str = "the default of transformers' ModernBertConfig";

pub(super) const FAMILY: Family = Family {
    id: "modernbert",
    gguf_architectures: &["modern-bert"],
    model_types: &[(
        "modernbert",
        &["ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"],
    )],
    files: FileTable {
        keys: Keys { norm_eps: Key { gguf: ".attention.layer_norm_epsilon", config: "norm_eps" }, ..KEYS },
        // The key of the base in files without the rope sections of transformers 5.
        aliases: &[("sliding_window", "local_attention"), ("rope_theta", "global_rope_theta")],
        defaults: &[&[("norm_eps", 1e-5)]],
        defaults_source: CONFIG,
        unneeded: &["decoder.", "head."],
        refused: &[
            Refusal::Set("norm_bias", "norms with a bias"),
            Refusal::Set("sliding_window", "a window in addition to local_attention"),
        ],
        ..FILES
    },
    tensors: &[TENSORS],
    fused: &[
        FusedName { config: "model.layers.{}.attn.Wqkv", ..QKV },
        // The activated half comes first.
        FusedName { config: "model.layers.{}.mlp.Wi", ..GATE_UP },
    ],
    biases: &[
        ATTENTION_BIAS,
        MLP_BIAS,
        (&[Role::ClassifierDense], Bias::Flag("classifier_bias")),
        (&[Role::Classifier], Bias::Always),
    ],
    window: Window::Pattern(WindowPattern {
        full_every: 3,
        config_key: "global_attn_every_n_layers",
        config_default: 128,
        source: "the default of transformers' ModernBertConfig and of llama.cpp",
        model_types: &["modernbert"],
        first_is_full: true,
        ..PATTERN
    }),
    block: BlockTable {
        norm: NormKind::PlainLayer,
        activation: (Activation::GeGluErf { gate: () }, &["gelu"]),
        first_unnormed: true,
        ..BLOCK
    },
    rope: RopeTable {
        theta: Some((160_000.0, CONFIG)),
        window: Some(WindowRope {
            key: Key { gguf: ".rope.freq_base_swa", config: "local_rope_theta" },
            default_theta: Some((10_000.0, "the default of transformers' ModernBertConfig and of llama.cpp")),
        }),
        ..ROPE
    },
    head: HeadTable {
        tied: (false, "an encoder has no output head"),
        encoder: Encoder::Yes { by_name: false },
        classifier: Some(ClassifierTable {
            pooling: Some(Pooling::Cls),
            pooling_key: Some("classifier_pooling"),
            activation_key: Some("classifier_activation"),
            dense: Some(DenseActivation::Gelu),
        }),
        ..HEAD
    },
    name: "ModernBERT",
    ..LLAMA_LIKE
};
