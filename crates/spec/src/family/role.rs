//! The roles of weights, whatever their names.

/// The role of a weight. Where the name of the variant says it, the shape is that of the field that the weight becomes
/// ([`ModelWeights`](crate::spec::ModelWeights)).
#[allow(missing_docs)] // of those names
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    Embedding,
    /// Position embeddings, `[context, hidden]`, added to the embedding's rows.
    Positions,
    /// Token type embeddings, `[token_types, hidden]`; the first row is added to the embedding's rows.
    TokenTypes,
    EmbeddingNorm,
    /// The projection of the sum of these to the width, `[hidden, embedding_width]`.
    EmbeddingProjection,
    /// Embeddings of relative positions, `[2 * span, hidden]`, and the norm of their rows.
    RelativePositions,
    RelativePositionNorm,
    /// Keys and queries of relative positions, where they are not those of tokens.
    PositionKey,
    PositionQuery,
    /// What is added to scores by the distance of two positions, `[buckets, heads]`.
    Distances,
    FinalNorm,
    Head,
    NextProjection,
    NextEmbeddingNorm,
    NextHiddenNorm,
    /// The norm of the output of a prediction head, `[hidden]`.
    NextNorm,
    /// The embedding of a prediction head that has its own, `[vocab, hidden]`.
    NextEmbedding,
    /// The output head of a prediction head that has its own, `[vocab, hidden]`.
    NextHead,
    ClassifierDense,
    ClassifierNorm,
    Classifier,
    AttentionNorm,
    /// Queries, keys and values of attention in one matrix of safetensors, `[(heads + 2 * kv_heads) * head_dim, hidden]`.
    Qkv,
    Q,
    K,
    V,
    O,
    QNorm,
    KNorm,
    /// The first projection of queries where there are two, and the norm after it.
    QDown,
    QDownNorm,
    QUp,
    /// The projection of latents and of the parts of keys that all heads share, and the norm of latents.
    KvDown,
    KvDownNorm,
    /// Keys and values of latents, head by head, `[heads * (plain + value_dim), rank]`.
    KvUp,
    /// Keys of latents, transposed, `[heads, rank, plain]`; only GGUF has them apart.
    LatentKeys,
    LatentValues,
    Sinks,
    /// Gates of attention's output, `[heads, hidden]` or `[heads * head_dim, hidden]`.
    AttentionGate,
    AttentionOutputNorm,
    AttentionSumNorm,
    MlpNorm,
    MlpOutputNorm,
    MlpSumNorm,
    Gate,
    Up,
    Down,
    /// The numbers of a layer's activation; what their names, and keys of GGUF, begin with.
    Curve,
    Router,
    /// The bias that is added to the scores only to choose experts, `[experts]`; its names are whole.
    ChoiceBias,
    /// The norm of the router's input, `[hidden]`; its names are whole.
    RouterNorm,
    /// The factors of the experts' weights, `[experts]`; its names are whole.
    ExpertScales,
    /// The norm of the input of experts next to a dense layer, `[hidden]`.
    ExpertsNorm,
    ExpertsOutputNorm,
    DenseOutputNorm,
    ExpertGate,
    ExpertUp,
    ExpertDown,
    SharedGate,
    SharedUp,
    SharedDown,
    SharedRouter,
    /// Queries, keys and values of a delta net, `[2 * key_heads * key_dim + value_heads * value_dim, hidden]`.
    DeltaQkv,
    /// Queries, keys, values and output gate by key heads, `[2 * key_heads * key_dim + 2 * value_heads * value_dim, hidden]`.
    DeltaQkvz,
    /// `beta` and `alpha` of a delta net by key heads, `[2 * value_heads, hidden]`: how much a position corrects, and the decay.
    DeltaBetaAlpha,
    /// The parts of [`DeltaQkv`](Self::DeltaQkv) where each has a matrix.
    DeltaQ,
    DeltaK,
    DeltaV,
    MambaInput,
    MambaStep,
    /// What Mamba's steps, keys and queries are made of, `[rank, values]` and `[state_dim, values]`, and their norms.
    MambaRank,
    MambaKey,
    MambaQuery,
    MambaRankNorm,
    MambaKeyNorm,
    MambaQueryNorm,
    /// The factor with which a value is added to the output (`D`), `[heads]`; its names are whole.
    MambaSkip,
    /// The gate of the output of a layer with a state, `[value_heads * value_dim, hidden]`.
    StateGate,
    /// The same in two projections, of `[key_dim, hidden]` and `[value_heads * value_dim, key_dim]`.
    StateGateDown,
    StateGateUp,
    /// How much a position corrects the state (`beta`), `[value_heads, hidden]`.
    DeltaBeta,
    /// How much the state decays (`alpha`), `[value_heads, hidden]`.
    DeltaAlpha,
    /// The same in two projections, for each element of a key: `[key_dim, hidden]` and `[key_heads * key_dim, key_dim]`.
    DeltaAlphaDown,
    DeltaAlphaUp,
    /// The bias of the decay or of a step (`dt_bias`), `[value_heads]`, or `[key_heads * key_dim]`; its names are whole.
    StateStepBias,
    /// The factor of the softplus of the decay or step (`A`), `[value_heads]`; its names are whole.
    StateDecay,
    /// The norm of what a layer with a state reads from it, `[value_dim]` of every head of a delta net, or all of it:
    /// its weight is stored without an offset in every family.
    StateNorm,
    StateOut,
    /// The convolution of a layer with a state: `[channels, kernel]`, in safetensors `[channels, 1, kernel]`.
    Conv,
    /// Its parts for queries, keys and values, where each has a tensor.
    ConvQ,
    ConvK,
    ConvV,
    ConvIn,
    ConvOut,
    LayerEmbedding,
    LayerEmbeddingProjection,
    LayerEmbeddingNorm,
    LayerEmbeddingGate,
    LayerEmbeddingOutput,
    LayerEmbeddingOutputNorm,
    /// The factor of the residual stream after a block, `[1]`. Tables have its whole name.
    LayerScale,
    /// The projections that further residual streams begin with, and those by which they end; `{}` is the number of one, and in
    /// GGUF all are in one tensor.
    AltUpInput,
    AltUpOutput,
    AltUpRouterNorm,
    AltUpRouter,
    AltUpPrediction,
    AltUpCorrection,
    /// The factors of the corrected stream that a layer's embedding is gated by, `[hidden]`. Tables have its whole name.
    AltUpScale,
    LaurelDown,
    LaurelUp,
    LaurelNorm,
}

/// The roles of linear layers that adapters may change: their products are all that is computed with them.
#[rustfmt::skip]
pub(crate) const ADAPTED: &[Role] = &[
    Role::Q, Role::K, Role::V, Role::Qkv, Role::O, Role::AttentionGate, Role::QDown, Role::KvDown,
    Role::Gate, Role::Up, Role::Down, Role::SharedGate, Role::SharedUp, Role::SharedDown,
    Role::DeltaQkv, Role::DeltaQkvz, Role::DeltaBetaAlpha, Role::DeltaQ, Role::DeltaK, Role::DeltaV,
    Role::DeltaBeta, Role::DeltaAlpha, Role::DeltaAlphaDown, Role::DeltaAlphaUp,
    Role::MambaInput, Role::MambaRank, Role::MambaKey, Role::MambaQuery, Role::MambaStep,
    Role::StateGate, Role::StateGateDown, Role::StateGateUp, Role::StateOut,
    Role::ConvIn, Role::ConvOut, Role::Head,
];

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
