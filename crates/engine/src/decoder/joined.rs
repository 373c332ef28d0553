//! What a prediction head makes its input of.

use crate::error::Result;
use model_factory_spec::spec::{self, LinearWeights, NormWeights};

/// What a prediction head makes its input of: `projection` of the normed embedding and, behind it, the normed hidden state.
pub struct JoinedInput<M, N> {
    pub(crate) embedding_norm: N,
    pub(crate) hidden_norm: N,
    /// `[hidden, 2 * hidden]`.
    pub(crate) projection: M,
}

impl<M, N> JoinedInput<M, N> {
    /// That of `joined`, whose matrix and norms `matrix` and `norm` load.
    pub(super) fn new(
        joined: &spec::JoinedInput,
        matrix: impl Fn(&LinearWeights) -> Result<M>,
        norm: impl Fn(&NormWeights) -> Result<N>,
    ) -> Result<Self> {
        Ok(JoinedInput {
            embedding_norm: norm(&joined.embedding_norm)?,
            hidden_norm: norm(&joined.hidden_norm)?,
            projection: matrix(&joined.projection)?,
        })
    }
}
