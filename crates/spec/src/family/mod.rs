//! The registry of families, one line each, and the shape of a family's table. Tables hold data only.

mod bert;
mod experts;
mod gemma2;
mod gemma3;
mod gemma4;
mod gptoss;
mod granite;
mod granite_hybrid;
mod granite_moe;
mod lfm2;
mod lfm2_moe;
mod llama;
mod ministral3;
mod mixtral;
mod modern_bert;
mod nomic_bert;
mod olmo2;
mod olmoe;
mod parts;
mod phi2;
mod phi3;
mod phi_moe;
mod qwen2;
mod qwen2_moe;
mod qwen2_vl;
mod qwen3;
mod qwen35;
mod qwen35_moe;
mod qwen3_moe;
mod qwen3_next;
mod qwen3_vl;
mod qwen3_vl_moe;
mod roberta;
mod role;
mod smollm3;
pub(crate) mod unsupported;

pub use crate::spec::{DeltaNetKeys, StateMixer};
pub use parts::{
    AdjustedWidth, DenseLayers, Evidence, ExpertTable, Normalized, StateLayers, StateTable, Unrotated, Variant, Window,
    WindowPattern, WindowRope,
};
pub use role::Role;
pub use unsupported::UNSUPPORTED;

// What tables name: each imports all of this module.
use crate::block::{Activation, DenseActivation, KeySharing, Pooling, RopeLayout, RouterScore};
use experts::*;
use parts::Evidence::*;
use parts::PATTERN;
use qwen3::HEAD_NORMS;

/// Every family that is recognised, in the order it is tried.
pub const REGISTRY: &[&Family] = &[
    &llama::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &qwen3_moe::FAMILY,
    &qwen2_vl::FAMILY,
    &qwen3_vl::FAMILY,
    &qwen3_vl_moe::FAMILY,
    &phi3::FAMILY,
    &phi2::FAMILY,
    &gemma2::FAMILY,
    &gemma3::FAMILY,
    &gemma4::FAMILY,
    &granite::FAMILY,
    &ministral3::FAMILY,
    &olmo2::FAMILY,
    &smollm3::FAMILY,
    &qwen2_moe::FAMILY,
    &olmoe::FAMILY,
    &mixtral::FAMILY,
    &granite_moe::FAMILY,
    &granite_hybrid::FAMILY,
    &phi_moe::FAMILY,
    &qwen35::FAMILY,
    &qwen35_moe::FAMILY,
    &qwen3_next::FAMILY,
    &lfm2::FAMILY,
    &lfm2_moe::FAMILY,
    &gptoss::FAMILY,
    &bert::FAMILY,
    &roberta::FAMILY,
    &nomic_bert::FAMILY,
    &modern_bert::FAMILY,
];

/// One family of models: how its files name things, and the options of its block.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The id reports use.
    pub id: &'static str,
    /// Values of GGUF `general.architecture`.
    pub gguf_architectures: &'static [&'static str],
    /// Values of `model_type` in `config.json`, each with the values of `architectures[0]` that go with it.
    pub model_types: &'static [(&'static str, &'static [&'static str])],
    /// Models that also see or hear and have a language model of this family: class and model type. Its keys are those of
    /// `text_config`.
    pub wrappers: &'static [(&'static str, &'static str)],
    /// What else is read from files, and what they must have and must not have.
    pub files: FileTable,
    /// Lists of tensor names without `.weight` or `.bias`, by role; `{}` stands for the layer, and `{expert}` for an expert
    /// where each has a tensor of its own.
    pub tensors: &'static [&'static [TensorName]],
    /// Tensors that hold several roles as consecutive rows, where a file has them instead.
    pub fused: &'static [FusedName],
    /// Which linear layers have a bias.
    pub biases: &'static [Biases],
    /// What a stored sliding window means.
    pub window: Window,
    /// What blocks are built of.
    pub block: BlockTable,
    /// The experts of its feed-forward layers, where it has any.
    pub experts: Option<ExpertTable>,
    /// How queries and keys are rotated.
    pub rope: RopeTable,
    /// The embedding and the heads.
    pub head: HeadTable,
    /// Variants by evidence; the first that matches names the model, the family's own name is last.
    pub variants: &'static [Variant],
    /// The name where no variant matches.
    pub name: &'static str,
}

