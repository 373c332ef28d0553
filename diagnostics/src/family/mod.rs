//! The registry of families, one line each, and the shape of a family's table. Tables hold data only.

mod llama;
mod phi2;
mod phi3;
mod qwen2;
mod qwen3;
pub(crate) mod unsupported;

pub use unsupported::UNSUPPORTED;

use crate::block::{Activation, RopeLayout};

/// Every family that is recognised, in the order it is tried.
pub const REGISTRY: &[&Family] = &[&llama::FAMILY, &qwen2::FAMILY, &qwen3::FAMILY, &phi3::FAMILY, &phi2::FAMILY];

/// One family of models: how its files name things, and the options of its block.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The id reports use.
    pub id: &'static str,
    /// Values of GGUF `general.architecture`.
    pub gguf_architectures: &'static [&'static str],
    /// Values of `model_type` in `config.json`.
    pub model_types: &'static [&'static str],
    /// Values of `architectures[0]` in `config.json`.
    pub classes: &'static [&'static str],
    /// Metadata keys by quantity.
    pub keys: Keys,
    /// Lists of tensor names without `.weight` or `.bias`, by role; `{}` stands for the layer.
    pub tensors: &'static [&'static [TensorName]],
    /// Tensors that hold several roles as consecutive rows, where a file has them instead.
    pub fused: &'static [FusedName],
    /// Which linear layers have a bias.
    pub biases: &'static [(&'static [Role], Bias)],
    /// The norm in front of attention, of the feed-forward layer and of the head.
    pub norm: NormKind,
    /// Whether attention and feed-forward layer read the same normed input, and both are added to it.
    pub parallel: bool,
    /// The activation and its name in `config.json`.
    pub activation: (Activation, &'static [&'static str]),
    /// What a stored sliding window means.
    pub window: Window,
    /// Flags of `config.json` that must not be set, and what they would ask for.
    pub refused_flags: &'static [(&'static str, &'static str)],
    /// Which elements of a head turn together in GGUF files.
    pub gguf_rope: RopeLayout,
    /// Which elements of a head turn together in safetensors files.
    pub config_rope: RopeLayout,
    /// A rotary base and the context that models of that base reach without scaling: a GGUF file that claims more should
    /// store frequency factors, and the report says so when it does not.
    pub gguf_rope_freqs_expected: Option<(f64, usize)>,
    /// The part of a head that is rotated where no key gives it, with its source; `None` where it is always all of it.
    pub rotary_part: Option<(f64, &'static str)>,
    /// Other names of rope scalings in `config.json`, and what they mean in this family.
    pub rope_aliases: &'static [(&'static str, &'static str)],
    /// The context before rope scaling where no key gives it, with its source.
    pub default_original_context: Option<(u64, &'static str)>,
    /// The rotary base where no key gives one, with its source.
    pub default_theta: (f64, &'static str),
    /// Whether the output head is the embedding where `config.json` does not say, with its source.
    pub default_tied: (bool, &'static str),
    /// Variants by evidence; the first that matches names the model, the family's own name is last.
    pub variants: &'static [Variant],
    /// The name where no variant matches.
    pub name: &'static str,
}

/// A quantity's key in either format. GGUF keys that begin with a dot follow the architecture's name.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// In GGUF.
    pub gguf: &'static str,
    /// In `config.json`.
    pub config: &'static str,
}

/// The keys of the quantities a block is built from.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Width of the residual stream.
    pub hidden: Key,
    /// Width of the feed-forward layer.
    pub feed_forward: Key,
    /// Decoder blocks.
    pub layers: Key,
    /// Query heads.
    pub heads: Key,
    /// Key and value heads.
    pub kv_heads: Key,
    /// Elements of a head.
    pub head_dim: Key,
    /// Rows of the embedding.
    pub vocab: Key,
    /// Longest context, in tokens.
    pub context: Key,
    /// What the norm adds to the mean square or the variance.
    pub norm_eps: Key,
}

/// The norms of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Root mean square, with a weight.
    Rms,
    /// Mean and variance, with a weight and a bias.
    Layer,
}

/// What a stored sliding window means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Every layer looks back that far and no further.
    Honoured,
    /// Nothing in `config.json`, where its own flag is off; in GGUF one shorter than the context is refused.
    Unused,
}

/// A table to start from: the block of Llama without options. What a family says itself comes before it.
pub const LLAMA_LIKE: Family = Family {
    id: "",
    gguf_architectures: &[],
    model_types: &[],
    classes: &[],
    keys: LLAMA_LIKE_KEYS,
    tensors: &[LLAMA_LIKE_TENSORS],
    fused: &[],
    biases: &[],
    norm: NormKind::Rms,
    parallel: false,
    activation: (Activation::SwiGlu { gate: () }, &["silu", "swish"]),
    window: Window::Unused,
    refused_flags: &[],
    gguf_rope: RopeLayout::HalfSplit,
    config_rope: RopeLayout::HalfSplit,
    gguf_rope_freqs_expected: None,
    rotary_part: None,
    rope_aliases: &[],
    default_original_context: None,
    default_theta: (10_000.0, "the default of transformers and of llama.cpp"),
    default_tied: (false, "the default of transformers"),
    variants: &[],
    name: "",
};

