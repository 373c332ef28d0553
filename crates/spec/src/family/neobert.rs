//! NeoBERT: Llama's block in an encoder, with queries, keys and values of each head next to each other.

use super::*;

#[rustfmt::skip]
const TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "token_embd",         config: "model.encoder" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",   config: "model.transformer_encoder.{}.attention_norm" },
    // llama.cpp's converter keeps the order of the rows, and llama.cpp takes them for all queries, then all keys, then all values.
    TensorName { role: Role::Qkv,           gguf: "blk.{}.attn_qkv",    config: "model.transformer_encoder.{}.qkv" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output", config: "model.transformer_encoder.{}.wo" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.ffn_norm",    config: "model.transformer_encoder.{}.ffn_norm" },
    TensorName { role: Role::Gate,          gguf: "blk.{}.ffn_gate",    config: "model.transformer_encoder.{}.ffn.w1" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",      config: "model.transformer_encoder.{}.ffn.w2" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",    config: "model.transformer_encoder.{}.ffn.w3" },
    TensorName { role: Role::FinalNorm,     gguf: "enc.output_norm",    config: "model.layer_norm" },
];

const CONFIG: &str = "the default of NeoBERT's own configuration";

pub(super) const FAMILY: Family = Family {
    id: "neobert",
    gguf_architectures: &["neo-bert"],
    model_types: &[("neobert", &["NeoBERT", "NeoBERTLMHead"])],
    files: FileTable {
        keys: Keys {
            context: Key { config: "max_length", ..KEYS.context },
            norm_eps: Key { config: "norm_eps", ..KEYS.norm_eps },
            ..HEADS_ALIKE_KEYS
        },
        defaults: &[&[("norm_eps", 1e-6), ("max_length", 1024.0)]],
        defaults_source: CONFIG,
        adjusted_width: Some(AdjustedWidth {
            width: "",
            flag: "",
            multiplier: "",
            multiple: "multiple_of",
            default_multiple: (8, "NeoBERT's own code"),
        }),
        unneeded: &["decoder."],
        ..FILES
    },
    tensors: &[TENSORS],
    fused: &[FusedName { config: "model.transformer_encoder.{}.ffn.w12", ..GATE_UP }],
    block: BlockTable { qkv_order: QkvOrder::ByHeads, ..BLOCK },
    rope: RopeTable { theta: Some((10_000.0, "NeoBERT's own code")), ..INTERLEAVED },
    head: HeadTable {
        tied: (false, "an encoder has no output head"),
        encoder: Encoder::Yes { by_name: false },
        ..HEAD
    },
    name: "NeoBERT",
    ..LLAMA_LIKE
};