/// What else is read from files, and what they must have and must not have.
#[derive(Clone, Copy, Debug)]
pub struct FileTable {
    /// Metadata keys by quantity.
    pub keys: Keys,
    /// Other names of keys in `config.json`, each after the one that counts.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Lists of sizes where `config.json` does not give them, by key; the first of a key counts.
    pub defaults: &'static [&'static [(&'static str, f64)]],
    /// Where those are known from.
    pub defaults_source: &'static str,
    /// How the feed-forward width follows from the keys of `config.json`, where it is not one of them.
    pub adjusted_width: Option<AdjustedWidth>,
    /// What the names of tensors begin with that nothing here needs, and that need no warning.
    pub unneeded: &'static [&'static str],
    /// What keys must not say.
    pub refused: &'static [Refusal],
}

/// What a key must not say, and what that would ask for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// A flag of `config.json` that is set, or a number that is not 0.
    Set(&'static str, &'static str),
    /// A flag that is false.
    Unset(Key, &'static str),
    /// This text in `config.json`.
    Text(&'static str, &'static str, &'static str),
    /// A key that GGUF files must have in addition to those of sizes: what it says is not known without it, and llama.cpp refuses
    /// such a file.
    AbsentGguf(&'static str),
}

/// What blocks are built of.
#[derive(Clone, Copy, Debug)]
pub struct BlockTable {
    /// The norms. Which of them a block has is said by the names of their tensors.
    pub norm: NormKind,
    /// The activation and its name in `config.json`.
    pub activation: (Activation, &'static [&'static str]),
    /// Whether attention and feed-forward layer read the same normed input, and both are added to it.
    pub parallel: bool,
    /// Whether the first layer's attention reads the residual stream without a norm.
    pub first_unnormed: bool,
    /// Numbers beyond the sizes.
    pub factors: &'static [Factor],
    /// Whether queries and keys are normed over all of their heads together, where they are.
    pub whole_head_norms: bool,
    /// Whether each head of values is normed, without a weight.
    pub value_norm: bool,
    /// Whether queries of attention bring a gate of its output: of every head its query, then its gate.
    pub gated_attention: bool,
    /// Sizes of attention in layers without a window, where these are others than in layers with one.
    pub full_attention: Option<FullAttention>,
    /// How many of the last layers use the keys and values of earlier ones, and the flag of `config.json` under which their
    /// feed-forward layers are twice as wide. GGUF has a width for each layer.
    pub shared_layers: Option<(Key, &'static str)>,
    /// The embeddings of layers, a row for each token and layer, which its block reads: elements of a row, and what their absence
    /// in `config.json` means, with its source. In GGUF absent or 0 is none.
    pub layer_embedding: Option<(Key, usize, &'static str)>,
    /// GGUF models whose scores are divided by the square root of the width by heads, which the files do not say: their
    /// number of layers, and the source.
    pub gguf_score_scale: &'static [(usize, &'static str)],
    /// Layers that keep a state in place of keys and values, where it has some.
    pub states: Option<StateTable>,
}

/// How queries and keys are rotated.
#[derive(Clone, Copy, Debug)]
pub struct RopeTable {
    /// Which elements of a head turn together in GGUF files.
    pub gguf_layout: RopeLayout,
    /// Which elements of a head turn together in safetensors files.
    pub config_layout: RopeLayout,
    /// The rotary base where `config.json` gives none, with its source; `None` where it has to. In GGUF it is llama.cpp's.
    pub theta: Option<(f64, &'static str)>,
    /// The part of a head that is rotated where no key gives it, with its source; `None` where it is always all of it.
    pub rotary_part: Option<(f64, &'static str)>,
    /// How layers with a window rotate, where that differs from the others.
    pub window: Option<WindowRope>,
    /// Which layers do not rotate.
    pub unrotated: Option<Unrotated>,
    /// What says whether any layer rotates, where models differ: a flag of GGUF files, of which absent is true, and a text of
    /// `config.json`. They do where it is `rope`; where it is `nope`, null or absent they do not.
    pub switch: Option<Key>,
    /// The key of a scale of queries that grows with their position, within the rope parameters of `config.json`.
    pub query_scale: Option<Key>,
    /// Other names of rope scalings in `config.json`, and what they mean in this family.
    pub aliases: &'static [(&'static str, &'static str)],
    /// What transformers scales a rotation by that `config.json` says nothing of, where that is not nothing. Such a file is
    /// refused.
    pub unsaid_scaling: Option<&'static str>,
    /// The context before rope scaling where no key gives it, with its source.
    pub original_context: Option<(u64, &'static str)>,
    /// The keys in `config.json` of what longrope multiplies cosines and sines by, one for each of its lists; `None` where
    /// one number holds for both.
    pub longrope_magnitudes: Option<[&'static str; 2]>,
    /// A rotary base and the context that models of that base reach without scaling: a GGUF file that claims more should
    /// store frequency factors, and the report says so when it does not.
    pub gguf_freqs_expected: Option<(f64, usize)>,
    /// Whether its GGUF files have to store frequency factors.
    pub gguf_freqs_needed: bool,
    /// Whether the ends of YaRN's ramp are whole pairs in GGUF files, which have no key for it.
    pub gguf_yarn_truncate: bool,
}

/// The embedding and the heads.
#[derive(Clone, Copy, Debug)]
pub struct HeadTable {
    /// Whether the output head is the embedding where no key of `config.json` says it, with its source.
    pub tied: (bool, &'static str),
    /// The keys that do; the first that is there counts.
    pub tied_keys: &'static [&'static str],
    /// Whether it is an encoder: tokens attend to later ones too, and there is no output head.
    pub encoder: bool,
    /// Whether the embedding's rows are multiplied by the square root of the width.
    pub embedding_by_root_of_width: bool,
    /// The key of `config.json` of the token that fills texts up, with its default and the source of that: rows of positions begin
    /// after its number. In GGUF the rows before are left out.
    pub padding: Option<(&'static str, usize, &'static str)>,
    /// The key of how many kinds of tokens it tells apart, and what its absence in `config.json` means, with its source.
    pub token_types: Option<(Key, usize, &'static str)>,
    /// The head that scores labels, of models that classify texts or rank documents.
    pub classifier: Option<ClassifierTable>,
    /// The key of how many layers predict further tokens: a head that is loaded where that is asked for. In GGUF they are the last
    /// blocks.
    pub predictors: Option<Key>,
}

/// A quantity's key in either format. GGUF keys that begin with a dot follow the architecture's name.
#[allow(missing_docs)] // of names that say it
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub gguf: &'static str,
    pub config: &'static str,
}

/// The keys of the quantities a block is built from.
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
    /// The same. In safetensors the weight is stored as its offset from one, in GGUF it is not.
    RmsFromOne,
    /// Mean and variance, with a weight and a bias.
    Layer,
    /// The same without a bias.
    PlainLayer,
}

/// A number that a family's files may have, and what its absence means in each format; `None` where that changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    /// What it does.
    pub of: FactorOf,
    /// Where it stands.
    pub key: Key,
    /// Its value where a GGUF file has none, with the source.
    pub gguf_default: Option<(f64, &'static str)>,
    /// Its value where `config.json` has none, with the source. `null` is no number in every family.
    pub config_default: Option<(f64, &'static str)>,
}

/// What a number of a family does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FactorOf {
    /// The embedding's rows are multiplied by it.
    Embedding,
    /// What a sub-layer adds to the residual stream is multiplied by it.
    Residual,
    /// Products of queries and keys are multiplied by it.
    Scores,
    /// They are divided by its square root.
    ScoresByRoot,
    /// `cap * tanh(score / cap)`.
    ScoreCap,
    /// Logits are divided by it.
    LogitDivisor,
    /// `cap * tanh(logit / cap)`.
    LogitCap,
    /// What a clamped gate and up are clamped to, in place of the table's.
    GateLimit,
    /// What a clamped gate is multiplied by within its sigmoid, in place of the table's.
    GateAlpha,
    /// The weights of chosen experts are multiplied by it.
    Experts,
}

/// A classification head. Which layers and norms it has is said by the names of their tensors.
#[derive(Clone, Copy, Debug)]
pub struct ClassifierTable {
    /// Which of the tokens' hidden states it reads.
    pub pooling: Pooling,
    /// The key of `config.json` that says so where models differ.
    pub pooling_key: Option<&'static str>,
    /// The key of `config.json` of the activation, where models may differ.
    pub activation_key: Option<&'static str>,
    /// The activation of the layer before the last, where there is one.
    pub dense: Option<DenseActivation>,
}

/// One matrix over the last token's hidden state, as transformers' decoders have it.
pub(crate) const SCORE: ClassifierTable =
    ClassifierTable { pooling: Pooling::Last, pooling_key: None, activation_key: None, dense: None };

/// Its name.
#[rustfmt::skip]
pub(crate) const SCORE_TENSORS: &[TensorName] = &[
    TensorName { role: Role::Classifier,    gguf: "cls.output",          config: "score" },
];

/// Layers without a window whose attention has other sizes than that of layers with one. In GGUF the plain keys are theirs,
/// and those that end in `_swa` of layers with a window; in `config.json` the plain keys are of layers with a window.
#[derive(Clone, Copy, Debug)]
pub struct FullAttention {
    /// The key of elements of a head in `config.json`, and what its absence means, with its source.
    pub head_dim: (&'static str, usize, &'static str),
    /// The key of key and value heads in `config.json`, which counts where keys are values; absent it changes nothing.
    pub kv_heads: &'static str,
    /// The flag of `config.json` under which their keys, before norm and rotation, are their values too. In GGUF they are
    /// where there is no tensor of values.
    pub keys_are_values: &'static str,
}

/// A table to start from: the block of Llama without options. What a family says itself comes before it.
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

// Its parts, and the one of families whose GGUF converter permutes the rows of q and k, so that neighbours turn together.
const FILES: FileTable = LLAMA_LIKE.files;
const BLOCK: BlockTable = LLAMA_LIKE.block;
const HEAD: HeadTable = LLAMA_LIKE.head;
const ROPE: RopeTable = LLAMA_LIKE.rope;
const PERMUTED: RopeTable = RopeTable { gguf_layout: RopeLayout::Interleaved, ..ROPE };

// What several tables say of biases and of fused tensors.
const ATTENTION_BIAS: Biases = (&[Role::Q, Role::K, Role::V, Role::O], Bias::Flag("attention_bias"));
const MLP_BIAS: Biases = (&[Role::Gate, Role::Up, Role::Down], Bias::Flag("mlp_bias"));
const QKV: FusedName = FusedName::new(&[Role::Q, Role::K, Role::V], "blk.{}.attn_qkv", "");
const GATE_UP: FusedName = FusedName::new(&[Role::Gate, Role::Up], "blk.{}.ffn_up", "");

/// The tensor names that Llama and everything built like it use.
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

/// Those of the embedding, the head, queries, keys and values.
const EMBEDDING_TO_VALUES: &[TensorName] = LLAMA_LIKE_TENSORS.split_at(5).0;

/// All but the norms in front of sub-layers.
const WITHOUT_INPUT_NORMS: &[TensorName] = LLAMA_LIKE_TENSORS.split_at(10).0;

/// The keys that Llama and everything built like it use.
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

/// The same with norms of mean and variance.
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
    /// In GGUF; empty where no writer produces it.
    pub gguf: &'static str,
    /// In safetensors; empty where no writer produces it.
    pub config: &'static str,
}

impl FusedName {
    const fn new(roles: &'static [Role], gguf: &'static str, config: &'static str) -> FusedName {
        FusedName { roles, gguf, config }
    }
}

/// Linear layers, and whether they have a bias.
pub type Biases = (&'static [Role], Bias);

/// Whether a linear layer has a bias. A role that is not listed has none.
#[derive(Clone, Copy, Debug)]
pub enum Bias {
    /// In every model of the family.
    Always,
    /// As this flag of `config.json` says (absent is false); in GGUF, where the tensor is present.
    Flag(&'static str),
    /// The same, and absent is true.
    UnlessFlag(&'static str),
}
