//! Parts of tables that tables start from.

use super::*;

// Parts of this table, and the rotation of families whose GGUF converter permutes the rows of q and k to rotate adjacent pairs.
pub(super) const FILES: FileTable = LLAMA_LIKE.files;
pub(super) const BLOCK: BlockTable = LLAMA_LIKE.block;
pub(super) const HEAD: HeadTable = LLAMA_LIKE.head;
pub(super) const ROPE: RopeTable = LLAMA_LIKE.rope;
pub(super) const PERMUTED: RopeTable = RopeTable { gguf_layout: RopeLayout::Interleaved, ..ROPE };
pub(super) const INTERLEAVED: RopeTable = RopeTable { config_layout: RopeLayout::Interleaved, ..PERMUTED };

// Biases and fused tensors that several tables have.
pub(super) const ATTENTION_BIAS: Biases = (&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias"));
pub(super) const MLP_BIAS: Biases = (&[Role::Gate, Role::Up, Role::Down], Bias::Flag("mlp_bias"));
pub(super) const QKV: FusedName = FusedName::new(&[Role::Q, Role::K, Role::V], "blk.{}.attn_qkv", "");
pub(super) const GATE_UP: FusedName = FusedName::new(&[Role::Gate, Role::Up], "blk.{}.ffn_up", "");

/// The tensor names of Llama and of every family with the same block.
#[rustfmt::skip]
pub const LLAMA_LIKE_TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "token_embd",          config: "model.embed_tokens" },
    TensorName { role: Role::Head,          gguf: "output",              config: "lm_head" },
    TensorName { role: Role::Q,             gguf: "blk.{}.attn_q",       config: "model.layers.{}.self_attn.q_proj" },
    TensorName { role: Role::K,             gguf: "blk.{}.attn_k",       config: "model.layers.{}.self_attn.k_proj" },
    TensorName { role: Role::V,             gguf: "blk.{}.attn_v",       config: "model.layers.{}.self_attn.v_proj" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output",  config: "model.layers.{}.self_attn.o_proj" },
    TensorName { role: Role::Gate,          gguf: "blk.{}.ffn_gate",     config: "model.layers.{}.mlp.gate_proj" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",       config: "model.layers.{}.mlp.up_proj" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",     config: "model.layers.{}.mlp.down_proj" },
    TensorName { role: Role::FinalNorm,     gguf: "output_norm",         config: "model.norm" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",    config: "model.layers.{}.input_layernorm" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.ffn_norm",     config: "model.layers.{}.post_attention_layernorm" },
];

/// Tensor names of the embedding, the head, queries, keys and values.
pub(super) const EMBEDDING_TO_VALUES: &[TensorName] = LLAMA_LIKE_TENSORS.split_at(5).0;

/// All tensor names but that of the norm before the feed-forward layer.
pub(super) const WITHOUT_MLP_NORM: &[TensorName] = LLAMA_LIKE_TENSORS.split_at(11).0;

/// All tensor names but those of norms.
pub(super) const WITHOUT_NORMS: &[TensorName] = LLAMA_LIKE_TENSORS.split_at(9).0;

/// Norms without weights, in both formats.
pub(super) const NORMS_WITHOUT_WEIGHTS: &[TensorName] = &[
    TensorName { role: Role::FinalNorm, gguf: "", config: "" },
    TensorName { role: Role::AttentionNorm, gguf: "", config: "" },
    TensorName { role: Role::MlpNorm, gguf: "", config: "" },
];

/// All tensor names but those of the norms before sub-layers.
pub(super) const WITHOUT_INPUT_NORMS: &[TensorName] = LLAMA_LIKE_TENSORS.split_at(10).0;

/// The keys of Llama and of every family with the same block.
#[rustfmt::skip]
pub(super) const KEYS: Keys = Keys {
    hidden:       Key { gguf: ".embedding_length",                 config: "hidden_size" },
    feed_forward: Key { gguf: ".feed_forward_length",              config: "intermediate_size" },
    layers:       Key { gguf: ".block_count",                      config: "num_hidden_layers" },
    heads:        Key { gguf: ".attention.head_count",             config: "num_attention_heads" },
    kv_heads:     Key { gguf: ".attention.head_count_kv",          config: "num_key_value_heads" },
    head_dim:     Key { gguf: ".attention.key_length",             config: "head_dim" },
    vocab:        Key { gguf: ".vocab_size",                       config: "vocab_size" },
    context:      Key { gguf: ".context_length",                   config: "max_position_embeddings" },
    norm_eps:     Key { gguf: ".attention.layer_norm_rms_epsilon", config: "rms_norm_eps" },
};

/// The flag of windows in Qwen's families.
pub(super) const FLAGGED: &str = "use_sliding_window";

/// The keys of families whose norms are of mean and variance.
pub(super) const LAYER_NORM_KEYS: Keys =
    Keys { norm_eps: Key { gguf: ".attention.layer_norm_epsilon", config: "layer_norm_eps" }, ..KEYS };

/// The keys of families whose `config.json` says nothing of heads but their number.
pub(super) const HEADS_ALIKE_KEYS: Keys = Keys {
    kv_heads: Key { config: "", ..KEYS.kv_heads },
    head_dim: Key { config: "", ..KEYS.head_dim },
    ..LAYER_NORM_KEYS
};

/// ALiBi with slopes of which files say nothing.
pub(super) const ALIBI: Factor = Factor {
    of: FactorOf::Alibi,
    key: Key::gguf(""),
    gguf_default: Some((8.0, "arXiv 2108.12409")),
    config_default: Some((8.0, "arXiv 2108.12409")),
};
