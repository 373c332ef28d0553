//! BLOOM and BLOOMZ: ALiBi in place of rotation, and a norm after the embedding.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "token_embd",          config: "transformer.word_embeddings" },
    TensorName { role: Role::EmbeddingNorm, gguf: "token_embd_norm",     config: "transformer.word_embeddings_layernorm" },
    TensorName { role: Role::Head,          gguf: "output",              config: "lm_head" },
    TensorName { role: Role::Qkv,           gguf: "",                    config: "transformer.h.{}.self_attention.query_key_value" },
    TensorName { role: Role::Q,             gguf: "blk.{}.attn_q",       config: "" },
    TensorName { role: Role::K,             gguf: "blk.{}.attn_k",       config: "" },
    TensorName { role: Role::V,             gguf: "blk.{}.attn_v",       config: "" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output",  config: "transformer.h.{}.self_attention.dense" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",       config: "transformer.h.{}.mlp.dense_h_to_4h" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",     config: "transformer.h.{}.mlp.dense_4h_to_h" },
    TensorName { role: Role::FinalNorm,     gguf: "output_norm",         config: "transformer.ln_f" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",    config: "transformer.h.{}.input_layernorm" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.ffn_norm",     config: "transformer.h.{}.post_attention_layernorm" },
];

const CONFIG: &str = "the default of transformers' BloomConfig";

pub(super) const FAMILY: Family = Family {
    id: "bloom",
    gguf_architectures: &["bloom"],
    model_types: &[("bloom", &["BloomForCausalLM"])],
    files: FileTable {
        keys: Keys {
            layers: Key { config: "n_layer", ..KEYS.layers },
            heads: Key { config: "n_head", ..KEYS.heads },
            context: Key { config: "seq_length", ..KEYS.context },
            norm_eps: Key { config: "layer_norm_epsilon", ..LAYER_NORM_KEYS.norm_eps },
            feed_forward: Key { config: "", ..KEYS.feed_forward },
            ..HEADS_ALIKE_KEYS
        },
        aliases: &[("hidden_size", "n_embed"), ("n_layer", "num_hidden_layers"), ("n_head", "num_attention_heads")],
        defaults: &[&[("seq_length", 2048.0), ("layer_norm_epsilon", 1e-5)]],
        defaults_source: "ALiBi has no limit, and BLOOM was trained on 2048 positions",
        width_factor: Some((4, "transformers' BloomMLP")),
        refused: &[Refusal::Set("apply_residual_connection_post_layernorm", "residuals after the norms")],
        ..FILES
    },
    tensors: &[TENSORS],
    fused: &[QKV],
    biases: &[(&[Role::Qkv, Role::Q, Role::K, Role::V, Role::O, Role::Up, Role::Down], Bias::Always)],
    block: BlockTable {
        norm: NormKind::Layer,
        activation: (Activation::GeluTanh, &["gelu"]),
        factors: &[ALIBI],
        qkv_order: QkvOrder::ByHeads,
        ..BLOCK
    },
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    name: "BLOOM",
    ..LLAMA_LIKE
};
