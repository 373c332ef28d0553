//! Which sequences share a pass over the weights, for the report, for loading and for the scheduler.

use crate::spec::{LayerWeights, ModelSpec};

/// Which sequences are computed in one pass over the weights. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // those of the variants say what their fields are
pub enum Batching {
    /// All: a row has the same bits as when computed by itself. Only then sequences share prefixes and are speculated on.
    Any,
    /// Only sequences of a batch that the caller made: on a GPU a row's sums depend on how many rows are computed.
    Explicit,
    /// No sequences: a row's values depend on the other rows of the pass, as all of them share one scale of int8
    /// activations, and on a GPU its sums would depend on them too.
    Never { on_gpu: bool },
}

impl Batching {
    /// The batching of `spec` on a device where a row has the same bits in every batch, or on a GPU, where it does not.
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
