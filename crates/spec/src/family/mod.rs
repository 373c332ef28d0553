//! The registry of families, one line each, and the shape of a family's table. Tables hold data only.

mod experts;
mod parts;
mod role;
mod starts;

pub use crate::spec::{DeltaNetKeys, MambaKeys, PlainNorms, StateMixer};
pub(crate) use parts::DENSE;
pub use parts::{
    AdjustedWidth, AltUpTable, ByInputs, DenseLayers, Encoder, Evidence, ExpertTable, Factor, FactorOf, FullAttention,
    GateWidth, GroupTable, HeadNorms, Normalized, Parallel, PlaceOfLayers, QueryScaling, Refusal, SparseGates,
    StateLayers, StateTable, Unrotated, Variant, Window, WindowPattern, WindowRope,
};
pub(crate) use role::ADAPTED;
pub use role::{Bias, Biases, FusedName, Role, TensorName};
pub use starts::LLAMA_LIKE_TENSORS;

// Names that the tables use; each table imports all of this module.
use crate::block::{Activation, DenseActivation, ExpertInput, ImageRows, KeySharing, Pooling};
use crate::block::{QkvOrder, RopeLayout, RouterScore};
use experts::*;
use parts::Evidence::*;
use parts::PATTERN;
use qwen2_moe::SHARED_WIDTH;
use qwen3::HEAD_NORMS;
use starts::*;

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
    deepseek2,
    deepseek3,
    gpt2,
    gpt_bigcode,
    gptj,
    opt,
    gpt_neox,
    bloom,
    falcon,
    mpt,
    xverse,
    internlm2,
    exaone,
    pangu,
    orion,
    plamo,
    refact,
    codeshell,
    minicpm,
    dbrx,
    minimax_m2,
    jais,
    qwen,
    mellum,
    glm4_moe_lite,
    youtu,
    minicpm3,
    glm4_moe,
    bert,
    roberta,
    nomic_bert,
    modern_bert,
    eurobert,
    neobert,
    llama_embed,
    distilbert,
    deberta2,
    jina_bert,
    jina3,
    gte,
    gemma_embedding,
    mpnet,
    nomic_bert_moe,
    nemotron_h,
    bamba,
    falcon_h1,
    cohere,
    cohere2,
    glm,
    glm4,
    exaone4,
    seed_oss,
    ernie,
    hunyuan,
    gemma,
    arcee,
    apertus,
    starcoder2,
    stablelm,
    internlm3,
    iquestcoder,
    ministral,
    gemma4_unified,
    gemma3n,
    lfm3,
    hyperclovax,
    olmo,
    nemotron,
    maincoder,
    plamo3,
    granite_swa,
    paddleocr,
    codegen,
    openelm,
    deci,
    afmoe,
    laguna,
    muse_glimmer,
    spark,
    nanbeige,
    baichuan,
    jais2,
    olmo_hybrid,
    mamba,
    mamba2,
    jamba,
    plamo2,
    ernie_moe,
    hunyuan_moe,
    dots1,
    exaone_moe,
    cohere2_moe,
    hy_v3,
    deepseek,
    bailing_moe,
    bailing_moe2,
    smallthinker,
    arctic,
    llama4,
    mistral4,
    kimi_linear,
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
    /// expert where each expert has a tensor of its own. Of several names of a role the first that is stored counts.
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
    /// How many times the width a feed-forward layer is wide where no key of `config.json` says it, with the source.
    pub width_factor: Option<(usize, &'static str)>,
    /// Whether GGUF's key of the feed-forward width counts gate and up together.
    pub width_is_double: bool,
    /// The flag of `config.json` under which there is one head of keys and values, true if absent, and else as many as of
    /// queries; and a flag under which it does not count, if there is one.
    pub multi_query: Option<(&'static str, &'static str)>,
    /// Whether safetensors files have the layers' matrices as `[inputs, outputs]`.
    pub transposed: bool,
    /// Prefixes of the names of tensors that are not needed here and need no warning.
    pub unneeded: &'static [&'static str],
    /// Values of keys that are refused.
    pub refused: &'static [Refusal],
}

