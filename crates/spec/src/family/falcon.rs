//! Falcon 7B, 11B, 40B and 180B: a parallel block, with one norm or two; one head of keys and values, or a few.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "token_embd",          config: "transformer.word_embeddings" },
    TensorName { role: Role::Head,          gguf: "output",              config: "lm_head" },
    TensorName { role: Role::Qkv,           gguf: "",                    config: "transformer.h.{}.self_attention.query_key_value" },
    TensorName { role: Role::Q,             gguf: "blk.{}.attn_q",       config: "" },
    TensorName { role: Role::K,             gguf: "blk.{}.attn_k",       config: "" },
    TensorName { role: Role::V,             gguf: "blk.{}.attn_v",       config: "" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output",  config: "transformer.h.{}.self_attention.dense" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",       config: "transformer.h.{}.mlp.dense_h_to_4h" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",     config: "transformer.h.{}.mlp.dense_4h_to_h" },
    TensorName { role: Role::FinalNorm,     gguf: "output_norm",         config: "transformer.ln_f" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm_2",  config: "transformer.h.{}.ln_attn" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",    config: "transformer.h.{}.input_layernorm" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.attn_norm",    config: "transformer.h.{}.ln_mlp" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.attn_norm",    config: "transformer.h.{}.input_layernorm" },
];

const CONFIG: &str = "the default of transformers' FalconConfig";

pub(super) const FAMILY: Family = Family {
    id: "falcon",
    gguf_architectures: &["falcon"],
    model_types: &[("falcon", &["FalconForCausalLM"])],
    files: FileTable {
        keys: Keys {
            feed_forward: Key { config: "ffn_hidden_size", ..KEYS.feed_forward },
            kv_heads: Key { config: "num_kv_heads", ..KEYS.kv_heads },
            norm_eps: Key { config: "layer_norm_epsilon", ..LAYER_NORM_KEYS.norm_eps },
            ..HEADS_ALIKE_KEYS
        },
        aliases: &[
            ("hidden_size", "n_embed"),
            ("num_hidden_layers", "n_layer"),
            ("num_attention_heads", "n_head"),
            ("num_kv_heads", "n_head_kv"),
            ("hidden_act", "activation"),
        ],
        defaults: &[&[("layer_norm_epsilon", 1e-5), ("max_position_embeddings", 2048.0)]],
        defaults_source: CONFIG,
        width_factor: Some((4, CONFIG)),
        multi_query: Some(("multi_query", "new_decoder_architecture")),
        refused: &[
            Refusal::Unset(Key::config("parallel_attn"), "sub-layers one after the other"),
            Refusal::Set("alibi", "ALiBi that is scaled like scores"),
            Refusal::Set("apply_residual_connection_post_layernorm", "residuals after the norms"),
        ],
        ..FILES
    },
    tensors: &[TENSORS],
    fused: &[QKV],
    biases: &[(&[Role::Qkv, Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::Flag("bias"))],
    block: BlockTable {
        norm: NormKind::Layer,
        // llama.cpp computes it by the tanh formula.
        activation: (Activation::Gelu, &["gelu"]),
        parallel: Parallel::Yes,
        qkv_order: QkvOrder::ByHeads,
        ..BLOCK
    },
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    name: "Falcon",
    ..LLAMA_LIKE
};
