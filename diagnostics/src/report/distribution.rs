//! How several devices of one kind hold a model that does not fit on one.

use super::Bytes;
use model_factory_dtypes::DType;
use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// A model split over several devices of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Distribution {
    /// The kind of the devices: the name of a profile, the name of a GPU, or `machines like this one`.
    pub device: String,
    /// Bytes of each device that the plan may use.
    pub available: u64,
    /// What each device holds.
    pub shares: Vec<Share>,
    /// Devices that share every matrix; 1 where only layers are split.
    pub tensor_parallel: usize,
    /// Tokens of context.
    pub context: usize,
    /// The program that runs the model.
    pub engine: ServingEngine,
    /// The float dtype that vLLM computes in: the one of most bytes of the model.
    pub dtype: Option<DType>,
}

/// What one device holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Share {
    /// The range of its layers, from 0, without the end.
    pub layers: Range<usize>,
    /// Total bytes of weights, of the KV cache and of buffers.
    pub bytes: u64,
}

/// A program that runs a model over several devices. Complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServingEngine {
    /// llama.cpp with its RPC backend.
    LlamaCpp,
    /// vLLM.
    Vllm,
}

impl fmt::Display for ServingEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServingEngine::LlamaCpp => "llama.cpp",
            ServingEngine::Vllm => "vLLM",
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Distribution { device, shares, tensor_parallel, context, engine, .. } = self;
        let most = shares.iter().map(|share| share.bytes).max().unwrap_or(0);
        let (most, available) = (Bytes(most), Bytes(self.available));
        write!(
            f,
            "run it by {engine} on {} x {device}, at most {most} of {available} each, context {context}: ",
            shares.len()
        )?;
        let mut groups: Vec<String> = Vec::new();
        for share in shares.iter().step_by(*tensor_parallel) {
            let Range { start, end } = share.layers;
            groups.push(if end - start == 1 { format!("{start}") } else { format!("{start}-{}", end - 1) });
        }
        match (*tensor_parallel, groups.len()) {
            (1, _) => write!(f, "layers {}", groups.join(", ")),
            (gpus, 1) => write!(f, "every matrix split over {gpus} GPUs"),
            (gpus, _) => {
                write!(f, "layers {} on groups of {gpus} GPUs, which split every matrix", groups.join(", "))
            }
        }
    }
}
