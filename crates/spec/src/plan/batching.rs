//! Which sequences share a pass over the weights: what the report says, loading decides by and the scheduler does.

use crate::spec::{LayerWeights, ModelSpec};

/// Which sequences are computed in one pass over the weights. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Batching {
    /// All: each row has the bits that it has by itself. Only then sequences share prefixes and are speculated on.
    Any,
    /// Those of a batch that a caller made: on a GPU a row's sums depend on how many are computed.
    Explicit,
    /// None: a row's values depend on those in the same pass, as one scale of int8 activations is made for all of them, and
    /// on a GPU its sums would too.
    Never { on_gpu: bool },
}

impl Batching {
    /// That of `spec` on a device where a row has the same bits in every batch, or on a GPU, where it does not.
    pub fn new(spec: &ModelSpec, on_gpu: bool) -> Batching {
        match spec.weights.layers.iter().any(LayerWeights::mixes_rows) {
            true => Batching::Never { on_gpu },
            false if on_gpu => Batching::Explicit,
            false => Batching::Any,
        }
    }

    /// Why sequences are computed in steps of their own; `None` where they share steps.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Batching::Any => None,
            Batching::Explicit | Batching::Never { on_gpu: true } => Some("a GPU's sums depend on the batch"),
            Batching::Never { on_gpu: false } => Some("int8 with one scale for all rows"),
        }
    }
}
