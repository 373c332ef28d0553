//! The registry of families, one line each, and the shape of a family's table. Tables hold data only.

mod experts;
mod parts;
mod role;

pub use crate::spec::{DeltaNetKeys, StateMixer};
pub use parts::{
    AdjustedWidth, DenseLayers, Evidence, ExpertTable, Normalized, StateLayers, StateTable, Unrotated, Variant, Window,
    WindowPattern, WindowRope,
};
pub use role::Role;

// Names that the tables use; each table imports all of this module.
use crate::block::{Activation, DenseActivation, KeySharing, Pooling, RopeLayout, RouterScore};
use experts::*;
use parts::Evidence::*;
use parts::PATTERN;
use qwen3::HEAD_NORMS;

/// Declares the file of each family, and the registry of them.
macro_rules! families {
    ($($file:ident,)*) => {
        $(mod $file;)*

        /// Every supported family, in the order in which they are tried.
        pub const REGISTRY: &[&Family] = &[$(&$file::FAMILY,)*];
    };
}

families! {
    llama,
    qwen2,
    qwen3,
    qwen3_moe,
    qwen2_vl,
    qwen3_vl,
    qwen3_vl_moe,
    phi3,
    phi2,
    gemma2,
    gemma3,
    gemma4,
    granite,
    ministral3,
    olmo2,
    smollm3,
    qwen2_moe,
    olmoe,
    mixtral,
    granite_moe,
    granite_hybrid,
    phi_moe,
    qwen35,
    qwen35_moe,
    qwen3_next,
    lfm2,
    lfm2_moe,
    gptoss,
    bert,
    roberta,
    nomic_bert,
    modern_bert,
    nemotron_h,
    bamba,
    falcon_h1,
}

/// One family of models: how its files name things, and the options of its block.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The id in reports.
    pub id: &'static str,
    /// Values of GGUF `general.architecture`.
    pub gguf_architectures: &'static [&'static str],
    /// Values of `model_type` in `config.json`, each with the values of `architectures[0]` that go with it.
    pub model_types: &'static [(&'static str, &'static [&'static str])],
    /// Multimodal models whose language model is of this family: class and model type. The keys of the language model
    /// are those of `text_config`.
    pub wrappers: &'static [(&'static str, &'static str)],
    /// What else is read from files: keys they must have, and values they must not have.
    pub files: FileTable,
    /// Lists of tensor names without `.weight` or `.bias`, by role; `{}` stands for the layer, and `{expert}` for an
    /// expert where each expert has a tensor of its own.
    pub tensors: &'static [&'static [TensorName]],
    /// Fused tensors, which hold several roles as consecutive rows, where a file has them instead.
    pub fused: &'static [FusedName],
    /// Which linear layers have a bias.
    pub biases: &'static [Biases],
    /// How a stored sliding window is used.
    pub window: Window,
    /// The options of the block.
    pub block: BlockTable,
    /// The experts of the feed-forward layers, where the family has any.
    pub experts: Option<ExpertTable>,
    /// How queries and keys are rotated.
    pub rope: RopeTable,
    /// The embedding and the heads.
    pub head: HeadTable,
    /// Variants and their evidence; the first that matches names the model.
    pub variants: &'static [Variant],
    /// The family's own name, used where no variant matches.
    pub name: &'static str,
}

