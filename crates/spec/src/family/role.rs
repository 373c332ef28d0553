//! What a weight does, whatever its name.

/// What a weight does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// `[vocab, hidden]`.
    Embedding,
    /// `[context, hidden]`, added to the embedding's rows.
    Positions,
    /// `[token_types, hidden]`, of which the first row is added to them.
    TokenTypes,
    /// `[hidden]`, of that sum.
    EmbeddingNorm,
    /// `[hidden]`.
    FinalNorm,
    /// `[vocab, hidden]`.
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
    /// `[hidden, hidden]`, of a classification head.
    ClassifierDense,
    /// `[hidden]`, of what that puts out.
    ClassifierNorm,
    /// `[labels, hidden]`.
    Classifier,
    /// `[hidden]`.
    AttentionNorm,
    /// `[heads * head_dim, hidden]`, or twice as many rows where attention is gated.
    Q,
    /// `[kv_heads * head_dim, hidden]`.
    K,
    /// `[kv_heads * head_dim, hidden]`.
    V,
    /// `[hidden, heads * head_dim]`.
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
    /// `[hidden]`.
    MlpNorm,
    /// `[hidden]`, of what the feed-forward layer adds to the residual stream.
    MlpOutputNorm,
    /// `[hidden]`, of the residual stream after the feed-forward layer.
    MlpSumNorm,
    /// `[feed_forward, hidden]`.
    Gate,
    /// `[feed_forward, hidden]`.
    Up,
    /// `[hidden, feed_forward]`.
    Down,
    /// `[experts, hidden]`.
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
    /// `[expert_feed_forward, hidden]` of each expert.
    ExpertGate,
    /// `[expert_feed_forward, hidden]` of each expert.
    ExpertUp,
    /// `[hidden, expert_feed_forward]` of each expert.
    ExpertDown,
    /// `[shared_feed_forward, hidden]`.
    SharedGate,
    /// `[shared_feed_forward, hidden]`.
    SharedUp,
    /// `[hidden, shared_feed_forward]`.
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
    /// `[hidden, value_heads * value_dim]`.
    StateOut,
    /// The convolution of a layer with a state: `[channels, kernel]`, in safetensors `[channels, 1, kernel]`.
    Conv,
    /// What a short convolution reads and is gated by, `[3 * hidden, hidden]`.
    ConvIn,
    /// `[hidden, hidden]`.
    ConvOut,
    /// `[vocab, layers * layer_embedding]`.
    LayerEmbedding,
    /// Of the model's embedding, `[layers * layer_embedding, hidden]`.
    LayerEmbeddingProjection,
    /// `[layer_embedding]`, of what that gives a layer.
    LayerEmbeddingNorm,
    /// `[layer_embedding, hidden]`.
    LayerEmbeddingGate,
    /// `[hidden, layer_embedding]`.
    LayerEmbeddingOutput,
    /// `[hidden]`, of what the layer's embedding adds to the residual stream.
    LayerEmbeddingOutputNorm,
    /// `[1]`: what the residual stream is multiplied by after a block. Tables have its whole name.
    LayerScale,
}
