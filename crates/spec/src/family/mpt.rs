//! MPT: ALiBi, LayerNorm without biases, a limit of queries, keys and values.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "token_embd",          config: "transformer.wte" },
    TensorName { role: Role::Head,          gguf: "output",              config: "lm_head" },
    TensorName { role: Role::Q,             gguf: "blk.{}.attn_q",       config: "" },
    TensorName { role: Role::K,             gguf: "blk.{}.attn_k",       config: "" },
    TensorName { role: Role::V,             gguf: "blk.{}.attn_v",       config: "" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output",  config: "transformer.blocks.{}.attn.out_proj" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",       config: "transformer.blocks.{}.ffn.up_proj" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",     config: "transformer.blocks.{}.ffn.down_proj" },
    TensorName { role: Role::FinalNorm,     gguf: "output_norm",         config: "transformer.norm_f" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",    config: "transformer.blocks.{}.norm_1" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.ffn_norm",     config: "transformer.blocks.{}.norm_2" },
];

const CONFIG: &str = "the default of transformers' MptConfig";

pub(super) const FAMILY: Family = Family {
    id: "mpt",
    gguf_architectures: &["mpt"],
    model_types: &[("mpt", &["MptForCausalLM", "MPTForCausalLM"])],
    files: FileTable {
        keys: Keys {
            hidden: Key { config: "d_model", ..KEYS.hidden },
            feed_forward: Key { config: "", ..KEYS.feed_forward },
            layers: Key { config: "n_layers", ..KEYS.layers },
            heads: Key { config: "n_heads", ..KEYS.heads },
            context: Key { config: "max_seq_len", ..KEYS.context },
            norm_eps: Key { config: "layer_norm_epsilon", ..LAYER_NORM_KEYS.norm_eps },
            ..HEADS_ALIKE_KEYS
        },
        defaults: &[&[("layer_norm_epsilon", 1e-5)]],
        defaults_source: CONFIG,
        width_factor: Some((4, "transformers' MptMLP")),
        refused: &[
            Refusal::Unset(Key::config("attn_config.alibi"), "positions without ALiBi"),
            Refusal::Set("attn_config.prefix_lm", "attention to later positions"),
            Refusal::Set("attn_config.qk_ln", "norms of queries and keys"),
            Refusal::Set("attn_config.attn_uses_sequence_id", "sequences within a text"),
            Refusal::Text("attn_config.attn_type", "multiquery_attention", "one head of keys and values"),
            Refusal::Unless(Key::config("logit_scale"), &["1"], "scaled logits"),
            Refusal::Unless(Key::config("norm_type"), &["low_precision_layernorm", "layernorm"], "norms without means"),
        ],
        ..FILES
    },
    tensors: &[TENSORS],
    fused: &[FusedName { config: "transformer.blocks.{}.attn.Wqkv", ..QKV }],
    block: BlockTable {
        norm: NormKind::PlainLayer,
        // llama.cpp computes it by the tanh formula.
        activation: (Activation::Gelu, &["gelu"]),
        factors: &[
            Factor {
                key: Key { gguf: ".attention.max_alibi_bias", config: "attn_config.alibi_bias_max" },
                gguf_default: None,
                ..ALIBI
            },
            Factor::new(FactorOf::Scores, Key::config("attn_config.softmax_scale")),
            Factor::new(FactorOf::QkvLimit, Key { gguf: ".attention.clamp_kqv", config: "attn_config.clip_qkv" }),
        ],
        ..BLOCK
    },
    head: HeadTable { tied: (true, CONFIG), ..HEAD },
    name: "MPT",
    ..LLAMA_LIKE
};
