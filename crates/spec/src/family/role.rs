//! What a weight does, whatever its name.

/// What a weight does. Where a name says it, the shape is that of the field that the weight becomes
/// ([`ModelWeights`](crate::spec::ModelWeights)).
#[allow(missing_docs)] // of those names
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    Embedding,
    /// `[context, hidden]`, added to the embedding's rows.
    Positions,
    /// `[token_types, hidden]`, of which the first row is added to them.
    TokenTypes,
    /// `[hidden]`, of that sum.
    EmbeddingNorm,
    FinalNorm,
    Head,
    /// `[hidden, 2 * hidden]`, of a prediction head: what it makes of the next token's embedding and a hidden state.
    NextProjection,
    /// `[hidden]`, of that embedding.
    NextEmbeddingNorm,
    /// `[hidden]`, of that hidden state.
    NextHiddenNorm,
    /// `[hidden]`, of what a prediction head puts out.
    NextNorm,
    /// `[vocab, hidden]`, where a prediction head has an embedding of its own.
    NextEmbedding,
    /// `[vocab, hidden]`, where a prediction head has an output head of its own.
    NextHead,
    ClassifierDense,
    /// `[hidden]`, of what that puts out.
    ClassifierNorm,
    Classifier,
    AttentionNorm,
    /// `[heads * head_dim, hidden]`, or twice as many rows where attention is gated.
    Q,
    K,
    V,
    O,
    /// Of the queries: `[head_dim]`, or `[heads * head_dim]`.
    QNorm,
    /// Of the keys: `[head_dim]`, or `[kv_heads * head_dim]`.
    KNorm,
    /// `[heads]`, scores of a position without a value.
    Sinks,
    /// `[hidden]`, of what attention adds to the residual stream.
    AttentionOutputNorm,
    /// `[hidden]`, of the residual stream after attention.
    AttentionSumNorm,
    MlpNorm,
    /// `[hidden]`, of what the feed-forward layer adds to the residual stream.
    MlpOutputNorm,
    /// `[hidden]`, of the residual stream after the feed-forward layer.
    MlpSumNorm,
    Gate,
    Up,
    Down,
    Router,
    /// `[experts]`, added to the scores where experts are chosen; its names are whole.
    ChoiceBias,
    /// `[hidden]`, of what the router reads; its names are whole.
    RouterNorm,
    /// `[experts]`, what their weights are multiplied by; its names are whole.
    ExpertScales,
    /// `[hidden]`, of what experts next to a dense layer read.
    ExpertsNorm,
    /// `[hidden]`, of what they put out.
    ExpertsOutputNorm,
    /// `[hidden]`, of what the dense layer next to them puts out.
    DenseOutputNorm,
    ExpertGate,
    ExpertUp,
    ExpertDown,
    SharedGate,
    SharedUp,
    SharedDown,
    /// `[1, hidden]`: how much of the shared expert a token takes.
    SharedRouter,
    /// Queries, keys and values of a delta net, `[2 * key_heads * key_dim + value_heads * value_dim, hidden]`.
    DeltaQkv,
    /// These and the gate of its output by heads of keys, `[2 * key_heads * key_dim + 2 * value_heads * value_dim, hidden]`.
    DeltaQkvz,
    /// How much a position corrects and how much the state decays by heads of keys, `[2 * value_heads, hidden]`.
    DeltaBetaAlpha,
    /// What a Mamba-2 layer convolves: values, keys and queries (`x`, `B` and `C`), `[channels, hidden]`.
    MambaInput,
    /// How long a position's step is, before its softplus, `[heads, hidden]`.
    MambaStep,
    /// What a value is multiplied by to be added to what is read, `[heads]`; its names are whole.
    MambaSkip,
    /// The gate of the output of a layer with a state, `[value_heads * value_dim, hidden]`.
    StateGate,
    /// How much a position corrects, `[value_heads, hidden]`.
    DeltaBeta,
    /// How much the state decays, `[value_heads, hidden]`.
    DeltaAlpha,
    /// What is added to that, or to a step, `[value_heads]`; its names are whole.
    StateStepBias,
    /// What its softplus is multiplied by, `[value_heads]`; its names are whole.
    StateDecay,
    /// Of what a layer with a state reads, `[value_dim]` of every head of a delta net, or all of it: its weight is stored as it is
    /// in every family.
    StateNorm,
    StateOut,
    /// The convolution of a layer with a state: `[channels, kernel]`, in safetensors `[channels, 1, kernel]`.
    Conv,
    /// What a short convolution reads and is gated by, `[3 * hidden, hidden]`.
    ConvIn,
    ConvOut,
    LayerEmbedding,
    /// Of the model's embedding, `[layers * layer_embedding, hidden]`.
    LayerEmbeddingProjection,
    /// `[layer_embedding]`, of what that gives a layer.
    LayerEmbeddingNorm,
    LayerEmbeddingGate,
    LayerEmbeddingOutput,
    /// `[hidden]`, of what the layer's embedding adds to the residual stream.
    LayerEmbeddingOutputNorm,
    /// `[1]`: what the residual stream is multiplied by after a block. Tables have its whole name.
    LayerScale,
}
