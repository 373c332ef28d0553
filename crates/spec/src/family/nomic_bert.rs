//! Nomic BERT: nomic-embed-text. BERT with rotated queries and keys, a gate, and biases only in its norms.

use super::*;

#[rustfmt::skip]
pub(super) const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,        gguf: "token_embd",                config: "embeddings.word_embeddings" },
    TensorName { role: Role::TokenTypes,       gguf: "token_types",               config: "embeddings.token_type_embeddings" },
    TensorName { role: Role::EmbeddingNorm,    gguf: "token_embd_norm",           config: "emb_ln" },
    TensorName { role: Role::Q,                gguf: "blk.{}.attn_q",             config: "encoder.layers.{}.attn.q" },
    TensorName { role: Role::K,                gguf: "blk.{}.attn_k",             config: "encoder.layers.{}.attn.k" },
    TensorName { role: Role::V,                gguf: "blk.{}.attn_v",             config: "encoder.layers.{}.attn.v" },
    TensorName { role: Role::O,                gguf: "blk.{}.attn_output",        config: "encoder.layers.{}.attn.out_proj" },
    TensorName { role: Role::AttentionSumNorm, gguf: "blk.{}.attn_output_norm",   config: "encoder.layers.{}.norm1" },
    TensorName { role: Role::Up,               gguf: "blk.{}.ffn_up",             config: "encoder.layers.{}.mlp.fc11" },
    TensorName { role: Role::Gate,             gguf: "blk.{}.ffn_gate",           config: "encoder.layers.{}.mlp.fc12" },
    TensorName { role: Role::Down,             gguf: "blk.{}.ffn_down",           config: "encoder.layers.{}.mlp.fc2" },
    TensorName { role: Role::MlpSumNorm,       gguf: "blk.{}.layer_output_norm",  config: "encoder.layers.{}.norm2" },
];

pub(super) const FAMILY: Family = Family {
    id: "nomic-bert",
    gguf_architectures: &["nomic-bert"],
    model_types: &[("nomic_bert", &["NomicBertModel", "NomicBertForMaskedLM"])],
    files: FileTable {
        // Keys of the model's own code, from before transformers supported it.
        aliases: &[
            ("hidden_size", "n_embd"),
            ("num_hidden_layers", "n_layer"),
            ("num_attention_heads", "n_head"),
            ("intermediate_size", "n_inner"),
            // The model was trained for less than `n_positions`.
            ("max_position_embeddings", "max_trained_positions"),
            ("layer_norm_eps", "layer_norm_epsilon"),
            ("hidden_act", "activation_function"),
            ("rope_theta", "rotary_emb_base"),
            ("partial_rotary_factor", "rotary_emb_fraction"),
        ],
        defaults_source: "the default of transformers' NomicBertConfig",
        unneeded: &["cls."],
        refused: &[
            Refusal::Text("position_embedding_type", "relative_key", "relative positions"),
            Refusal::Text("position_embedding_type", "relative_key_query", "relative positions"),
            Refusal::Set("prenorm", "norms in front of its sub-layers"),
            Refusal::Set("use_rms_norm", "norms by the root mean square"),
            Refusal::Set("causal", "attention only to earlier positions"),
            Refusal::Set("qkv_proj_bias", "biases of queries, keys and values"),
            Refusal::Set("mlp_fc1_bias", "biases of the feed-forward layer"),
            Refusal::Set("mlp_fc2_bias", "biases of the feed-forward layer"),
            Refusal::Set("rotary_emb_interleaved", "interleaved rotation"),
            Refusal::Set("rotary_emb_scale_base", "rotation that decays"),
            Refusal::Set("parallel_block", "attention and feed-forward layers side by side"),
            Refusal::Set("scale_attn_by_inverse_layer_idx", "scores by the layer's index"),
            Refusal::Set("moe_every_n_layers", "experts in some layers"),
        ],
        ..bert::FAMILY.files
    },
    tensors: &[TENSORS],
    fused: &[FusedName { config: "encoder.layers.{}.attn.Wqkv", ..QKV }],
    biases: &[],
    block: BlockTable { activation: (Activation::SwiGlu { gate: () }, &["silu", "swiglu"]), ..bert::FAMILY.block },
    rope: RopeTable { theta: Some((1000.0, "the default of transformers' NomicBertConfig")), ..bert::FAMILY.rope },
    head: HeadTable { classifier: None, ..bert::FAMILY.head },
    variants: &[],
    name: "Nomic BERT",
    ..bert::FAMILY
};