/// The options of the block.
#[derive(Clone, Copy, Debug)]
pub struct BlockTable {
    /// The key of the epsilon by which norms are of root mean square, where they are otherwise not.
    pub rms_key: Option<Key>,
    /// The kind of the norms. The names of the tensors say which norms a block has; one with an empty name has no weight.
    pub norm: NormKind,
    /// Whether the weight of the last norm is stored as it is, where those of others are offsets from one.
    pub plain_final_norm: bool,
    /// The key of the epsilon of norms after sub-layers, where it is another, and its default, with its source.
    pub output_norm_eps: Option<(Key, f64, &'static str)>,
    /// The activation and its name in `config.json`.
    pub activation: (Activation, &'static [&'static str]),
    /// Further activations and their names in `config.json`.
    pub other_activations: &'static [(Activation, &'static [&'static str])],
    /// Whether the feed-forward layer reads what attention reads: by the same norm, or by its own where the table names one.
    pub parallel: Parallel,
    /// The order of the rows of [`Role::Qkv`].
    pub qkv_order: QkvOrder,
    /// Whether the first layer's attention reads the residual stream without a norm.
    pub first_unnormed: bool,
    /// Factors and caps.
    pub factors: &'static [Factor],
    /// What norms of queries and keys are over, where there are any.
    pub head_norms: HeadNorms,
    /// The flag of `config.json` under which there are norms of queries and keys, and in GGUF whether they are stored; `None`
    /// where all models whose table names them have them.
    pub head_norm_flag: Option<&'static str>,
    /// Whether queries and keys are rotated before their norms, not after.
    pub norms_rotated: bool,
    /// Norms of queries and keys without weights, in layers that rotate: the flag of `config.json` without which there are none,
    /// true if absent, and the number of experts of GGUF models that have none.
    pub plain_head_norms: Option<(&'static str, usize)>,
    /// Whether each head of values is normalized, without a weight.
    pub value_norm: bool,
    /// Whether the query projection also computes a gate of the output: for every head its query, then its gate.
    pub gated_attention: bool,
    /// What each gate of the output is for, where a projection of its own computes them.
    pub attention_gate: Option<GateWidth>,
    /// Whether these gates are softpluses, not sigmoids.
    pub softplus_gates: bool,
    /// Whether heads and widths may differ from layer to layer, by GGUF's lists and this list of heads of `config.json`. A
    /// layer with none of either has no such sub-layer.
    pub sizes_by_layer: Option<&'static str>,
    /// Sizes of attention in layers without a window, where they differ from those of layers with one.
    pub full_attention: Option<FullAttention>,
    /// The keys of the number of passes over all layers, and of a flag without which the last norm is there between them too.
    pub passes: Option<(Key, Key)>,
    /// How many of the last layers reuse the keys and values of earlier ones, and the flag of `config.json` under which
    /// their feed-forward layers are twice as wide. GGUF stores a width for each layer.
    pub shared_layers: Option<(Key, &'static str)>,
    /// Per-layer embeddings, one row for each token and layer, which the layer's block reads: the key of the elements
    /// of a row, and its default in `config.json`, with its source. In GGUF absent or 0 means none.
    pub layer_embedding: Option<(Key, usize, &'static str)>,
    /// The key of `config.json` for the tokens that have such rows, where they may be fewer than the vocabulary's, and its
    /// default, with its source. Later ones have the first row.
    pub layer_vocabulary: Option<(&'static str, usize, &'static str)>,
    /// Several residual streams, where the family has them.
    pub altup: Option<AltUpTable>,
    /// The key of the rank of a further residual beside attention, and its value where it is absent, with its source.
    pub laurel_rank: Option<(Key, usize, &'static str)>,
    /// Gates of feed-forward layers of which only the largest count, where there are any.
    pub sparse_gates: Option<SparseGates>,
    /// Whether scores are divided by the elements of a head, not by their square root.
    pub scores_by_head: bool,
    /// GGUF models whose scores are divided by the square root of `hidden / heads`, which the files do not say: their
    /// number of layers, and the source.
    pub gguf_score_scale: &'static [(usize, &'static str)],
    /// Layers that keep a recurrent state in place of keys and values, where the family has any.
    pub states: Option<StateTable>,
    /// The epsilon of the norms within latent attention, where the family has that.
    pub latent_eps: Option<f64>,
    /// Whether scores have terms by relative positions, as DeBERTa's keys of `config.json` say.
    pub disentangled: bool,
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
    /// The key of `config.json` for the number of rotated elements of a head, with its default and its source.
    pub rotary_dim: Option<(&'static str, usize, &'static str)>,
    /// Whether pairs turn by three positions of an image's rows in turn, not by sections side by side; the pairs of each where
    /// no key gives them, with the source.
    pub sections: Option<(bool, [usize; 3], &'static str)>,
    /// The rotation of layers with a window, where it differs from that of the others.
    pub window: Option<WindowRope>,
    /// Which layers do not rotate.
    pub unrotated: Option<Unrotated>,
    /// Whether no layer of any model rotates.
    pub never: bool,
    /// The numbers of layers of models that rotate and of those that have ALiBi in its place, where that alone tells them apart.
    pub by_layers: Option<(usize, usize)>,
    /// Whether no layer rotates where `config.json` has null for the base.
    pub unrotated_by_null: bool,
    /// The key that says whether any layer rotates, where models differ: a flag in GGUF files, true if absent, and a
    /// text in `config.json`. `rope` means that layers rotate; `nope`, null or absent means that they do not.
    pub switch: Option<Key>,
    /// A scale of queries that grows with their position.
    pub query_scale: Option<QueryScaling>,
    /// Whether products of queries and keys have a factor by `mscale_all_dim` where the rotation is scaled. GGUF files then have
    /// a tenth of that number, and their cosines and sines no factor.
    pub scores_by_magnitude: bool,
    /// Whether a `dynamic` scaling of `config.json` may have an `alpha`, by which the base grows at every length
    /// (transformers' `compute_ntk_alpha_rope_parameters`). GGUF has the base that comes of it.
    pub alpha: bool,
    /// Whether a scaling of `config.json` may be `ntk`, by which the base is multiplied at every length.
    pub ntk: bool,
    /// Other names of rope scalings in `config.json`, and what they mean in this family.
    pub aliases: &'static [(&'static str, &'static str)],
    /// A scaling of the rotation that transformers applies without a key of `config.json`, where there is one. Such a
    /// file is refused.
    pub unsaid_scaling: Option<&'static str>,
    /// The context before rope scaling where no key gives it, with its source.
    pub original_context: Option<(u64, &'static str)>,
    /// Whether the context before rope scaling is the model's where a GGUF file does not say it, as in llama.cpp.
    pub gguf_original_is_context: bool,
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
    /// Which models are encoders: tokens attend to later ones too, and there is no output head.
    pub encoder: Encoder,
    /// Whether the embedding's rows are multiplied by the square root of the width.
    pub embedding_by_root_of_width: bool,
    /// The flag of `config.json` under which they are, false if absent; `None` where they always are, as in GGUF.
    pub embedding_root_flag: Option<&'static str>,
    /// The key of `config.json` for the elements of an embedding's row, where a projection makes the width of them; absent
    /// there is none.
    pub embedding_width: Option<&'static str>,
    /// The flag of `config.json` under which positions are rows of a matrix, true if absent; `None` where a table that names
    /// it always has it.
    pub positions_flag: Option<&'static str>,
    /// Rows of position embeddings before that of the first token, which the context's key does not count.
    pub first_position: usize,
    /// The key of the padding token in `config.json`, with its default and its source, or no key: rows of positions begin after
    /// its id. In GGUF the rows before are left out.
    pub padding: Option<(&'static str, usize, &'static str)>,
    /// The key of the number of token types, and its default in `config.json`, with its source.
    pub token_types: Option<(Key, usize, &'static str)>,
    /// The classification head of models that classify texts or rank documents.
    pub classifier: Option<ClassifierTable>,
    /// Dense layers after the pooling in GGUF files: the name of the tensor, and the keys of its inputs and outputs.
    pub dense: &'static [(&'static str, Key, Key)],
    /// The key of the number of layers that predict further tokens: a head that is loaded only on request. In GGUF they
    /// are the last blocks.
    pub predictors: Option<Key>,
    /// Whether such layers are numbered after the others in safetensors files too; they are left aside.
    pub predictors_after: bool,
    /// How the rows of an image attend, where the family takes images.
    pub images: Option<ImageRows>,
}

/// A quantity's key in either format, empty where the format has none. GGUF keys that begin with a dot follow the architecture's name.
#[allow(missing_docs)] // of names that say it
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The same. In safetensors the weight is stored as its offset from one, in GGUF it is not.
    LayerFromOne,
    /// Mean and variance, with a weight and no bias.
    PlainLayer,
}

/// A classification head. The names of the tensors say which layers and norms it has.
#[derive(Clone, Copy, Debug)]
pub struct ClassifierTable {
    /// Which tokens' hidden states the head reads; `None` for the mean of the scores of all tokens, which is not computed.
    pub pooling: Option<Pooling>,
    /// The key of `config.json` for the pooling, where models differ.
    pub pooling_key: Option<&'static str>,
    /// The key of `config.json` for the activation, where models differ.
    pub activation_key: Option<&'static str>,
    /// The activation of the dense layer before the output layer, where there is one.
    pub dense: Option<DenseActivation>,
}

/// One matrix over the last token's hidden state, as transformers' decoders have it.
pub(crate) const SCORE: ClassifierTable =
    ClassifierTable { pooling: Some(Pooling::Last), pooling_key: None, activation_key: None, dense: None };

#[rustfmt::skip]
pub(crate) const SCORE_TENSORS: &[TensorName] = &[
    TensorName { role: Role::Classifier,    gguf: "cls.output",          config: "score" },
];

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
        width_factor: None,
        width_is_double: false,
        multi_query: None,
        transposed: false,
        unneeded: &[],
        refused: &[],
    },
    tensors: &[LLAMA_LIKE_TENSORS],
    fused: &[],
    biases: &[],
    window: Window::Unused,
    block: BlockTable {
        rms_key: None,
        norm: NormKind::Rms,
        plain_final_norm: false,
        output_norm_eps: None,
        activation: (Activation::SwiGlu { gate: () }, &["silu", "swish"]),
        other_activations: &[],
        parallel: Parallel::No,
        qkv_order: QkvOrder::AfterQueries,
        first_unnormed: false,
        factors: &[],
        head_norms: HeadNorms::OfHead,
        head_norm_flag: None,
        norms_rotated: false,
        plain_head_norms: None,
        value_norm: false,
        gated_attention: false,
        attention_gate: None,
        softplus_gates: false,
        sizes_by_layer: None,
        full_attention: None,
        passes: None,
        shared_layers: None,
        layer_embedding: None,
        layer_vocabulary: None,
        altup: None,
        laurel_rank: None,
        sparse_gates: None,
        scores_by_head: false,
        gguf_score_scale: &[],
        states: None,
        latent_eps: None,
        disentangled: false,
    },
    experts: None,
    rope: RopeTable {
        gguf_layout: RopeLayout::HalfSplit,
        config_layout: RopeLayout::HalfSplit,
        theta: Some((10_000.0, "the default of transformers and of llama.cpp")),
        rotary_part: None,
        rotary_dim: None,
        sections: None,
        window: None,
        unrotated: None,
        never: false,
        by_layers: None,
        unrotated_by_null: false,
        switch: None,
        query_scale: None,
        scores_by_magnitude: false,
        alpha: false,
        ntk: false,
        aliases: &[],
        unsaid_scaling: None,
        original_context: None,
        gguf_original_is_context: false,
        longrope_magnitudes: None,
        gguf_freqs_expected: None,
        gguf_freqs_needed: false,
        gguf_yarn_truncate: true,
    },
    head: HeadTable {
        tied: (false, "the default of transformers"),
        tied_keys: &["tie_word_embeddings"],
        encoder: Encoder::No,
        embedding_by_root_of_width: false,
        embedding_root_flag: None,
        embedding_width: None,
        positions_flag: None,
        first_position: 0,
        padding: None,
        token_types: None,
        classifier: None,
        dense: &[],
        predictors: None,
        predictors_after: false,
        images: None,
    },
    variants: &[],
    name: "",
};
