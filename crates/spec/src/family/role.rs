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
    /// The norm of the sum of embeddings, `[hidden]`.
    EmbeddingNorm,
    FinalNorm,
    Head,
    /// The projection of a prediction head, `[hidden, 2 * hidden]`, over the next token's embedding and a hidden state.
    NextProjection,
    /// The norm of the next token's embedding in a prediction head, `[hidden]`.
    NextEmbeddingNorm,
    /// The norm of the hidden state in a prediction head, `[hidden]`.
    NextHiddenNorm,
    /// The norm of the output of a prediction head, `[hidden]`.
    NextNorm,
    /// The embedding of a prediction head that has its own, `[vocab, hidden]`.
    NextEmbedding,
    /// The output head of a prediction head that has its own, `[vocab, hidden]`.
    NextHead,
    ClassifierDense,
    /// The norm of the output of the classifier's dense layer, `[hidden]`.
    ClassifierNorm,
    Classifier,
    AttentionNorm,
    /// The query projection, `[heads * head_dim, hidden]`, or twice as many rows where attention is gated.
    Q,
    K,
    V,
    O,
    /// The norm of the queries: `[head_dim]`, or `[heads * head_dim]`.
    QNorm,
    /// The norm of the keys: `[head_dim]`, or `[kv_heads * head_dim]`.
    KNorm,
    /// Attention sinks, `[heads]`: scores of a position without a value.
    Sinks,
    /// The norm of what attention adds to the residual stream, `[hidden]`.
    AttentionOutputNorm,
    /// The norm of the residual stream after attention, `[hidden]`.
    AttentionSumNorm,
    MlpNorm,
    /// The norm of what the feed-forward layer adds to the residual stream, `[hidden]`.
    MlpOutputNorm,
    /// The norm of the residual stream after the feed-forward layer, `[hidden]`.
    MlpSumNorm,
    Gate,
    Up,
    Down,
    Router,
    /// The bias that is added to the scores only to choose experts, `[experts]`; its names are whole.
    ChoiceBias,
    /// The norm of the router's input, `[hidden]`; its names are whole.
    RouterNorm,
    /// The factors of the experts' weights, `[experts]`; its names are whole.
    ExpertScales,
    /// The norm of the input of experts next to a dense layer, `[hidden]`.
    ExpertsNorm,
    /// The norm of the output of experts next to a dense layer, `[hidden]`.
    ExpertsOutputNorm,
    /// The norm of the output of the dense layer next to experts, `[hidden]`.
    DenseOutputNorm,
    ExpertGate,
    ExpertUp,
    ExpertDown,
    SharedGate,
    SharedUp,
    SharedDown,
    /// The gate of the shared expert's output, `[1, hidden]`.
    SharedRouter,
    /// Queries, keys and values of a delta net, `[2 * key_heads * key_dim + value_heads * value_dim, hidden]`.
    DeltaQkv,
    /// Queries, keys, values and output gate by key heads, `[2 * key_heads * key_dim + 2 * value_heads * value_dim, hidden]`.
    DeltaQkvz,
    /// `beta` and `alpha` of a delta net by key heads, `[2 * value_heads, hidden]`: how much a position corrects, and the decay.
    DeltaBetaAlpha,
    /// What a Mamba-2 layer convolves: values, keys and queries (`x`, `B` and `C`), `[channels, hidden]`.
    MambaInput,
    /// The step of a position (`dt`), before its softplus, `[heads, hidden]`.
    MambaStep,
    /// The factor with which a value is added to the output (`D`), `[heads]`; its names are whole.
    MambaSkip,
    /// The gate of the output of a layer with a state, `[value_heads * value_dim, hidden]`.
    StateGate,
    /// How much a position corrects the state (`beta`), `[value_heads, hidden]`.
    DeltaBeta,
    /// How much the state decays (`alpha`), `[value_heads, hidden]`.
    DeltaAlpha,
    /// The bias of the decay or of a step (`dt_bias`), `[value_heads]`; its names are whole.
    StateStepBias,
    /// The factor of the softplus of the decay or step (`A`), `[value_heads]`; its names are whole.
    StateDecay,
    /// The norm of what a layer with a state reads from it, `[value_dim]` of every head of a delta net, or all of it:
    /// its weight is stored without an offset in every family.
    StateNorm,
    StateOut,
    /// The convolution of a layer with a state: `[channels, kernel]`, in safetensors `[channels, 1, kernel]`.
    Conv,
    /// The input and the gates of a short convolution, `[3 * hidden, hidden]`.
    ConvIn,
    ConvOut,
    LayerEmbedding,
    /// The projection of the model's embedding, `[layers * layer_embedding, hidden]`.
    LayerEmbeddingProjection,
    /// The norm of a layer's part of that projection, `[layer_embedding]`.
    LayerEmbeddingNorm,
    LayerEmbeddingGate,
    LayerEmbeddingOutput,
    /// The norm of what the layer's embedding adds to the residual stream, `[hidden]`.
    LayerEmbeddingOutputNorm,
    /// The factor of the residual stream after a block, `[1]`. Tables have its whole name.
    LayerScale,
}