/// What else is read from files: keys they must have, and values they must not have.
#[derive(Clone, Copy, Debug)]
pub struct FileTable {
    /// Metadata keys by quantity.
    pub keys: Keys,
    /// Other names of keys, each after the name that is read here.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Lists of sizes where `config.json` does not give them, by key; the first entry of a key counts.
    pub defaults: &'static [&'static [(&'static str, f64)]],
    /// The source of these defaults.
    pub defaults_source: &'static str,
    /// How the feed-forward width is computed from the keys of `config.json`, where no key gives it directly.
    pub adjusted_width: Option<AdjustedWidth>,
    /// Prefixes of the names of tensors that are not needed here and need no warning.
    pub unneeded: &'static [&'static str],
    /// Values of keys that are refused.
    pub refused: &'static [Refusal],
}

/// A value of a key that is refused, and the feature that it asks for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// Refused where this flag of `config.json` is set, or this number is not 0.
    Set(&'static str, &'static str),
    /// Refused where this flag is false.
    Unset(Key, &'static str),
    /// Refused where this key has another number or text than one of these.
    Unless(Key, &'static [&'static str], &'static str),
    /// Refused where this key of `config.json` has this text.
    Text(&'static str, &'static str, &'static str),
    /// A key that GGUF files must have in addition to the keys of sizes: its value cannot be known otherwise, and
    /// llama.cpp refuses such a file.
    AbsentGguf(&'static str),
}

/// The options of the block.
#[derive(Clone, Copy, Debug)]
pub struct BlockTable {
    /// The kind of the norms. The names of the tensors say which norms a block has.
    pub norm: NormKind,
    /// The activation and its name in `config.json`.
    pub activation: (Activation, &'static [&'static str]),
    /// Whether attention and feed-forward layer read the same normalized input, and both are added to the residual stream.
    pub parallel: bool,
    /// Whether the first layer's attention reads the residual stream without a norm.
    pub first_unnormed: bool,
    /// Factors and caps.
    pub factors: &'static [Factor],
    /// Whether norms of queries and keys, where there are any, are over all heads together.
    pub whole_head_norms: bool,
    /// Whether each head of values is normalized, without a weight.
    pub value_norm: bool,
    /// Whether the query projection also computes a gate of the output: for every head its query, then its gate.
    pub gated_attention: bool,
    /// Sizes of attention in layers without a window, where they differ from those of layers with one.
    pub full_attention: Option<FullAttention>,
    /// How many of the last layers reuse the keys and values of earlier ones, and the flag of `config.json` under which
    /// their feed-forward layers are twice as wide. GGUF stores a width for each layer.
    pub shared_layers: Option<(Key, &'static str)>,
    /// Per-layer embeddings, one row for each token and layer, which the layer's block reads: the key of the elements
    /// of a row, and its default in `config.json`, with its source. In GGUF absent or 0 means none.
    pub layer_embedding: Option<(Key, usize, &'static str)>,
    /// GGUF models whose scores are divided by the square root of `hidden / heads`, which the files do not say: their
    /// number of layers, and the source.
    pub gguf_score_scale: &'static [(usize, &'static str)],
    /// Layers that keep a recurrent state in place of keys and values, where the family has any.
    pub states: Option<StateTable>,
}

/// How queries and keys are rotated.
#[derive(Clone, Copy, Debug)]
pub struct RopeTable {
    /// Which elements of a head are rotated as a pair in GGUF files.
    pub gguf_layout: RopeLayout,
    /// Which elements of a head are rotated as a pair in safetensors files.
    pub config_layout: RopeLayout,
    /// The rotary base where `config.json` gives none, with its source; `None` where the key is required. GGUF uses llama.cpp's.
    pub theta: Option<(f64, &'static str)>,
    /// The part of a head that is rotated where no key gives it, with its source; `None` where all of it is always rotated.
    pub rotary_part: Option<(f64, &'static str)>,
    /// The rotation of layers with a window, where it differs from that of the others.
    pub window: Option<WindowRope>,
    /// Which layers do not rotate.
    pub unrotated: Option<Unrotated>,
    /// Whether no layer of any model rotates.
    pub never: bool,
    /// The key that says whether any layer rotates, where models differ: a flag in GGUF files, true if absent, and a
    /// text in `config.json`. `rope` means that layers rotate; `nope`, null or absent means that they do not.
    pub switch: Option<Key>,
    /// The key of a scale of queries that grows with their position, within the rope parameters of `config.json`.
    pub query_scale: Option<Key>,
    /// Other names of rope scalings in `config.json`, and what they mean in this family.
    pub aliases: &'static [(&'static str, &'static str)],
    /// A scaling of the rotation that transformers applies without a key of `config.json`, where there is one. Such a
    /// file is refused.
    pub unsaid_scaling: Option<&'static str>,
    /// The context before rope scaling where no key gives it, with its source.
    pub original_context: Option<(u64, &'static str)>,
    /// The keys of `config.json` for longrope's factors of cosines and sines, one for each of its lists; `None` where
    /// one number holds for both.
    pub longrope_magnitudes: Option<[&'static str; 2]>,
    /// A rotary base, and the context that models with that base reach without scaling: a GGUF file that claims more
    /// should store frequency factors, and the report warns if it does not.
    pub gguf_freqs_expected: Option<(f64, usize)>,
    /// Whether GGUF files of the family have to store frequency factors.
    pub gguf_freqs_needed: bool,
    /// Whether the ends of YaRN's ramp are rounded to whole pairs in GGUF files, which have no key for it.
    pub gguf_yarn_truncate: bool,
}

/// The embedding and the heads.
#[derive(Clone, Copy, Debug)]
pub struct HeadTable {
    /// Whether the output head is the embedding where no key of `config.json` says it, with the source.
    pub tied: (bool, &'static str),
    /// The keys that say whether the output head is the embedding; the first that is present counts.
    pub tied_keys: &'static [&'static str],
    /// Whether it is an encoder: tokens attend to later ones too, and there is no output head.
    pub encoder: bool,
    /// Whether the embedding's rows are multiplied by the square root of the width.
    pub embedding_by_root_of_width: bool,
    /// The key of the padding token in `config.json`, with its default and its source: rows of positions begin after
    /// its id. In GGUF the rows before are left out.
    pub padding: Option<(&'static str, usize, &'static str)>,
    /// The key of the number of token types, and its default in `config.json`, with its source.
    pub token_types: Option<(Key, usize, &'static str)>,
    /// The classification head of models that classify texts or rank documents.
    pub classifier: Option<ClassifierTable>,
    /// The key of the number of layers that predict further tokens: a head that is loaded only on request. In GGUF they
    /// are the last blocks.
    pub predictors: Option<Key>,
}

/// A quantity's key in either format, empty where the format has none. GGUF keys that begin with a dot follow the architecture's name.
#[allow(missing_docs)] // of names that say it
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub gguf: &'static str,
    pub config: &'static str,
}

/// The keys of the quantities that a block is built from.
#[allow(missing_docs)] // as the fields of `ModelSpec`
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    pub hidden: Key,
    pub feed_forward: Key,
    pub layers: Key,
    pub heads: Key,
    pub kv_heads: Key,
    pub head_dim: Key,
    pub vocab: Key,
    pub context: Key,
    pub norm_eps: Key,
}

/// The norms of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Root mean square, with a weight.
    Rms,
    /// Root mean square. In safetensors the weight is stored as its offset from one, in GGUF it is not.
    RmsFromOne,
    /// Mean and variance, with a weight and a bias.
    Layer,
    /// Mean and variance, with a weight and no bias.
    PlainLayer,
}

/// A number that files of a family may have, and its default in each format; `None` where absence means no factor.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    /// What the number does.
    pub of: FactorOf,
    /// The key of the number, which may be one of a list of `config.json`: `key[0]`.
    pub key: Key,
    /// The default in GGUF files, with its source.
    pub gguf_default: Option<(f64, &'static str)>,
    /// The default in `config.json`, with its source. In every family `null` counts as no number.
    pub config_default: Option<(f64, &'static str)>,
}

/// What a factor or cap does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FactorOf {
    /// The factor of the embedding's rows.
    Embedding,
    /// The factor of what a sub-layer adds to the residual stream.
    Residual,
    /// The factor of products of queries and keys.
    Scores,
    /// Products of queries and keys are divided by its square root.
    ScoresByRoot,
    /// The cap of scores: `cap * tanh(score / cap)`.
    ScoreCap,
    /// The factor of logits.
    Logits,
    /// The factor of the products of these matrices.
    Products(&'static [Role]),
    /// The factor of Mamba-2's values, keys or queries, which are 0, 1 and 2, before their convolution.
    StateInput(usize),
    /// The divisor of logits.
    LogitDivisor,
    /// The cap of logits: `cap * tanh(logit / cap)`.
    LogitCap,
    /// The limit of a clamped gate and up, in place of the table's.
    GateLimit,
    /// The factor of a clamped gate within its sigmoid, in place of the table's.
    GateAlpha,
    /// The factor of the weights of chosen experts.
    Experts,
}

/// A classification head. The names of the tensors say which layers and norms it has.
#[derive(Clone, Copy, Debug)]
pub struct ClassifierTable {
    /// Which tokens' hidden states the head reads.
    pub pooling: Pooling,
    /// The key of `config.json` for the pooling, where models differ.
    pub pooling_key: Option<&'static str>,
    /// The key of `config.json` for the activation, where models differ.
    pub activation_key: Option<&'static str>,
    /// The activation of the dense layer before the output layer, where there is one.
    pub dense: Option<DenseActivation>,
}

/// One matrix over the last token's hidden state, as transformers' decoders have it.
pub(crate) const SCORE: ClassifierTable =
    ClassifierTable { pooling: Pooling::Last, pooling_key: None, activation_key: None, dense: None };

#[rustfmt::skip]
pub(crate) const SCORE_TENSORS: &[TensorName] = &[
    TensorName { role: Role::Classifier,    gguf: "cls.output",          config: "score" },
];

/// Sizes of attention in layers without a window, where they differ from those in layers with one. In GGUF the plain keys are for
/// layers without a window and keys ending in `_swa` for layers with one; in `config.json` the plain keys are for layers with one.
#[derive(Clone, Copy, Debug)]
pub struct FullAttention {
    /// The key of `config.json` for the elements of a head, and its default, with its source.
    pub head_dim: (&'static str, usize, &'static str),
    /// The key of `config.json` for key and value heads, used where keys are values; absent it changes nothing.
    pub kv_heads: &'static str,
    /// The flag of `config.json` under which their keys, before norm and rotation, are also their values. In GGUF this
    /// holds where no tensor of values is stored.
    pub keys_are_values: &'static str,
}

/// A table to start from: Llama's block without options. A family lists its own entries before these.
pub const LLAMA_LIKE: Family = Family {
    id: "",
    gguf_architectures: &[],
    model_types: &[],
    wrappers: &[],
    files: FileTable {
        keys: KEYS,
        aliases: &[],
        defaults: &[],
        defaults_source: "",
        adjusted_width: None,
        unneeded: &[],
        refused: &[],
    },
    tensors: &[LLAMA_LIKE_TENSORS],
    fused: &[],
    biases: &[],
    window: Window::Unused,
    block: BlockTable {
        norm: NormKind::Rms,
        activation: (Activation::SwiGlu { gate: () }, &["silu", "swish"]),
        parallel: false,
        first_unnormed: false,
        factors: &[],
        whole_head_norms: false,
        value_norm: false,
        gated_attention: false,
        full_attention: None,
        shared_layers: None,
        layer_embedding: None,
        gguf_score_scale: &[],
        states: None,
    },
    experts: None,
    rope: RopeTable {
        gguf_layout: RopeLayout::HalfSplit,
        config_layout: RopeLayout::HalfSplit,
        theta: Some((10_000.0, "the default of transformers and of llama.cpp")),
        rotary_part: None,
        window: None,
        unrotated: None,
        never: false,
        switch: None,
        query_scale: None,
        aliases: &[],
        unsaid_scaling: None,
        original_context: None,
        longrope_magnitudes: None,
        gguf_freqs_expected: None,
        gguf_freqs_needed: false,
        gguf_yarn_truncate: true,
    },
    head: HeadTable {
        tied: (false, "the default of transformers"),
        tied_keys: &["tie_word_embeddings"],
        encoder: false,
        embedding_by_root_of_width: false,
        padding: None,
        token_types: None,
        classifier: None,
        predictors: None,
    },
    variants: &[],
    name: "",
};

// Parts of this table, and the rotation of families whose GGUF converter permutes the rows of q and k to rotate adjacent pairs.
const FILES: FileTable = LLAMA_LIKE.files;
const BLOCK: BlockTable = LLAMA_LIKE.block;
const HEAD: HeadTable = LLAMA_LIKE.head;
const ROPE: RopeTable = LLAMA_LIKE.rope;
const PERMUTED: RopeTable = RopeTable { gguf_layout: RopeLayout::Interleaved, ..ROPE };

// Biases and fused tensors that several tables have.
const ATTENTION_BIAS: Biases = (&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias"));
const MLP_BIAS: Biases = (&[Role::Gate, Role::Up, Role::Down], Bias::Flag("mlp_bias"));
const QKV: FusedName = FusedName::new(&[Role::Q, Role::K, Role::V], "blk.{}.attn_qkv", "");
const GATE_UP: FusedName = FusedName::new(&[Role::Gate, Role::Up], "blk.{}.ffn_up", "");

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
const EMBEDDING_TO_VALUES: &[TensorName] = LLAMA_LIKE_TENSORS.split_at(5).0;

/// All tensor names but those of the norms before sub-layers.
const WITHOUT_INPUT_NORMS: &[TensorName] = LLAMA_LIKE_TENSORS.split_at(10).0;

/// The keys of Llama and of every family with the same block.
#[rustfmt::skip]
const KEYS: Keys = Keys {
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

/// The keys of families whose norms are of mean and variance.
const LAYER_NORM_KEYS: Keys =
    Keys { norm_eps: Key { gguf: ".attention.layer_norm_epsilon", config: "layer_norm_eps" }, ..KEYS };

/// The names of one role's tensor.
#[allow(missing_docs)] // of names that say it
#[derive(Clone, Copy, Debug)]
pub struct TensorName {
    pub role: Role,
    pub gguf: &'static str,
    pub config: &'static str,
}

/// The names of a tensor that holds several roles' rows, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct FusedName {
    /// The roles in row order.
    pub roles: &'static [Role],
    /// The name in GGUF; empty where no writer produces it.
    pub gguf: &'static str,
    /// The name in safetensors; empty where no writer produces it.
    pub config: &'static str,
}

/// Linear layers, and whether they have a bias.
pub type Biases = (&'static [Role], Bias);

/// Whether a linear layer has a bias. A role that is not listed has none.
#[derive(Clone, Copy, Debug)]
pub enum Bias {
    /// Every model of the family has one.
    Always,
    /// The value of this flag of `config.json` (absent is false); in GGUF, whether the tensor is present.
    Flag(&'static str),
    /// The value of this flag of `config.json` (absent is true); in GGUF, whether the tensor is present.
    UnlessFlag(&'static str),
}
