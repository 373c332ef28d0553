//! What encoders have before their blocks, and models that score labels behind them.

use crate::error::{Error, Result};
use model_factory_spec::spec::{ClassifierWeights, DenseActivation, InputWeights, LinearWeights, NormWeights};

/// What is added to the embedding's rows, and the norm of the sum.
pub struct EmbeddingInput<M, N> {
    /// A row for each position, and which of them is that of the first.
    pub(crate) positions: Option<(M, usize)>,
    /// A row for each kind of tokens.
    pub(crate) token_types: Option<M>,
    /// Of the sum.
    pub(crate) norm: N,
}

/// A classification head.
pub struct Classifier<M, N> {
    /// The layer before the last, its activation, and the norm of that.
    pub(crate) dense: Option<(M, DenseActivation, Option<N>)>,
    /// The scores of the labels.
    pub(crate) output: M,
}

impl<M, N> EmbeddingInput<M, N> {
    /// That of `input`, whose matrices and norms `matrix` and `norm` load.
    pub(super) fn new(
        input: &InputWeights,
        matrix: impl Fn(&LinearWeights) -> Result<M>,
        norm: impl Fn(&NormWeights) -> Result<N>,
    ) -> Result<Self> {
        let positions = input
            .positions
            .as_ref()
            .map(|positions| Ok::<_, Error>((matrix(&LinearWeights::of(positions.rows.clone()))?, positions.first)));
        let token_types = input.token_types.as_ref().map(|types| matrix(&LinearWeights::of(types.clone())));
        Ok(EmbeddingInput {
            positions: positions.transpose()?,
            token_types: token_types.transpose()?,
            norm: norm(&input.norm)?,
        })
    }

    pub(super) fn matrices(&self) -> impl Iterator<Item = &M> {
        self.positions.iter().map(|(rows, _)| rows).chain(&self.token_types)
    }
}

impl<M, N> Classifier<M, N> {
    /// That of `head`, as [`EmbeddingInput::new`].
    pub(super) fn new(
        head: &ClassifierWeights,
        matrix: impl Fn(&LinearWeights) -> Result<M>,
        norm: impl Fn(&NormWeights) -> Result<N>,
    ) -> Result<Self> {
        let dense = head.dense.as_ref().map(|dense| {
            let norm = dense.norm.as_ref().map(&norm).transpose()?;
            Ok::<_, Error>((matrix(&dense.linear)?, dense.activation, norm))
        });
        Ok(Classifier { dense: dense.transpose()?, output: matrix(&head.output)? })
    }

    pub(super) fn matrices(&self) -> impl Iterator<Item = &M> {
        self.dense.iter().map(|(dense, ..)| dense).chain([&self.output])
    }
}