/// The tensor names that Llama and everything built like it use.
#[rustfmt::skip]
pub const LLAMA_LIKE_TENSORS: &[TensorName] = &[
    TensorName { role: Role::Embedding,     gguf: "token_embd",          config: "model.embed_tokens" },
    TensorName { role: Role::FinalNorm,     gguf: "output_norm",         config: "model.norm" },
    TensorName { role: Role::Head,          gguf: "output",              config: "lm_head" },
    TensorName { role: Role::AttentionNorm, gguf: "blk.{}.attn_norm",    config: "model.layers.{}.input_layernorm" },
    TensorName { role: Role::Q,             gguf: "blk.{}.attn_q",       config: "model.layers.{}.self_attn.q_proj" },
    TensorName { role: Role::K,             gguf: "blk.{}.attn_k",       config: "model.layers.{}.self_attn.k_proj" },
    TensorName { role: Role::V,             gguf: "blk.{}.attn_v",       config: "model.layers.{}.self_attn.v_proj" },
    TensorName { role: Role::O,             gguf: "blk.{}.attn_output",  config: "model.layers.{}.self_attn.o_proj" },
    TensorName { role: Role::MlpNorm,       gguf: "blk.{}.ffn_norm",     config: "model.layers.{}.post_attention_layernorm" },
    TensorName { role: Role::Gate,          gguf: "blk.{}.ffn_gate",     config: "model.layers.{}.mlp.gate_proj" },
    TensorName { role: Role::Up,            gguf: "blk.{}.ffn_up",       config: "model.layers.{}.mlp.up_proj" },
    TensorName { role: Role::Down,          gguf: "blk.{}.ffn_down",     config: "model.layers.{}.mlp.down_proj" },
];

/// The keys that Llama and everything built like it use.
#[rustfmt::skip]
pub const LLAMA_LIKE_KEYS: Keys = Keys {
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

/// What a weight does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// `[vocab, hidden]`.
    Embedding,
    /// `[hidden]`.
    FinalNorm,
    /// `[vocab, hidden]`.
    Head,
    /// `[hidden]`.
    AttentionNorm,
    /// `[heads * head_dim, hidden]`.
    Q,
    /// `[kv_heads * head_dim, hidden]`.
    K,
    /// `[kv_heads * head_dim, hidden]`.
    V,
    /// `[hidden, heads * head_dim]`.
    O,
    /// `[head_dim]`, applied to every query head.
    QNorm,
    /// `[head_dim]`, applied to every key head.
    KNorm,
    /// `[hidden]`.
    MlpNorm,
    /// `[feed_forward, hidden]`.
    Gate,
    /// `[feed_forward, hidden]`.
    Up,
    /// `[hidden, feed_forward]`.
    Down,
}

/// The names of one role's tensor.
#[derive(Clone, Copy, Debug)]
pub struct TensorName {
    /// The role.
    pub role: Role,
    /// In GGUF.
    pub gguf: &'static str,
    /// In safetensors.
    pub config: &'static str,
}

/// The names of a tensor that holds several roles' rows, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct FusedName {
    /// The roles in row order.
    pub roles: &'static [Role],
    /// In GGUF; `None` where no writer produces it.
    pub gguf: Option<&'static str>,
    /// In safetensors; `None` where no writer produces it.
    pub config: Option<&'static str>,
}

/// Whether a linear layer has a bias. A role that is not listed has none.
#[derive(Clone, Copy, Debug)]
pub enum Bias {
    /// In every model of the family.
    Always,
    /// As this flag of `config.json` says (absent is false); in GGUF, where the tensor is present.
    Flag(&'static str),
}

/// A variant and the evidence that tells it: any of the lists, all of a list.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// The name people use.
    pub name: &'static str,
    /// Alternatives, each a list of facts that must all hold.
    pub any: &'static [&'static [Evidence]],
}

/// One fact about a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Evidence {
    /// Rows of the embedding.
    Vocab(usize),
    /// Width of the residual stream.
    Hidden(usize),
    /// Decoder blocks.
    Layers(usize),
    /// Key and value heads.
    KvHeads(usize),
    /// The trained context, in tokens.
    Context(usize),
    /// Fewer key and value heads than query heads.
    GroupedQueries,
    /// The rotary base.
    Theta(f64),
    /// The text of the beginning-of-sequence token.
    BosText(&'static str),
    /// The text of the end-of-sequence token.
    EosText(&'static str),
    /// A part of the chat template.
    Template(&'static str),
    /// The GGUF pre-tokenizer.
    Pre(&'static str),
    /// The factor of the rope scaling in `config.json`.
    RopeFactor(f64),
    /// The first of longrope's long factors in `config.json`.
    LongFactor(f64),
    /// Any rope scaling, a stored tensor of frequency factors included.
    RopeScaled,
    /// The output head is the embedding.
    Tied,
    /// A part of the model's own name (GGUF `general.name` or `general.basename`), lower case. Neither the file name nor
    /// the folder that `config.json` was saved from is evidence.
    Name(&'static str),
}
