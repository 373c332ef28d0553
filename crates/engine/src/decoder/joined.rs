//! What a prediction head reads beside ids, and hidden states beside logits.

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

/// Hidden states that go with a step, `[rows, hidden]`: as the output head reads them, behind the last norm.
#[derive(Default)]
pub struct Hidden<'a> {
    /// Of a prediction head: that of the position before each row's token, of the model or of the head itself.
    pub given: &'a [f32],
    /// Where those of the step are put.
    pub taken: Taken<'a>,
}

/// Which hidden states of a step are put where. Complete.
#[derive(Default)]
pub enum Taken<'a> {
    /// None.
    #[default]
    Nothing,
    /// Those of all rows.
    All(&'a mut Vec<f32>),
    /// Those of the rows whose logits are wanted.
    Wanted(&'a mut Vec<f32>),
}

impl Taken<'_> {
    /// Whether every row is brought to the end.
    pub(super) fn is_all(&self) -> bool {
        matches!(self, Taken::All(_))
    }
}
